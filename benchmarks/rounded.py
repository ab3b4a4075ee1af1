"""The default with products rounded to 10 bits, as a recent GPU rounds them, on a CPU: does that change what is learned?

    .venv/bin/python benchmarks/rounded.py --environment LunarLander-v3 --seeds 5 --out benchmarks/results/zoo.json

JAX multiplies float32 so on a GPU unless it is told otherwise (TensorFloat-32). Here both factors of every layer's product
are rounded, forwards and in gradients; the rest is as `zoo.py` measures the default, into whose file the runs go.
"""

import argparse
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import machine
from measure import say, write_json
from zoo import STEPS, by_us

from sadq.networks import layers, stream

WHO = "sadq, products rounded to 10 bits"


def rounded(values: jax.Array) -> jax.Array:
    return jax.lax.reduce_precision(values, exponent_bits=8, mantissa_bits=10)


@jax.custom_vjp
def product(inputs: jax.Array, weight: jax.Array) -> jax.Array:
    return jnp.matmul(rounded(inputs), rounded(weight))


def _forward(inputs: jax.Array, weight: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return product(inputs, weight), (inputs, weight)


def _backward(factors: tuple[jax.Array, jax.Array], gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    inputs, weight = map(rounded, factors)
    slope = rounded(gradient)
    return jnp.matmul(slope, weight.T), jnp.einsum("...i,...o->io", inputs, slope)


product.defvjp(_forward, _backward)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environment", choices=list(STEPS), default="LunarLander-v3")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, required=True, help="the file of zoo.py")
    asked = parser.parse_args()
    layers.Linear.__call__ = lambda self, inputs: product(inputs, self.weight) + self.bias  # type: ignore[method-assign]
    layers.precise_product = stream.precise_product = product
    runs = by_us(asked.environment, "sadq", list(range(asked.seeds)))
    record, notes = json.loads(asked.out.read_text()), {"who": WHO, "environment": asked.environment}
    record["runs"] += [notes | {"commit": machine.commit()} | run for run in runs]
    write_json(asked.out, record)
    for run in runs:
        say(f"{WHO}, {asked.environment}, seed {run['seed']}: {run['return']:.4g}")


if __name__ == "__main__":
    main()
