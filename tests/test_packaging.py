"""What an installation is made of: pins, extras, and who may ask for torch."""

import ast
import re
import tomllib
from pathlib import Path

from packaging.version import Version

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = set(PROJECT["optional-dependencies"])


def test_only_releases_are_pinned():
    pins = re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), flags=re.MULTILINE)
    assert len(pins) > 50
    assert not [name for name, version in pins if Version(version).is_prerelease or "nightly" in name]


def test_what_the_library_needs_is_pinned():
    pinned = {
        name.lower().replace("_", "-")
        for name in re.findall(r"^([\w.-]+)==", (ROOT / "constraints.txt").read_text(), re.M)
    }
    needed = {re.match(r"[\w-]+", one).group().lower() for one in PROJECT["dependencies"]}
    assert needed <= pinned


def test_every_extra_is_explained_and_asked_for():
    """A line of the page on installing, and a rule or a sentence of the library that names it."""
    explained = set(
        re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", (ROOT / "docs/install.md").read_text(), re.M)))
    )
    assert explained == EXTRAS
    rules = set(re.findall(r"\w+", " ".join(re.findall(r"\.\[([\w,]+)\]", (ROOT / "Makefile").read_text()))))
    sources = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    told = {name for name in EXTRAS if f"sadq[{name}]" in sources}
    assert rules <= EXTRAS
    assert EXTRAS - rules - told == {"cuda"}, "which extra is never used?"


def test_torch_is_asked_for_by_one_module():
    asking = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            asking |= {path.name for name in names if name.split(".")[0] in ("torch", "stable_baselines3")}
    assert asking == {"sb3.py"}


def test_the_twin_in_torch_is_short():
    assert (ROOT / "src/sadq/sb3.py").read_text().count("\n") < 250
