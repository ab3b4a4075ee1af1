"""Running means and deviations: those of all observations at once, whatever they came in."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sadq.learning.normalising import SMALLEST_VARIANCE, Statistics, observed
from sadq.learning.state import LearnerState

SEEN = np.random.default_rng(0).normal([1.0, -20.0], [0.5, 3.0], size=(12, 4, 2)).astype(np.float32)


def test_statistics_in_parts_are_those_of_the_whole():
    statistics = Statistics.of_nothing((2,))
    for part in np.split(SEEN, [1, 5]):
        statistics = statistics.with_more(jnp.asarray(part))
    assert statistics.number == 48
    np.testing.assert_allclose(statistics.mean, SEEN.mean(axis=(0, 1)), rtol=1e-5)
    np.testing.assert_allclose(statistics.deviation, SEEN.std(axis=(0, 1)), rtol=1e-5)


def test_before_anything_is_seen_and_where_nothing_varies_a_deviation_is_small_and_not_zero():
    nothing = Statistics.of_nothing((2,))
    for statistics in (nothing, nothing.with_more(jnp.full((1, 1, 2), 7.0))):
        np.testing.assert_allclose(statistics.deviation, [SMALLEST_VARIANCE**0.5] * 2, rtol=1e-5)


def test_two_of_them_vary_by_half_their_distance():
    statistics = Statistics.of_nothing((1,)).with_more(jnp.array([[[1.0], [5.0]]]))
    np.testing.assert_allclose([statistics.mean[0], statistics.deviation[0]], [3.0, 2.0], rtol=1e-5)


class Eyes(eqx.Module):
    mean: jax.Array
    deviation: jax.Array


class Seeing(eqx.Module):
    encoder: Eyes


class Learned(eqx.Module):
    parameters: Seeing | Eyes
    diverged_at: jax.Array

    def _replace(self, parameters: Seeing | Eyes) -> "Learned":
        return Learned(parameters, self.diverged_at)


@pytest.mark.parametrize(("diverged_at", "moves"), [(-1, True), (0, False), (40, False)])
def test_networks_and_model_see_by_the_new_scale_but_for_a_member_that_is_frozen(diverged_at, moves):
    eyes = Eyes(jnp.zeros(2), jnp.ones(2))
    before = Statistics.of_nothing((2,)).with_more(jnp.asarray(SEEN[:3]))
    state = LearnerState(**dict.fromkeys(LearnerState._fields))._replace(
        online=Learned(Seeing(eyes), jnp.int32(diverged_at)),
        target=Seeing(eyes),
        model=Learned(eyes, jnp.int32(-1)),
        statistics=before,
    )
    after = observed(state, jnp.asarray(SEEN[3:]))
    expected = before.with_more(jnp.asarray(SEEN[3:])) if moves else before
    np.testing.assert_array_equal(after.statistics.mean, expected.mean)
    for seen in (after.online.parameters.encoder, after.target.encoder, after.model.parameters):
        np.testing.assert_array_equal(seen.mean, expected.mean)
        np.testing.assert_array_equal(seen.deviation, expected.deviation)
