"""Metrics on their way out of a scan: each under its own name, whatever the order."""

import jax
import jax.numpy as jnp
import numpy as np

from sadq.learning.metrics import means, scan_with_metrics


def body(carry, step):
    return carry + step, {"sum": carry + step, "twice": 2.0 * step}


def test_metrics_keep_their_names_and_their_order_in_time():
    carry, found = jax.jit(lambda: scan_with_metrics(body, jnp.float32(1), jnp.arange(4.0)))()
    assert carry == 7 and list(found) == ["sum", "twice"]
    np.testing.assert_array_equal(found["sum"], [1, 2, 4, 7])
    np.testing.assert_array_equal(found["twice"], [0, 2, 4, 6])


def test_metrics_of_samples_keep_their_axis():
    _, found = scan_with_metrics(lambda carry, step: (carry, {"a": step, "b": -step}), None, jnp.ones((3, 5)))
    assert found["a"].shape == (3, 5)
    np.testing.assert_array_equal(found["b"], -found["a"])


def test_means_are_over_everything():
    found = means({"a": jnp.arange(6.0).reshape(2, 3), "b": jnp.full((2, 3), 7.0)})
    assert list(found) == ["a", "b"] and found["a"] == 2.5 and found["b"] == 7
