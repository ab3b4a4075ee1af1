"""Fixed policies on a native environment: their protocol, how well they do, and the range of their returns."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sadq import keys
from sadq.envs import base
from sadq.envs.base import Environment
from sadq.errors import SadqError
from sadq.types import Array, Key, PyTree

Policy = Callable[[PyTree, Array, Array, Key], Array]
"""(state, observation, step i32[], key) -> action i32[], of one environment; with N actors, theirs: i32[N]."""


class Episodes(NamedTuple):
    """Episodes side by side; what follows an episode's end is not part of it."""

    rewards: Array  # f32[episodes, steps], or [episodes, steps, N] of N actors, zero after the end
    running: Array  # bool[episodes, steps]
    measures: dict[str, Array]  # each f32[episodes], of the last state


def uniform(environment: Environment) -> Policy:
    """Any legal action, with equal probability."""

    def act(state: PyTree, observation: Array, step: Array, key: Key) -> Array:
        several = environment.actors > 1
        legal = base.legal_lanes(environment, observation) if several else environment.legal(observation)
        if legal is None:
            return jax.random.randint(key, (environment.actors,) if several else (), 0, environment.action_count)
        return jax.random.categorical(key, jnp.where(legal, 0.0, -jnp.inf))

    return act


def play(environment: Environment, policy: Policy, episodes: int, seed: int = 0) -> dict[str, Any]:
    """Returns [episodes], lengths [episodes] and measures, each [episodes], of a policy: NumPy arrays.

    Episodes begin alike for every policy, so policies can be compared episode by episode. The return of several actors
    is the sum of theirs.
    """
    played = episodes_of(environment, policy, episodes, seed)
    by_actor = np.asarray(played.rewards).sum(axis=1)
    return {
        "returns": by_actor if environment.actors == 1 else by_actor.sum(axis=1),
        "lengths": np.asarray(played.running).sum(axis=1),
        "measures": {name: np.asarray(values) for name, values in played.measures.items()},
    }


def value_support(
    environment: Environment,
    policies: dict[str, Policy],
    discount: float,
    episodes: int = 200,
    seed: int = 0,
    tail: float = 0.001,
) -> dict[str, Any]:
    """A support for categorical returns: the least and the greatest quantile of the policies' discounted returns.

    The returns are an actor's from every step on, to the end of the episode, for a value network is asked about them all;
    `tail` of them lie beyond each end. JSON data, with the quantiles of each policy.
    """
    if not policies or not 0 <= discount <= 1:
        raise SadqError(
            f"value_support got {len(policies)} policies and discount {discount}, expected at least one policy and a "
            "discount from 0 to 1."
        )
    quantiles = {}
    for name, policy in policies.items():
        played = episodes_of(environment, policy, episodes, seed)
        returns = discounted_returns(np.asarray(played.rewards, np.float64), discount)[np.asarray(played.running)]
        quantiles[name] = [float(value) for value in np.quantile(returns, [tail, 1 - tail])]
    return {
        "v_min": min(low for low, _ in quantiles.values()),
        "v_max": max(high for _, high in quantiles.values()),
        "discount": discount,
        "tail": tail,
        "episodes": episodes,
        "policies": quantiles,
    }


def episodes_of(environment: Environment, policy: Policy, episodes: int, seed: int) -> Episodes:
    """Episodes of a policy, from the starts that a seed gives."""
    if episodes < 1 or seed < 0:
        raise SadqError(f"got {episodes} episodes and seed {seed}, expected at least 1 and no negative seed.")

    def episode(key: Key) -> Episodes:
        def step(
            carry: tuple[base.Timed, Array], number: Array
        ) -> tuple[tuple[base.Timed, Array], tuple[Array, Array]]:
            timed, running = carry
            policy_key = keys.at(keys.purpose(key, "policy"), number)
            action = policy(timed.state, environment.observe(timed.state), number, policy_key)
            transition_key = keys.at(keys.purpose(key, "transition"), number)
            reached, outcome = base.step(environment, timed, jnp.asarray(action, jnp.int32), transition_key)
            timed = jax.tree.map(lambda new, old: jnp.where(running, new, old), reached, timed)
            reward = jnp.where(running, outcome.reward, 0.0)
            return (timed, running & ~(outcome.terminated | outcome.truncated)), (reward, running)

        begun = base.reset(environment, keys.purpose(key, "reset")), jnp.bool_(True)
        (timed, _), (rewards, running) = jax.lax.scan(step, begun, jnp.arange(environment.max_steps))
        return Episodes(rewards, running, environment.measures(timed.state))

    return jax.jit(jax.vmap(episode))(keys.range_of(keys.member_key(seed), 0, episodes))


def discounted_returns(rewards: np.ndarray, discount: float) -> np.ndarray:
    """The discounted return from every step on."""
    returns = np.zeros_like(rewards)
    following = np.zeros_like(rewards[:, 0])
    for step in reversed(range(rewards.shape[1])):
        following = rewards[:, step] + discount * following
        returns[:, step] = following
    return returns
