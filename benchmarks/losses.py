"""Quantile Huber loss and gradient of a batch: the definition differentiated by JAX against the forms that we choose from.

    python benchmarks/losses.py

Prints JSON: milliseconds for every shape and form, each timed in turn, on the device that JAX finds.
"""

import json
import statistics
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import machine

from sadq.core.quantile_loss import pairwise, quantile_huber, target_by_target
from sadq.types import Array

SHAPES = {"qrdqn": (128, 200), "iqn": (128, 32), "qrdqn, 5 members": (5, 128, 200)}
UPDATES, REPETITIONS = 20, 15
KAPPA = 1.0

Form = Callable[[Array, Array, Array, Array], tuple[Array, Array]]


def definition(values: Array, levels: Array, targets: Array, weights: Array) -> Array:
    error = targets - values[:, None]
    size = jnp.abs(error)
    huber = jnp.where(size <= KAPPA, 0.5 * jnp.square(error), KAPPA * (size - 0.5 * KAPPA))
    return jnp.sum(jnp.abs(levels[:, None] - (error < 0)) * huber / KAPPA * weights)


def summed(form: Callable[..., tuple[Array, Array]]) -> Form:
    def loss_and_gradient(*sample: Array) -> tuple[Array, Array]:
        loss, pull = form(*sample, KAPPA)
        return jnp.sum(loss) / KAPPA, -pull / KAPPA

    return loss_and_gradient


FORMS: dict[str, Form] = {
    "definition": jax.value_and_grad(definition),
    "pairwise": summed(pairwise),
    "target_by_target": summed(target_by_target),
    "quantile_huber": jax.value_and_grad(lambda *sample: quantile_huber(*sample, KAPPA)),
}


def updates(form: Form, levels: Array, weights: Array) -> Callable[[Array, Array], tuple[Array, Array]]:
    """Gradient steps in one program, as in training: a call by itself would be mostly its dispatch."""

    def step(values: Array, targets: Array) -> tuple[Array, Array]:
        batched = form
        for _ in values.shape[:-1]:
            batched = jax.vmap(batched)
        loss, gradient = batched(values, levels, targets, weights)
        return values - 0.1 * gradient, loss

    return jax.jit(lambda values, targets: jax.lax.scan(step, values, targets))


def measure(shape: tuple[int, ...]) -> dict[str, dict[str, float]]:
    count = shape[-1]
    values = jax.random.normal(jax.random.key(0), shape)
    targets = jax.random.normal(jax.random.key(1), (UPDATES, *shape))
    levels = jnp.broadcast_to((jnp.arange(count) + 0.5) / count, shape)
    programs = {name: updates(form, levels, jnp.full(shape, 1 / count)) for name, form in FORMS.items()}
    for program in programs.values():
        jax.block_until_ready(program(values, targets))
    times: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(REPETITIONS):
        for name, program in programs.items():
            began = time.perf_counter()
            jax.block_until_ready(program(values, targets))
            times[name].append(1e3 * (time.perf_counter() - began) / UPDATES)
    return {name: {"median": statistics.median(own), "least": min(own)} for name, own in times.items()}


def main() -> None:
    before = machine.load_average()
    milliseconds = {name: measure(shape) for name, shape in SHAPES.items()}
    device = jax.devices()[0].device_kind
    described = machine.describe() | {"device": device, "load_average_before": before}
    print(json.dumps({"machine": described, "milliseconds": milliseconds}, indent=1))


if __name__ == "__main__":
    main()
