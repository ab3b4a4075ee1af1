"""Imports point one way: a module may import only from layers before its own."""

import ast
import sys
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "sadq"

LAYERS = [
    {"errors"},
    {"types"},
    {"keys"},
    {"core"},
    {"nets"},
    {"dynamics"},
    {"replay"},
    {"exploration"},
    {"envs"},
    {"optimiser", "metrics"},
    {"guidance"},
    {"targets"},
    {"inference"},
    {"learner"},
    {"agents"},
    {"fleet"},
    {"scan_loop", "host_loop"},
    {"experiment"},
    {"report"},
    {"options", "progress", "listing"},
    {"commands"},
    {"api"},
    {"cli"},
    {"__main__"},
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
# The package's own front lists where each name lives and loads it on first use.
EXEMPT = {"__init__"}


def imported(path: Path) -> set[str]:
    """The top-level modules of this package that a file imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "sadq":
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("sadq.")}
    return found


def violations() -> list[str]:
    """One sentence for every import that points the wrong way, or module without a layer."""
    problems = []
    for path in sorted(SOURCE.rglob("*.py")):
        own = path.relative_to(SOURCE).with_suffix("").parts[0]
        if own in EXEMPT:
            continue
        if own not in RANK:
            problems.append(f"{path}: module {own} has no layer: add it to LAYERS.")
            continue
        for name in sorted(imported(path)):
            if name not in RANK:
                problems.append(f"{path}: imports {name}, which has no layer.")
            elif RANK[name] > RANK[own] or (RANK[name] == RANK[own] and name != own):
                problems.append(f"{path}: {own} may not import {name}, which comes after it.")
    return problems


if __name__ == "__main__":
    found = violations()
    print("\n".join(found) or "imports point one way")
    sys.exit(bool(found))
