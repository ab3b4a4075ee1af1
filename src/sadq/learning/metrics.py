"""Scans that report named numbers, packed into one array on the way: one write per step rather than one per name."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from sadq.types import Metrics, PyTree


def scan_with_metrics(
    body: Callable[[PyTree, PyTree], tuple[PyTree, Metrics]], carry: PyTree, inputs: PyTree
) -> tuple[PyTree, Metrics]:
    """`jax.lax.scan` for a body whose output is metrics of one shape and type: name -> [steps, ...]."""
    names: list[str] = []

    def packed(carry: PyTree, step_input: PyTree) -> tuple[PyTree, jax.Array]:
        carry, metrics = body(carry, step_input)
        names[:] = metrics  # known once the body has been traced, which is before the scan returns
        return carry, jnp.stack(list(metrics.values()))

    carry, values = jax.lax.scan(packed, carry, inputs)
    return carry, {name: values[:, place] for place, name in enumerate(names)}


def means(measured: Metrics, known: Callable[..., jax.Array] = jnp.mean) -> Metrics:
    """The mean of every metric over updates and samples, taken once per collect rather than once per update.

    `known` is `jnp.nanmean` where some updates are left out, and so have nothing to report.
    """
    averages = known(jnp.stack(list(measured.values())).reshape(len(measured), -1), axis=1)
    return dict(zip(measured, averages, strict=True))
