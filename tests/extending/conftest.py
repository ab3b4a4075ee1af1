"""A desk with the modules that the docs show, and commands that know nothing of each other, as in processes of their own."""

import contextlib
import importlib
import io
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "experiment"))

import tiny_runs  # noqa: E402

from sadq.agents import AGENTS  # noqa: E402
from sadq.axes import AXES  # noqa: E402
from sadq.cli import main as cli  # noqa: E402

DOCS = Path(__file__).parents[2] / "docs"
MODULE = re.compile(r"^```python\n# (\w+)\.py\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="package", autouse=True)
def cache(tmp_path_factory):
    with tiny_runs.compilation_cache(tmp_path_factory.getbasetemp()) as home:
        yield home


@pytest.fixture(scope="package")
def modules() -> dict[str, str]:
    """What the docs show of a user's own, by the name of the file."""
    pages = [DOCS / "extending.md", *sorted((DOCS / "axes").glob("*.md"))]
    return {name: content for page in pages for name, content in MODULE.findall(page.read_text())}


@pytest.fixture
def desk(modules, tmp_path, monkeypatch) -> Path:
    """A folder of the user's, where he is."""
    for name, content in modules.items():
        (tmp_path / f"{name}.py").write_text(content)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@contextlib.contextmanager
def as_a_process_of_its_own(desk: Path) -> Iterator[None]:
    """What the modules of a desk register is unknown outside."""
    with mock.patch.dict(AGENTS), contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(sys, "path", list(sys.path)))
        for axis in AXES.values():
            stack.enter_context(mock.patch.dict(axis._entries))
        yield
    for path in desk.glob("my_*.py"):
        sys.modules.pop(path.stem, None)
    importlib.invalidate_caches()


class Said(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


@pytest.fixture
def sadq(desk) -> Callable[..., Said]:
    """The command line, in this process."""

    def run(*arguments: str) -> Said:
        out, err = io.StringIO(), io.StringIO()
        words = [word for argument in arguments for word in argument.split()]
        quietly = contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)
        with as_a_process_of_its_own(desk), quietly[0], quietly[1], pytest.raises(SystemExit) as exit:
            cli.main(words)
        return Said(exit.value.code, out.getvalue(), err.getvalue())

    return run


@pytest.fixture
def own_process(desk) -> Iterator[contextlib.ExitStack]:
    """A test that imports the modules itself, like a script of the user's; closed, that process has ended."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(as_a_process_of_its_own(desk))
        sys.path.insert(0, str(desk))
        yield stack
