"""What the tests of Atari environments share; also lets them import the modules beside."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def opened():
    """AtariEnvironments that are closed after the test."""
    pytest.importorskip("ale_py", reason="Atari games need sadq[atari]")
    from sadq.envs.atari import AtariEnvironments, AtariSpec

    made = []

    def open_games(*games, seeds=(3,), environments=1, purpose="collect", members=None, **settings):
        spec = AtariSpec(games, **settings)
        made.append(AtariEnvironments(spec, seeds, environments, purpose=purpose, games=members))
        return made[-1]

    yield open_games
    for environments in made:
        environments.close()
