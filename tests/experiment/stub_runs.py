"""Whole runs without a compiler: a loop whose state is a few numbers, so that what surrounds it can be tried often."""

import dataclasses
import types
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
import tiny_runs

from sadq.experiment import opening, run, stored
from sadq.experiment.opening import create, reopen
from sadq.experiment.run import Experiment
from sadq.fleet.members import Evaluation

CHUNKS = 4
# Four chunks of one collect, with an evaluation and a checkpoint after each.
CONFIG = dataclasses.replace(tiny_runs.TINY, steps=CHUNKS * 8, evaluations=CHUNKS)


class Trained(NamedTuple):
    parameters: Any
    diverged_at: Any


class Learner(NamedTuple):
    online: Trained
    model: Any = None


class State(NamedTuple):
    learner: Learner
    total: Any


class StubLoop:
    """Each member counts the collects that it has made, in its own way."""

    evaluates_beside = False
    placement = types.SimpleNamespace(real=lambda tree: tree, padded=lambda tree: tree)
    programs = types.SimpleNamespace(compile_seconds=0.0)

    def __init__(self, members: int, chunk: int):
        self.members, self.chunk, self.diverging = members, chunk, -1

    def start(self) -> State:
        online = Trained(jnp.zeros((self.members, 2)), jnp.full(self.members, -1, jnp.int32))
        return State(Learner(online), jnp.zeros(self.members, jnp.int32))

    def advance(self, state: State, first: int) -> tuple[State, dict[str, np.ndarray]]:
        weight = jnp.arange(1, self.members + 1, dtype=jnp.int32)
        ones = np.ones((self.members, self.chunk))
        after = state._replace(total=state.total + weight * self.chunk * (first + 1))
        return after, {"episodes": ones, "episode_return": ones, "loss": ones * first}

    def evaluate(self, state: State, number: int) -> Evaluation:
        returns = np.asarray(state.total)[:, None] + np.zeros((1, 2), np.float32)
        return Evaluation(returns, np.ones_like(returns, np.int32), returns, returns, {})

    def outside(self) -> dict[str, np.ndarray]:
        return {"counted": np.arange(3)}

    def restore(self, state: State, outside: dict[str, np.ndarray]) -> bool:
        return True

    def follow(self, hyper: Any) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture
def stub_loops(monkeypatch) -> type[StubLoop]:
    """Every run is one of these from now on."""
    monkeypatch.setattr(
        run, "make_loop", lambda config, _, chunk, origin=0: StubLoop(len(run.members_of(config)), chunk)
    )
    monkeypatch.setattr(opening, "check_memory", lambda *_: 0)
    monkeypatch.setattr(opening, "make_learner", lambda *_: None)
    monkeypatch.setattr(stored, "_template", lambda config, _: jnp.zeros((len(run.members_of(config)), 2)))
    return StubLoop


def gone_on(path: Path, config=CONFIG, callback=lambda _: None) -> Experiment:
    """A run to its end, from the beginning or from where its folder stands."""
    experiment = reopen(path) if (path / "config.json").exists() else create(config, path)
    return tiny_runs.drive(experiment, callback)
