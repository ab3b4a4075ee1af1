"""What one placement is worth on O-Cloud: fixed policies by discounted return, and single decisions made otherwise.

    python benchmarks/ocloud_stakes.py

Two policies meet the same tasks, and differ in one decision or from one on; differences are paired by episode.
"""

import argparse

import jax.numpy as jnp
import numpy as np

from sadq.envs.base import Environment
from sadq.envs.fixed_policies import Policy, discounted, step_by_step
from sadq.experiment.build import resolve
from sadq.experiment.presets import preset
from sadq.types import Array, Key, PyTree

DECISION = 60  # of 200: late enough for a queue, early enough for what follows
DISCOUNTS = (0.8, 0.99, 1.0)


def single(state: PyTree, observation: Array, step: Array, key: Key) -> Array:
    """Everything on one server, what agents with flat values come near to."""
    return jnp.int32(0)


def switched(before: Policy, after: Policy, once: bool) -> Policy:
    """One policy, but at the decision looked at, or from it on, another."""

    def act(state: PyTree, observation: Array, step: Array, key: Key) -> Array:
        other = step == DECISION if once else step >= DECISION
        taken = jnp.where(other, after(state, observation, step, key), before(state, observation, step, key))
        return taken.astype(jnp.int32)

    return act


def rewards(environment: Environment, policy: Policy, episodes: int) -> np.ndarray:
    return np.asarray(step_by_step(environment, policy, episodes, seed=0).rewards, np.float64)


def told(values: np.ndarray) -> str:
    return f"{values.mean():+.4f} +- {1.96 * values.std() / values.size**0.5:.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=1024)
    episodes = parser.parse_args().episodes
    config = preset("ocloud")
    environment = resolve(config.environment, config.settings).for_evaluation()
    policies = environment.policies() | {"single": single}
    print(f"Return, and discounted return at {config.discount[0]} from the first decision on, {episodes} episodes:")
    for name, policy in policies.items():
        own = rewards(environment, policy, episodes)
        print(f"{name:16} {own.sum(axis=1).mean():8.1f} {told(discounted(own, config.discount[0])[:, 0])}")
    best = policies["best_fit"]
    pairs = {
        "all on one server, this one placed by best fit": (single, switched(single, best, once=True)),
        "all on one server, best fit from here on": (single, switched(single, best, once=False)),
        "best fit, this one onto the one server": (best, switched(best, single, once=True)),
    }
    print(f"What decision {DECISION} changes, by discount, beside the value of going on as before:")
    for name, (usual, other) in pairs.items():
        both = [rewards(environment, policy, episodes) for policy in (usual, other)]
        for discount in DISCOUNTS:
            before, after = (discounted(one, discount)[:, DECISION] for one in both)
            print(f"{name}, {discount}: {told(after - before)} of {before.mean():.2f}")


if __name__ == "__main__":
    main()
