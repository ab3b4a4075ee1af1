"""Theorem 1 on tabular MDPs, computed with the library's own rule and scores: what holds, and what does not."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sadq.core import Prediction, ScalarReturn, greedy, guided, rollout_scores

STATES, ACTIONS = 4, 3
DISCOUNT, ALPHA = 0.9, 0.25


class Mdp(NamedTuple):
    """Expected rewards and transition probabilities."""

    rewards: np.ndarray  # f64[S,A]
    transitions: np.ndarray  # f64[S,A,S]


def random_mdp(seed: int, deterministic: bool = False) -> Mdp:
    generator = np.random.default_rng(seed)
    rewards = generator.normal(size=(STATES, ACTIONS))
    if deterministic:
        return Mdp(rewards, np.eye(STATES)[generator.integers(STATES, size=(STATES, ACTIONS))])
    return Mdp(rewards, generator.dirichlet(np.full(STATES, 0.3), size=(STATES, ACTIONS)))


def random_q(seed: int) -> np.ndarray:
    return np.random.default_rng(1000 + seed).normal(scale=5, size=(STATES, ACTIONS))


def standard(mdp: Mdp, q: np.ndarray, discount: float = DISCOUNT) -> np.ndarray:
    """T_std Q, which is also T* Q; in NumPy, so that it shares no code with the mixed operator."""
    return mdp.rewards + discount * mdp.transitions @ q.max(axis=1)


def optimal(mdp: Mdp, discount: float = DISCOUNT) -> np.ndarray:
    q = np.zeros_like(mdp.rewards)
    for _ in range(400):
        q = standard(mdp, q, discount)
    return q


@jax.jit
def mixed(mdp: Mdp, q: jax.Array, scores: jax.Array, discount: float = DISCOUNT) -> jax.Array:
    """T_mix Q for given scores of every state's actions."""

    def value(values: jax.Array, score: jax.Array) -> jax.Array:
        return ScalarReturn(values).under(guided(greedy(values, values), score, ALPHA)).mean

    values = jnp.asarray(mdp.transitions) @ jax.vmap(value)(q, scores)
    return ScalarReturn(values).backup(jnp.asarray(mdp.rewards), jnp.asarray(discount)).mean


@jax.jit
def expected_scores(mdp: Mdp, q: jax.Array, discount: float = DISCOUNT) -> jax.Array:
    """Scores of the true model in expectation: its prediction is the distribution of s'' itself."""

    def step(state: jax.Array, action: jax.Array, key: jax.Array) -> Prediction:
        return Prediction(mdp.rewards[state, action], mdp.transitions[state, action])

    def value_of(distribution: jax.Array) -> jax.Array:
        return jnp.dot(distribution, jnp.max(q, axis=1))[None]

    def scores(state: jax.Array) -> jax.Array:
        return rollout_scores(step, value_of, state, q.shape[1], jax.random.key(0), discount=discount)

    return jax.vmap(scores)(jnp.arange(q.shape[0]))


def sampled_scores(mdp: Mdp, q: jax.Array, key: jax.Array, discount: float = DISCOUNT, samples: int = 1) -> jax.Array:
    """Scores of the true model from sampled successors, as the agent computes them."""
    transitions, rewards = jnp.asarray(mdp.transitions), jnp.asarray(mdp.rewards)

    def step(state: jax.Array, action: jax.Array, key: jax.Array) -> Prediction:
        successor = jax.random.categorical(key, jnp.log(transitions[state, action]))
        return Prediction(rewards[state, action], successor)

    def scores(state: jax.Array) -> jax.Array:
        own_key = jax.random.fold_in(key, state)
        options: dict[str, Any] = {"discount": discount, "samples": samples}
        return rollout_scores(step, jnp.asarray(q).__getitem__, state, q.shape[1], own_key, **options)

    return jax.vmap(scores)(jnp.arange(q.shape[0]))


@jax.jit
def mixed_with_one_sample(mdp: Mdp, q: jax.Array, keys: jax.Array, discount: float = DISCOUNT) -> jax.Array:
    """T_mix Q with one sampled successor per action, for each of the keys."""
    return jax.vmap(lambda key: mixed(mdp, q, sampled_scores(mdp, q, key, discount), discount))(keys)


def draws(count: int) -> jax.Array:
    """Keys of so many independent draws of successors."""
    return jax.random.split(jax.random.key(0), count)


def measure(mdps: int, keys: int = 64) -> list[dict[str, Any]]:
    """Every claim with what was found on so many random MDPs: the largest deviation, and whether it holds."""
    largest: dict[str, float] = {}

    def see(name: str, value: Any) -> None:
        largest[name] = max(largest.get(name, -np.inf), float(np.max(value)))

    with jax.enable_x64(True):  # in float32 a violated equality could hide behind rounding
        for seed in range(mdps):
            mdp, still, q = random_mdp(seed), random_mdp(seed, deterministic=True), random_q(seed)
            best, calm = optimal(mdp), optimal(still)
            for scores in (expected_scores(mdp, q), random_q(seed + mdps), -q):
                see("never above", np.asarray(mixed(mdp, q, scores)) - standard(mdp, q))
            see("expected", np.abs(mixed(mdp, best, expected_scores(mdp, best)) - standard(mdp, best)))
            see("deterministic", np.abs(mixed_with_one_sample(still, calm, draws(keys)) - standard(still, calm)))
            see("any values", np.abs(mixed(mdp, q, expected_scores(mdp, q)) - standard(mdp, q)))
            # In expectation over draws, so that it is the operator's own deviation and not one unlucky sample's.
            mean = np.asarray(mixed_with_one_sample(mdp, best, draws(keys))).mean(axis=0)
            see("sampled", np.abs(mean - standard(mdp, best)))
            see("range", best.max() - best.min())
    exact = 1e-8
    rows = [
        ("never above", "T_mix Q <= T_std Q pointwise, for any Q and any scores (Theorem 1, I)", "largest excess"),
        ("expected", "T_mix Q* = T* Q* with the expected score of a perfect model (Theorem 1, II)", "largest distance"),
        ("deterministic", "T_mix Q* = T* Q* with one sampled successor, deterministic dynamics", "largest distance"),
        ("sampled", "T_mix Q* = T* Q* with one sampled successor, stochastic dynamics", "largest distance of the mean"),
        ("any values", "T_mix Q = T_std Q for any Q with a perfect model (a line of the proof)", "largest distance"),
    ]
    return [
        {"claim": claim, "quantity": quantity, "found": largest[name], "holds": largest[name] <= exact, "mdps": mdps}
        | ({"largest_value_range": largest["range"]} if name == "sampled" else {})
        for name, claim, quantity in rows
    ]
