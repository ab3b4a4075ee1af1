"""Each rule against optax, by hand at its first step, and with the settings that it refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sadq.core.optimisers import OPTIMISERS, Adam, AdamW, Moving, RMSprop
from sadq.errors import SadqError

START = jnp.linspace(-1.0, 1.0, 12).reshape(3, 4)
RATE, STEPS = 0.01, 50

REFERENCES = {
    Adam(): optax.adam(RATE),
    Adam(0.5, 0.9, 1e-3): optax.adam(RATE, 0.5, 0.9, 1e-3),
    Adam(0.0, 0.0, 0.1): optax.adam(RATE, 0.0, 0.0, 0.1),
    AdamW(): optax.adamw(RATE, weight_decay=1e-4),
    AdamW(0.8, 0.99, 1e-2, 0.3): optax.adamw(RATE, 0.8, 0.99, 1e-2, weight_decay=0.3),
    RMSprop(): optax.rmsprop(RATE, decay=0.95, eps=1e-5, eps_in_sqrt=False),
    RMSprop(0.5, 0.1): optax.rmsprop(RATE, decay=0.5, eps=0.1, eps_in_sqrt=False),
}


def slopes(size: float) -> jax.Array:
    return size * jax.random.normal(jax.random.key(0), (STEPS, *START.shape))


@pytest.mark.parametrize("size", [1.0, 1e-4])  # the second shows where epsilon stands
@pytest.mark.parametrize("rule", REFERENCES, ids=repr)
def test_it_is_optax_s(rule, size: float):
    reference = REFERENCES[rule]

    def ours(carried, inputs):
        moved = rule.move(carried, inputs[0], RATE, inputs[1])
        return moved, moved.parameter

    def theirs(carried, slope):
        parameter, state = carried
        change, state = reference.update(slope, state, parameter)
        return (parameter + change, state), parameter + change

    nothing = jnp.zeros_like(START)
    _, got = jax.lax.scan(ours, Moving(START, nothing, nothing), (slopes(size), jnp.arange(1, STEPS + 1)))
    _, wanted = jax.lax.scan(theirs, (START, reference.init(START)), slopes(size))
    np.testing.assert_allclose(got - START, wanted - START, rtol=2e-4, atol=1e-6)


def first_step(rule):
    zero = jnp.zeros(1)
    return rule.move(Moving(jnp.ones(1), zero, zero), jnp.array([2.0]), 0.1, jnp.int32(1))


def test_first_steps_by_hand():
    """Bias-corrected, Adam's first step is the rate itself, whatever the slope; RMSprop's has no correction."""
    adam = first_step(Adam(0.9, 0.99, 0.5))
    np.testing.assert_allclose(adam.parameter, [1 - 0.1 * 2 / (2 + 0.5)], rtol=1e-5)
    np.testing.assert_allclose((adam.first, adam.second), ([0.2], [0.04]), rtol=1e-5)
    decayed = first_step(AdamW(0.9, 0.99, 0.5, weight_decay=0.25))
    np.testing.assert_allclose(decayed.parameter, adam.parameter - 0.1 * 0.25, rtol=1e-5)
    root = first_step(RMSprop(0.75, 0.5))
    np.testing.assert_allclose(root.parameter, [1 - 0.1 * 2 / (1 + 0.5)], rtol=1e-5)
    np.testing.assert_allclose((root.first, root.second), ([0.0], [1.0]), rtol=1e-5)


def test_the_axis_knows_all_three_with_their_usual_settings():
    assert OPTIMISERS.choice("adam") == Adam(0.9, 0.999, 1e-8)
    assert OPTIMISERS.choice("adamw") == AdamW(0.9, 0.999, 1e-8, 1e-4)
    assert OPTIMISERS.choice("rmsprop") == RMSprop(0.95, 1e-5)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        *((kind, {beta: value}) for kind in (Adam, AdamW) for beta in ("beta1", "beta2") for value in (-0.1, 1.0, 2.0)),
        *((kind, {"epsilon": value}) for kind in (Adam, AdamW, RMSprop) for value in (0.0, -1e-8)),
        *((RMSprop, {"decay": value}) for value in (-0.1, 1.0)),
        (AdamW, {"weight_decay": -1e-4}),
    ],
)
def test_what_makes_no_sense_is_refused(kind, settings):
    with pytest.raises(SadqError, match=f"{kind.__name__}: {next(iter(settings))} = "):
        kind(**settings)


def test_the_edges_are_allowed():
    Adam(beta1=0.0, beta2=0.0), AdamW(weight_decay=0.0), RMSprop(decay=0.0)
