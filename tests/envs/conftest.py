"""What the tests here share; also lets them, and the worker processes that they start, import the modules beside."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def started():
    """HostEnvironments that are closed after the test."""
    from fleet_helpers import SEEDS

    from sadq.envs import HostEnvironments

    opened = []

    def start(spec, seeds=SEEDS, environments=3, **options):
        opened.append(HostEnvironments(spec, seeds, environments, **options))
        return opened[-1]

    yield start
    for environments in opened:
        environments.close()
