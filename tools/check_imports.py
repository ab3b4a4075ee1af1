"""Imports point one way: a module may import only from layers before its own."""

import ast
import sys
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "sadq"

# What has no file of its own name is a room: a folder.
ORDER = [
    "errors",
    "types",
    "keys",
    "registry",
    "core",
    "networks",
    "dynamics",
    "replay",
    "exploration",
    "envs",
    "learning",
    "axes",
    "agents",
    "fleet",
    "experiment",
    "report",
    "studies",
    "callbacks",
    "api",
    "cli",
    "sb3",
    "__main__",
]
RANK = {name: rank for rank, name in enumerate(ORDER)}
# The report reads run folders: it must work where nothing can learn.
FORBIDDEN = {"report": {"learning", "fleet"}}
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
    """One sentence for every import that points the wrong way, and for every room or module that is not as it should be."""
    problems = []
    for path in sorted(SOURCE.rglob("*.py")):
        own = path.relative_to(SOURCE).with_suffix("").parts[0]
        if own in EXEMPT:
            continue
        if own not in RANK:
            problems.append(
                f"{path}: {own} has no place in the order of imports: put it into a room, or add it to ORDER."
            )
            continue
        for name in sorted(imported(path)):
            if name not in RANK:
                problems.append(f"{path}: imports {name}, which has no place in the order of imports.")
            elif RANK[name] > RANK[own]:
                problems.append(f"{path}: {own} may not import {name}, which comes after it.")
            elif name in FORBIDDEN.get(own, ()):
                problems.append(f"{path}: {own} may not import {name}, although that comes before it.")
    return problems + _unlabelled()


def _unlabelled() -> list[str]:
    """Rooms whose first line does not say what they are and may import."""
    rooms = [path.parent for path in sorted(SOURCE.glob("*/__init__.py"))]
    missing = [
        f"{room}: the room has no __init__.py." for room in SOURCE.iterdir() if _is_room(room) and room not in rooms
    ]
    for room in rooms:
        first = (ast.get_docstring(ast.parse((room / "__init__.py").read_text())) or "").partition("\n")[0]
        if "import" not in first:
            missing.append(f"{room}/__init__.py: its first line must say what the room is and what it may import.")
    return missing


def _is_room(path: Path) -> bool:
    return path.is_dir() and any(path.glob("*.py"))


if __name__ == "__main__":
    found = violations()
    print("\n".join(found) or "imports point one way")
    sys.exit(bool(found))
