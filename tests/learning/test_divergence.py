"""What diverges stops learning where it was, and nothing else does."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables import (
    TWO_STATES,
    filled_ring,
    numbers,
    phase_of,
    state_of,
    table_guidance,
    table_learner,
    table_model,
    table_network,
    three_ends,
    update_of,
)

from sadq.core.gates import BatchReliability, Fixed, SampleReliability
from sadq.learning.learner import TargetUpdate
from sadq.replay import Prioritised
from tiny import KEY, difference

STATES, ACTIONS = 4, 3
VALUES = jax.random.normal(KEY, (STATES, ACTIONS))
MODEL = table_model(VALUES[::-1], jax.random.randint(KEY, (STATES, ACTIONS), 0, STATES))


def wild() -> Any:
    """A model whose loss is not finite, and whose predictions are not either."""
    return jax.tree.map(lambda leaf: leaf + 3e38, MODEL)


@pytest.mark.exact
@pytest.mark.parametrize("gate", [Fixed(), BatchReliability(), SampleReliability()], ids=lambda one: type(one).__name__)
def test_a_model_that_diverges_stops_learning_and_nothing_else_does(gate):
    """At alpha 1 values stay, to the bit, those of the base; and below it they go on learning."""
    base = table_learner(STATES, ACTIONS, updates=2)
    guided = table_learner(STATES, ACTIONS, updates=2, guidance=table_guidance(MODEL, ACTIONS, gate=gate))
    # Values so large that what the model predicts is worth inf - inf, which is no number at all.
    contents, network = filled_ring(base), table_network(4 * VALUES)
    plain, state = state_of(network), state_of(network, None, wild())
    alone = jax.jit(lambda state, index: base.learn(state, numbers(), contents, None, index)[0])
    advised = jax.jit(
        lambda state, alpha, index: guided.learn(state, numbers()._replace(alpha=alpha), contents, None, index)[0]
    )
    mixed = state
    for index in range(3):
        plain = alone(plain, jnp.int32(index))
        state = advised(state, jnp.float32(1), jnp.int32(index))
        mixed = advised(mixed, jnp.float32(0.4), jnp.int32(index))
        assert state.model.diverged_at == 4, "the env steps of the first collect"
    assert difference(state.online, plain.online) == 0 and difference(state.target, plain.target) == 0
    assert difference(state.model.parameters, wild()) == 0 and state.model.steps == 0
    assert mixed.online.diverged_at == -1 and mixed.online.steps == 6
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(mixed.online))


def test_values_that_diverge_stop_learning():
    learner = table_learner(STATES, ACTIONS, updates=3, replay=Prioritised(), guidance=table_guidance(MODEL, ACTIONS))
    contents = filled_ring(learner)
    contents = contents._replace(reward=contents.reward.at[3:].set(jnp.nan))
    memory = learner.sampler.add(learner.sampler.init(), jnp.int32(0), 6)
    state = state_of(table_network(VALUES), None, MODEL)
    learn = jax.jit(lambda state, index: learner.learn(state, numbers(alpha=0.5), contents, memory, index)[0])
    after = learn(learn(state, jnp.int32(2)), jnp.int32(3))
    assert after.online.diverged_at == 12 and after.online.steps == 0
    assert difference(after.online.parameters, state.online.parameters) == 0


# One update


def test_a_non_finite_loss_freezes_the_member_and_records_the_step():
    learner = table_learner(2, 3, target_update=TargetUpdate(soft_rate=0.5))
    network = table_network(TWO_STATES)
    state = state_of(network, table_network(TWO_STATES + 1))
    update = jax.jit(
        lambda state, seen, step: learner.value_update(state, phase_of(learner, numbers(), step=step), update_of(seen))[
            0
        ]
    )
    poisoned = three_ends(reward=(1.0, jnp.nan, 4.0))
    after = update(state, poisoned, jnp.int32(640))
    assert after.online.diverged_at == 640 and difference(after.online.parameters, state.online.parameters) == 0
    still = update(after, three_ends(), jnp.int32(672))
    assert still.online.diverged_at == 640 and still.online.steps == 0
    assert difference(still.online.parameters, state.online.parameters) == 0
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((still.target, still.online)))
    healthy = update(state, three_ends(), jnp.int32(640))
    assert healthy.online.diverged_at == -1 and difference(healthy.online.parameters, state.online.parameters) > 0


def test_overflowing_gradients_leave_parameters_finite():
    learner = table_learner(2, 3)
    phase = phase_of(learner, numbers(), rate=jnp.float32(1e30))
    huge = three_ends(reward=(1e19, 1e19, 1e19))
    after, _, _ = learner.value_update(state_of(table_network(TWO_STATES)), phase, update_of(huge))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after.online.parameters))
