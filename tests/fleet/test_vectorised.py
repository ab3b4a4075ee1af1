"""Members side by side, the only way in which accelerators run them, are the members one after the other.

Batched products round differently, so two collects are compared to a tolerance. Programs are compiled without
optimisation, which halves the time this takes, and a plain fleet's reference is the guided one's at alpha 1. Agents that
have every part between them are looked at; the other rows put the same parts together otherwise, and wait for `make learn`.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sadq.agents import AGENTS
from sadq.dynamics import Gaussian
from sadq.experiment.build import hyper_of, members_of
from sadq.experiment.config import GuidanceSettings
from sadq.networks import Dense
from sadq.types import Array
from small_fleets import scan_fleet
from tiny import Corridor, assert_close, config, difference, small_heads

SEEDS, COLLECTS, FIRST = (1, 2), 2, jnp.int32(0)
SIZES = {
    "encoder": Dense((8,)),
    "batch_size": 4,
    "updates_per_collect": 2,
    "collect": 8,
    "environments": 2,
    "buffer_size": 64,
    "n_step": None,
    "seeds": SEEDS,
    "model": Gaussian(hidden=(8,)),
    "guidance": GuidanceSettings(batch_size=4),
    "adjusted": small_heads(samples=16, chunk=8, refit_interval=8, resample_interval=8),
}

WITH_EVERY_PART = ("dueling", "bdqn", "sunrise", "rainbow", "iqn", "fqf")
"""One network, a posterior, an ensemble, layers with noise beside priorities, and the heads and behaviours of the others."""
ADDED: dict[str, dict[str, Any]] = {"rainbow": {"deviation": "epsilon-z"}, "iqn": {"deviation": "counteractive"}}
"""TEG's behaviour, which remembers, on the agent that is TEG but for it; CoAct's on another one."""
PLAIN_TOO = ("dueling",)
"""Also tried without a model."""
ROWS = [pytest.param(agent, marks=[] if agent in WITH_EVERY_PART else pytest.mark.thorough) for agent in AGENTS]


def compiled(program, *arguments):
    return program.lower(*arguments).compile(compiler_options={"xla_backend_optimization_level": 0})(*arguments)


def trained(made, vectorise: bool, start=None):
    """(start, state after two collects, metrics) of a fleet."""
    fleet, hyper = scan_fleet(made, Corridor(), vectorise=vectorise), hyper_of(made)
    over_members = fleet.placement(hyper.seed.shape[0]).over_members
    if start is None:
        start = compiled(over_members(lambda _, own: fleet.init(own)), hyper, hyper)

    def chunk(member, own, first: Array):
        return fleet.chunk(member, own, first, COLLECTS)

    return start, *compiled(over_members(chunk), start, hyper, FIRST)


def of_members(tree, *indices: int):
    return jax.tree.map(lambda leaf: np.asarray(leaf)[list(indices)], tree)


@pytest.mark.parametrize("agent", ROWS)
def test_members_side_by_side_are_the_same_up_to_the_order_of_sums(agent):
    sizes = SIZES | ADDED.get(agent, {})
    swept = config(f"{agent}+sadq", "Corridor", alpha=(1.0, 0.3), **sizes)
    assert [(own["alpha"], own["seed"]) for own in members_of(swept)] == [(1.0, 1), (1.0, 2), (0.3, 1), (0.3, 2)]
    start, reference, metrics = trained(swept, vectorise=False)
    parameters = reference.learner.online.parameters
    assert difference(of_members(parameters, 0), of_members(parameters, 1)) > 0
    assert difference(of_members(parameters, 0), of_members(parameters, 2)) > 0
    assert difference(start.learner.online.parameters, parameters) > 0
    assert difference(start.learner.model.parameters, reference.learner.model.parameters) > 0

    guided = config(f"{agent}+sadq", "Corridor", alpha=(0.3,), **sizes)
    _, state, found = trained(guided, True, of_members(start, 2, 3))
    assert_close(of_members(reference, 2, 3), state, rtol=1e-4, atol=1e-5)
    assert_close(of_members(metrics, 2, 3), found, rtol=1e-4, atol=1e-5)

    if agent not in PLAIN_TOO:
        return
    begun = of_members(start._replace(learner=start.learner._replace(model=None)), 0, 1)
    _, state, found = trained(config(agent, "Corridor", **sizes), True, begun)
    expected = reference._replace(learner=reference.learner._replace(model=None))
    assert_close(of_members(expected, 0, 1), state, rtol=1e-4, atol=1e-5)
    assert_close(of_members({name: metrics[name] for name in found}, 0, 1), found, rtol=1e-4, atol=1e-5)
    assert {"loss", "q", "delta_q", "episodes", "episode_return"} == set(found)
