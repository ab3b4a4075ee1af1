"""The default with products rounded to 10 bits, as a recent GPU rounds them, on a CPU: does that change what is learned?

    .venv/bin/python benchmarks/rounded.py --environment LunarLander-v3 --seeds 5 --out benchmarks/results/zoo.json

JAX multiplies float32 so on a GPU unless it is told otherwise (TensorFloat-32). Here both factors of every layer's product
are rounded, forwards and in gradients; the rest is as `zoo.py` measures the default, into whose file the runs go.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import machine
from measure import say, write_json
from zoo import EPISODES, STEPS

from sadq import SADQ
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
    seeds, began = list(range(asked.seeds)), time.process_time()
    model = SADQ(asked.environment, seeds=seeds, workers=0).learn(STEPS[asked.environment])
    spent = (time.process_time() - began) / asked.seeds
    record, commit = json.loads(asked.out.read_text()), machine.commit()
    for seed, member in zip(seeds, model.evaluate(EPISODES), strict=True):
        notes = {"who": WHO, "environment": asked.environment, "commit": commit, "seed": seed}
        record["runs"].append(notes | {"return": member["mean_return"], "core_seconds": spent})
        say(f"{WHO}, {asked.environment}, seed {seed}: {member['mean_return']:.4g}")
    write_json(asked.out, record)
    model.close()


if __name__ == "__main__":
    main()
