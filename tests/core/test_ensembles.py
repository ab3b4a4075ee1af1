"""What an ensemble's disagreement is used for, by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

from sadq.core.ensembles import ENSEMBLES, Agreement, Single, backup_weight, upper_confidence
from sadq.errors import SadqError


def logistic(x: float) -> float:
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize(
    ("values", "temperature", "expected"),
    [
        ([3.0, 3.0, 3.0], 10.0, 1.0),
        ([1.0, -1.0], 10.0, logistic(-10) + 0.5),
        ([0.0, 4.0], 0.25, logistic(-0.5) + 0.5),
        ([1.0, 2.0, 3.0], 1.0, logistic(-np.sqrt(2 / 3)) + 0.5),
        ([5.0, -70.0], 0.0, 1.0),
        ([1e6, -1e6], 10.0, 0.5),
    ],
)
def test_a_backup_weighs_less_where_members_disagree(values, temperature, expected):
    np.testing.assert_allclose(backup_weight(jnp.array(values), temperature), expected, rtol=1e-6)


def test_upper_confidence_is_mean_plus_standard_deviation():
    values = jnp.array([[1.0, 0.0], [3.0, 0.0], [2.0, 6.0]])
    deviations = np.array([np.sqrt(2 / 3), np.sqrt(8)])
    np.testing.assert_allclose(upper_confidence(values, 1.0), [2, 2] + deviations, rtol=1e-6)
    np.testing.assert_allclose(upper_confidence(values, 0.5), [2, 2] + deviations / 2, rtol=1e-6)
    np.testing.assert_allclose(upper_confidence(values, 0.0), [2, 2], rtol=1e-6)


VALUES = jnp.array([[1.0, 0.0, 3.0], [-1.0, 4.0, 3.0]])  # of two networks at three next states


def test_weights_are_one_for_every_backup():
    found = Agreement(size=2, temperature=0.25).weights(VALUES)
    np.testing.assert_allclose(found, [logistic(-0.25) + 0.5, logistic(-0.5) + 0.5, 1.0], rtol=1e-6)
    np.testing.assert_array_equal(Single().weights(VALUES[:1]), np.ones(3))


def test_the_axis_knows_both_and_their_settings():
    assert ENSEMBLES.choice("single") == Single()
    assert ENSEMBLES.choice("agreement") == Agreement(size=5, temperature=10.0, bootstrap_share=1.0)
    assert (Single().size, Single().bootstrap_share) == (1, 1.0)
    Agreement(size=1, temperature=0.0, bootstrap_share=1.0)


@pytest.mark.parametrize(
    "settings",
    [{"size": 0}, {"size": 2.5}, {"temperature": -1.0}, *({"bootstrap_share": share} for share in (0.0, -0.5, 1.5))],
)
def test_what_makes_no_sense_is_refused(settings):
    with pytest.raises(SadqError, match=f"Agreement: {next(iter(settings))} = "):
        Agreement(**settings)
