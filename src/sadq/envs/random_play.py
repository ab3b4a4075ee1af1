"""Episodes of random legal actions in any environment, and the range of returns that they suggest."""

import itertools
from typing import Any, NamedTuple

import numpy as np

from sadq.envs.atari.environments import AtariEnvironments
from sadq.envs.atari.spec import AtariSpec
from sadq.envs.base import Environment
from sadq.envs.contract import HostSpec
from sadq.envs.fixed_policies import discounted, step_by_step, uniform
from sadq.envs.group import EVALUATE, IDLE, LONGEST_EPISODE
from sadq.envs.host import HostEnvironments
from sadq.errors import SadqError

SIDE_BY_SIDE = 8
"""Episodes of host environments that are played at once."""
RANGE_EPISODES, RANGE_STEPS = 16, 1000
"""What a range of returns is estimated from: so many episodes, of so many steps at most."""
WIDER = 2.0
"""How much further than random episodes a trained agent's may reach, in their whole range, to either side."""


class Played(NamedTuple):
    """Episodes side by side; what follows an episode's end is not part of it."""

    rewards: np.ndarray  # f64[episodes, steps], zero after the end
    running: np.ndarray  # bool[episodes, steps]
    measures: dict[str, np.ndarray]  # each [episodes]


def play_randomly(spec: HostSpec, episodes: int, seed: int, most: int | None = None) -> Played:
    """Episodes of a host environment, a few at a time; with `most`, cut off after so many steps."""
    environments, actions = _environments(spec, seed, min(episodes, SIDE_BY_SIDE))
    try:
        batches = [
            _batch(environments, actions, number, np.random.default_rng([seed, number]), most)
            for number in range(-(-episodes // environments.shape[1]))
        ]
    finally:
        environments.close()
    longest = max(batch.rewards.shape[1] for batch in batches)

    def joined(arrays: list[np.ndarray]) -> np.ndarray:
        padded = [np.pad(array, ((0, 0), (0, longest - array.shape[1]))) for array in arrays]
        return np.concatenate(padded)[:episodes]

    names = batches[0].measures
    measures = {name: np.concatenate([batch.measures[name] for batch in batches])[:episodes] for name in names}
    return Played(joined([batch.rewards for batch in batches]), joined([batch.running for batch in batches]), measures)


def estimated_range(
    environment: Environment | HostSpec, discount: float, learned: Any, seed: int = 0
) -> tuple[float, float]:
    """The least and the greatest discounted return to be expected, from what random episodes earn; `learned` of a reward.

    Trained agents do better than random ones, and some explore worse, so it is wider than what was seen: by twice its
    width to either side, but no wider than the smallest and the largest reward at every step would make it.
    """
    if isinstance(environment, AtariSpec) and len(environment.games) > 1:
        raise SadqError(
            f"{environment.name} names several games, for which no common range of returns is estimated: give "
            "return_range, the smallest and the largest discounted return."
        )
    if isinstance(environment, Environment):
        found = step_by_step(environment, uniform(environment), RANGE_EPISODES, seed)
        rewards, running = np.asarray(found.rewards, np.float64), np.asarray(found.running)
    else:
        played = play_randomly(environment, RANGE_EPISODES, seed, RANGE_STEPS)
        rewards, running = played.rewards, played.running
    rewards = np.asarray(learned(rewards.astype(np.float32)), np.float64)
    rewards = rewards * (running if rewards.ndim == 2 else running[..., None])
    returns = discounted(rewards, discount)[running]
    low, high = float(returns.min()), float(returns.max())
    if not np.isfinite([low, high]).all() or low == high == 0.0:
        raise SadqError(
            f"Random episodes of {environment.name} earn nothing, so the range of its returns cannot be estimated: give "
            "return_range, the smallest and the largest discounted return."
        )
    steps = environment.max_steps
    weight = (steps or np.inf) if discount == 1 else (1 - discount ** (steps or np.inf)) / (1 - discount)
    width = max(high - low, abs(high), abs(low)) * WIDER
    least, most = min(0.0, float(rewards.min()) * weight), max(0.0, float(rewards.max()) * weight)
    return _rounded(max(low - width, min(least, low))), _rounded(min(high + width, max(most, high)))


def _environments(spec: HostSpec, seed: int, count: int) -> tuple[Any, int]:
    """(environments of one member, the actions that it has)."""
    if not isinstance(spec, AtariSpec):
        return HostEnvironments(spec, [seed], count, 0, EVALUATE), spec.action_count
    if len(spec.games) > 1:
        raise SadqError(f"{spec.name} names {len(spec.games)} games, expected one to play at random: name one.")
    return AtariEnvironments(spec, [seed], count, purpose=EVALUATE), spec.action_counts[spec.games[0]]


def _batch(environments: Any, actions: int, number: int, random: np.random.Generator, most: int | None) -> Played:
    _, mask = environments.reset(start=number)
    running = going = np.ones(environments.shape, bool)
    rewards, ran = list[np.ndarray](), list[np.ndarray]()
    for taken in itertools.count():
        if not going.any() or taken == most:
            break
        if taken >= LONGEST_EPISODE and environments.spec.max_steps is None:
            raise SadqError(
                f"A random episode of {environments.spec.name} has not ended after {taken:,} steps, and the environment "
                "names no time limit: give max_episode_steps, or let it end its episodes."
            )
        drawn = random.random((*going.shape, actions))
        chosen = np.argmax(drawn if mask is None else np.where(mask, drawn, -1.0), axis=-1)
        step = environments.step(np.where(going, chosen, IDLE))
        rewards.append(np.where(running, step.reward, 0.0)[0])
        ran.append(running[0])
        running = running & ~(step.terminated | step.truncated)
        going = running if step.going is None else step.going
        mask = step.mask
    measures = {name: np.array(values[0]) for name, values in environments.measures().items()}
    return Played(np.stack(rewards, axis=1).astype(np.float64), np.stack(ran, axis=1), measures)


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
