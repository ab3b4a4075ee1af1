"""What the tests of `SADQ` share: the tiny run learned in memory, and saved."""

import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "experiment")]

import tiny_models  # noqa: E402
import tiny_runs  # noqa: E402
from stub_runs import stub_loops  # noqa: E402, F401

from sadq import SADQ  # noqa: E402


@pytest.fixture(scope="package", autouse=True)
def cache(tmp_path_factory):
    with tiny_runs.compilation_cache(tmp_path_factory.getbasetemp()) as home:
        yield home


@pytest.fixture(scope="package")
def model(cache) -> SADQ:
    """The tiny run, learned in memory. Not to be taught any more."""
    return tiny_models.tiny()


@pytest.fixture(scope="package")
def saved(model, tmp_path_factory) -> Path:
    """The same in a folder. Not to be changed: copy it."""
    path = tmp_path_factory.mktemp("api") / "agent"
    model.save(path)
    return path
