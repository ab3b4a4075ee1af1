"""What the tests of experiments share: one whole tiny run, and one that was stopped halfway."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import tiny_runs  # noqa: E402
from stub_runs import stub_loops  # noqa: E402, F401


@pytest.fixture(scope="package", autouse=True)
def cache(tmp_path_factory):
    with tiny_runs.compilation_cache(tmp_path_factory.getbasetemp()) as home:
        yield home


@pytest.fixture(scope="package")
def whole(cache, tmp_path_factory) -> Path:
    """A run that went to its end undisturbed. Not to be changed: copy it."""
    path = tmp_path_factory.mktemp("whole") / "run"
    tiny_runs.train(path)
    return path


@pytest.fixture(scope="package")
def halfway(cache, tmp_path_factory) -> Path:
    """The same run, stopped by its callback in the middle. Not to be changed: copy it."""
    path = tmp_path_factory.mktemp("halfway") / "run"
    tiny_runs.train(path, callback=tiny_runs.stop_at(tiny_runs.TINY.steps // 2))
    return path
