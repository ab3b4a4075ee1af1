"""How well a model ranks actions on Atari, judged by the emulator: each action really taken, each outcome scored alike.

At states of an agent's own play the true successor of every action is known (`envs/atari/foresight.py`). Its score
r + gamma max Q'(s'') by the same target network says which action SADQ would have chosen with a perfect model. How far
from that are the model's choice, the greedy one, and a random one?
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sadq.core.rollout import Prediction
from sadq.dynamics.protocol import Space
from sadq.envs.atari.foresight import Foresight, Outcomes
from sadq.exploration.situation import best_actions, settled_values
from sadq.learning.comparing import Compared, Comparison, owned_mask
from sadq.learning.learner import Learner
from sadq.learning.state import Hyper, LearnerState
from sadq.networks.network import first_network
from sadq.types import Array, Key, Metrics, PyTree, Transition

TIE = 1e-6
"""Scores that differ by less, as a share of their size, are equally good: many actions lead to the same frame."""
RESAMPLES = 2000


class Truth(eqx.Module):
    """The emulator as a model, which encodes `Outcomes`; `ends` says whether it tells where the episode ends."""

    space: ClassVar[Space] = "observation"
    ends: bool = eqx.field(static=True)

    def encode(self, observation: PyTree) -> Outcomes:
        return observation

    def step(self, context: PyTree, action: Array, key: Key) -> Prediction:
        going_on = 1.0 - context.terminated[action] if self.ends else 1.0
        return Prediction(context.reward[action], context.reached[action], going_on)

    def loss(self, transition: Transition, key: Key, features: Callable[[Array], Array]) -> tuple[Array, Metrics]:
        return jnp.zeros(()), {}  # there is nothing to learn


class Ranked(NamedTuple):
    """What was found at N states of one member; A are the actions that its game has."""

    scores: np.ndarray  # f32[N, A]: the model's; -inf: of an action that was no candidate
    truth: np.ndarray  # f32[N, A]: of what really follows, by the formula that the model's are made with
    with_ends: np.ndarray  # f32[N, A]: and without a future where the episode ends
    advised: np.ndarray  # i32[N]: the model's choice
    greedy: np.ndarray  # i32[N]
    group: np.ndarray  # i32[N]: states of one environment are alike, those of two are not


class Judge:
    """Ranks the actions of any member of a fleet, compiled once."""

    def __init__(self, learner: Learner):
        if learner.guidance is None:
            raise TypeError("an agent without a model ranks nothing")
        guidance = learner.guidance
        exact = replace(guidance, candidates=None, samples=1)

        def look(
            target: PyTree, model: PyTree, hyper: Hyper, outcomes: Outcomes, key: Key
        ) -> tuple[Compared, Array, Array]:
            rest = first_network(target), hyper, learner.legal_for(hyper), key
            seen: Any = outcomes.observation
            advised = Comparison(guidance, *rest)(model, seen)
            truth, with_ends = (Comparison(exact, *rest)(Truth(ends), seen, outcomes) for ends in (False, True))
            return advised, truth.scores, with_ends.scores

        def act(online: PyTree, hyper: Hyper, observation: Array) -> Array:
            mask = owned_mask(learner.legal_for(hyper), observation.shape[0])
            return best_actions(settled_values(online, observation, mask), mask)

        self._look, self._act = jax.jit(look), jax.jit(act)

    def __call__(
        self, play: Foresight, state: LearnerState, hyper: Hyper, states: int, every: int, epsilon: float, key: Key
    ) -> Ranked:
        """At least `states` states, one of each game `every` so many steps of epsilon-greedy play; all are one member's."""
        assert state.model is not None
        dice = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        online, count, step = state.online.parameters, len(play.cabinets), 0
        found: list[Ranked] = []
        while len(found) * count < states:
            step += 1
            if step % every == 0:
                found.append(self.at(play.outcomes(), state, hyper, jax.random.fold_in(key, step)))
            action = np.asarray(self._act(online, hyper, play.observations))
            deviates = dice.random(count) < epsilon
            play.step(np.where(deviates, dice.integers(play.actions, size=count), action).tolist())
        return Ranked(*map(np.concatenate, zip(*found, strict=True)))

    def at(self, outcomes: Outcomes, state: LearnerState, hyper: Hyper, key: Key) -> Ranked:
        """At the states whose outcomes are given, one of each environment."""
        assert state.model is not None
        looked = self._look(state.target, state.model.parameters, hyper, outcomes, key)
        compared, truth, with_ends = jax.tree.map(np.asarray, looked)
        owned = slice(None) if hyper.actions is None else slice(int(hyper.actions))
        scores, truth, with_ends = (values[:, owned] for values in (compared.scores, truth, with_ends))
        group = np.arange(len(truth), dtype=np.int32)
        return Ranked(scores, truth, with_ends, compared.advised, compared.greedy, group)


def summary(parts: list[Ranked], seed: int = 0) -> dict[str, Any]:
    """Members of one kind in numbers, each with its 95% interval: by states as SADQ scores them, and with known ends."""
    groups = np.concatenate([part.group + 10_000 * member for member, part in enumerate(parts)])
    joined = Ranked(*map(np.concatenate, zip(*parts, strict=True)))
    found: dict[str, Any] = {"members": len(parts), "states": len(groups), "actions": joined.truth.shape[1]}
    for name, truth in (("as_scored", joined.truth), ("with_ends", joined.with_ends)):
        numbers = measured(truth, joined.advised, joined.greedy)
        found[name] = {what: interval(values, groups, seed) for what, values in numbers.items()}
    apart = joined.advised != joined.greedy
    rolled = np.isfinite(joined.scores)  # what is no candidate has no score
    error = np.abs(joined.scores - joined.truth).mean(axis=1, where=rolled)
    found["disagree"] = interval(apart * 1.0, groups, seed)
    found["score_error"] = interval(error, groups, seed)
    return found


def measured(truth: np.ndarray, advised: np.ndarray, greedy: np.ndarray) -> dict[str, np.ndarray]:
    """By state: whether a choice is among the truly best actions, and how much worse than those it is."""
    best = truth.max(axis=1)
    close = TIE * np.maximum(1.0, np.abs(best))
    state = np.arange(len(truth))
    of_model, of_greedy = truth[state, advised], truth[state, greedy]
    return {
        "model_agrees": (of_model >= best - close) * 1.0,
        "greedy_agrees": (of_greedy >= best - close) * 1.0,
        "random_agrees": (truth >= (best - close)[:, None]).mean(axis=1),
        "model_regret": best - of_model,
        "greedy_regret": best - of_greedy,
        "random_regret": best - truth.mean(axis=1),
        "gain_over_greedy": of_model - of_greedy,
        "model_better": (of_model > of_greedy + close) * 1.0,
        "model_worse": (of_model < of_greedy - close) * 1.0,
        "at_stake": np.ptp(truth, axis=1),
    }


def interval(values: np.ndarray, groups: np.ndarray, seed: int = 0) -> dict[str, float | None]:
    """The mean, and its 95% bootstrap interval over groups of values that are alike; none where there is one group."""
    _, place = np.unique(groups, return_inverse=True)
    sums, counts = np.bincount(place, values), np.bincount(place)
    mean = float(values.mean())
    if len(counts) < 2:
        return {"mean": mean, "low": None, "high": None}
    drawn = np.random.default_rng(seed).integers(len(counts), size=(RESAMPLES, len(counts)))
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return {"mean": mean, "low": float(low), "high": float(high)}
