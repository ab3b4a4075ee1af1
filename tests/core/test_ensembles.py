"""What an ensemble's disagreement is used for, by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

from sadq.core.ensembles import backup_weight, upper_confidence


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
