"""Fleets' tests share compiled programs, the tiny runs of experiments, and the environments' samples."""

import sys
from pathlib import Path

import pytest

for room in ("experiment", "envs"):
    sys.path.insert(0, str(Path(__file__).parents[1] / room))

import tiny_runs  # noqa: E402


@pytest.fixture(scope="package", autouse=True)
def cache(tmp_path_factory):
    with tiny_runs.compilation_cache(tmp_path_factory.getbasetemp()) as home:
        yield home
