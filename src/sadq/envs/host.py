"""A fleet of host environments, M members times E, without autoreset: NumPy in, NumPy out."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sadq import keys
from sadq.envs import base
from sadq.envs import workers as processes
from sadq.envs.base import Environment, Timed
from sadq.envs.contract import HostSpec
from sadq.envs.group import IDLE, EnvironmentGroup, HostStep, Slot
from sadq.errors import SadqError
from sadq.types import Array, Key

__all__ = ["HostEnvironments", "HostSpec", "HostStep", "NativeAsHost"]

SavedState = dict[str, np.ndarray]


class HostEnvironments:
    """E Gymnasium environments for each of M members, in this process or in workers, with the same results.

    Every episode is seeded from (member seed, purpose, environment, episode number), so a fleet's randomness does not
    depend on its other members, and resuming replays no more than the current episodes.
    """

    def __init__(
        self,
        spec: HostSpec,
        seeds: Sequence[int],
        environments: int,
        workers: int | str = "auto",
        purpose: str = "collect",
    ):
        self.spec = spec
        self.name = spec.name
        self.observation_shape = spec.observation_shape
        self.observation_dtype = spec.observation_dtype
        self.action_count = spec.action_count
        self.max_steps = spec.max_steps
        self.has_masks = spec.has_masks
        self.shape = _shape(spec.name, seeds, environments)  # (M, E)
        self.exact_resume = True
        """Whether the last `restore` reached just the observations that were saved."""
        slots = [Slot(int(seed), index) for seed in seeds for index in range(environments)]
        self.workers = processes.resolve(workers, spec, len(slots))
        self._runner: EnvironmentGroup | processes.WorkerPool
        if self.workers:
            self._runner = processes.WorkerPool(spec, slots, purpose, self.workers)
        else:
            self._runner = EnvironmentGroup(spec, slots, purpose)
        count = len(slots)
        self._episodes = np.zeros(count, np.int64)
        self._lengths = np.zeros(count, np.int64)
        self._actions = np.zeros((count, 64), np.int32)  # of the current episodes; grows with the longest
        self._observations: np.ndarray | None = None

    def reset(self, start: int = 0) -> tuple[np.ndarray, np.ndarray | None]:
        """Begin episode number `start` everywhere: (observations [M, E, *shape], masks bool[M, E, A] or None)."""
        self._episodes[:] = start
        self._lengths[:] = 0
        observations, masks = self._runner.reset(self._episodes)
        return self._current(observations, masks)

    def step(self, actions: np.ndarray) -> HostStep:
        """Take actions i32[M, E]; environments whose episode ends begin their next one right away.

        The action IDLE leaves an environment alone; it must be reset before it is stepped again.
        """
        if self._observations is None:
            raise SadqError(f"environment {self.name} was stepped before it was reset: call reset or restore first.")
        flat = _checked_actions(self, actions).reshape(-1)
        step = self._runner.step(flat)
        self._record(flat, step.terminated | step.truncated)
        self._observations = step.observation
        parts: list[Any] = [None if part is None else part.reshape(self.shape + part.shape[1:]) for part in step]
        return HostStep(*parts)

    def state(self) -> SavedState:
        """What `restore` needs: which episodes are under way, the actions taken in them, and where these led."""
        if self._observations is None:
            raise SadqError(f"environment {self.name} has no state before it was reset: call reset first.")
        taken = np.arange(self._actions.shape[1]) < self._lengths[:, None]
        return {
            "episodes": self._episodes.reshape(self.shape).copy(),
            "lengths": self._lengths.reshape(self.shape).copy(),
            "actions": self._actions[taken],  # of one environment after another
            "observations": self._observations.reshape(self.shape + self.observation_shape).copy(),
        }

    def restore(self, state: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray | None]:
        """Replay the episodes of a saved state: (observations, masks) to go on from, and `exact_resume` is set."""
        missing = {"episodes", "lengths", "actions", "observations"} - state.keys()
        if missing:
            raise SadqError(
                f"the saved state of environment {self.name} lacks {', '.join(sorted(missing))}: it does not belong to "
                "this run; restore one that was saved with this environment."
            )
        episodes, lengths, actions = state["episodes"], state["lengths"], state["actions"]
        expected = self.shape + self.observation_shape
        if state["observations"].shape != expected or int(lengths.sum()) != len(actions):
            raise SadqError(
                f"the saved state of environment {self.name} has observations of shape {state['observations'].shape}, "
                f"expected {expected}: restore it with the seeds and environments that it was saved with."
            )
        self._episodes = episodes.reshape(-1).astype(np.int64)
        self._lengths = lengths.reshape(-1).astype(np.int64)
        self._actions = np.zeros((len(self._lengths), max(64, int(self._lengths.max()))), np.int32)
        self._actions[np.arange(self._actions.shape[1]) < self._lengths[:, None]] = actions
        observations, masks, ended = self._runner.replay(self._episodes, self._lengths, actions)
        self._episodes += ended
        self._lengths[ended] = 0
        observations, masks = self._current(observations, masks)
        self.exact_resume = not ended.any() and np.array_equal(observations, state["observations"])
        return observations, masks

    def close(self) -> None:
        """Close the environments and end their workers."""
        self._runner.close()

    def _current(self, observations: np.ndarray, masks: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
        self._observations = observations
        seen = observations.reshape(self.shape + self.observation_shape)
        return seen, None if masks is None else masks.reshape(*self.shape, -1)

    def _record(self, actions: np.ndarray, finished: np.ndarray) -> None:
        if self._lengths.max() == self._actions.shape[1]:
            self._actions = np.concatenate([self._actions, np.zeros_like(self._actions)], axis=1)
        self._actions[np.arange(len(actions)), self._lengths] = actions
        self._lengths += 1
        self._lengths[finished] = 0
        self._episodes += finished


class NativeAsHost:
    """A native environment behind the interface of `HostEnvironments`, with the random keys of the compiled loop.

    With root the member's key, environment e begins its first episode with the key at (0, e) of root's "reset" stream,
    takes vector step t with the key at (t, e) of its "transition" stream, and an episode begun after step t takes the
    key at (t + 1, e) of "reset". A purpose other than "collect" descends from root's stream of that name instead. Where
    environments hold N actors, E here counts lanes: the actors of the first environment, then those of the next.
    """

    def __init__(
        self,
        environment: Environment,
        seeds: Sequence[int],
        environments: int,
        workers: int | str = 0,
        purpose: str = "collect",
    ):
        self.spec = environment
        self.name = environment.name
        self.observation_shape = environment.observation_shape
        self.observation_dtype = np.dtype(environment.observation_dtype)
        self.action_count = environment.action_count
        self.max_steps = environment.max_steps
        self.has_masks = environment.has_masks
        members, count = _shape(environment.name, seeds, environments)
        self.shape = members, count * environment.actors
        self.workers = 0
        self.exact_resume = True
        roots = [keys.member_key(int(seed)) for seed in seeds]
        if purpose != "collect":
            roots = [keys.purpose(root, purpose) for root in roots]
        streams = [(keys.purpose(root, "reset"), keys.purpose(root, "transition")) for root in roots]
        self._reset_keys = jnp.stack([reset for reset, _ in streams])
        self._transition_keys = jnp.stack([transition for _, transition in streams])
        self._step = 0
        self._timed: Timed | None = None
        self._begin = jax.jit(self._begin_traced)
        self._advance = jax.jit(self._advance_traced)
        self._view = jax.jit(self._view_traced)

    def reset(self, start: int = 0) -> tuple[np.ndarray, np.ndarray | None]:
        """Begin an episode everywhere, at step counter `start`: (observations [M, E, *shape], masks or None)."""
        self._step = start
        self._timed = self._begin(self._reset_keys, start)
        return self._seen()

    def step(self, actions: np.ndarray) -> HostStep:
        """Take actions i32[M, E]; environments whose episode ends begin their next one right away."""
        timed = self._started()
        flat = _checked_actions(self, actions).astype(np.int32)
        self._timed, step = self._advance(timed, flat, self._step, self._reset_keys, self._transition_keys)
        self._step += 1
        # Copied: JAX's own arrays come as views of memory that it may donate to a later call.
        parts: list[Any] = [None if part is None else np.array(part) for part in step]
        return HostStep(*parts)

    def state(self) -> SavedState:
        """The leaves of the environments' states, and the step counter."""
        leaves = jax.tree.leaves(self._started())
        return {"step": np.asarray(self._step)} | {f"leaf_{i}": np.array(leaf) for i, leaf in enumerate(leaves)}

    def restore(self, state: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray | None]:
        """Go on from a saved state, which is always exact: (observations, masks)."""
        like = jax.eval_shape(self._begin, self._reset_keys, 0)
        leaves, structure = jax.tree.flatten(like)
        saved = [state[f"leaf_{i}"] for i in range(len(leaves)) if f"leaf_{i}" in state]
        if [leaf.shape for leaf in saved] != [leaf.shape for leaf in leaves]:
            raise SadqError(
                f"the saved state of environment {self.name} has shapes {[leaf.shape for leaf in saved]}, expected "
                f"{[leaf.shape for leaf in leaves]}: restore it with the seeds and environments it was saved with."
            )
        self._step = int(state["step"])
        self._timed = jax.tree.unflatten(structure, [jnp.asarray(leaf) for leaf in saved])
        return self._seen()

    def close(self) -> None:
        """Nothing to close."""

    def _started(self) -> Timed:
        if self._timed is None:
            raise SadqError(f"environment {self.name} was used before it was reset: call reset or restore first.")
        return self._timed

    def _seen(self) -> tuple[np.ndarray, np.ndarray | None]:
        observations, masks = self._view(self._timed)
        return np.array(observations), None if masks is None else np.array(masks)

    def _begin_traced(self, reset_keys: Key, counter: Array) -> Timed:
        def member(key: Key) -> Timed:
            return base.reset_lanes(self.spec, self._keys_at(key, counter))[0]

        return jax.vmap(member)(reset_keys)

    def _view_traced(self, timed: Timed) -> tuple[Array, Array | None]:
        def member(timed: Timed) -> tuple[Array, Array | None]:
            observation = base.observe_lanes(self.spec, timed)
            return observation, base.legal_lanes(self.spec, observation)

        return jax.vmap(member)(timed)

    def _advance_traced(
        self, timed: Timed, actions: Array, counter: Array, reset_keys: Key, transition_keys: Key
    ) -> tuple[Timed, tuple[Any, ...]]:
        def member(timed: Timed, action: Array, fresh: Timed, key: Key) -> tuple[Timed, base.Step, Array | None]:
            reached, step = base.step_lanes(self.spec, timed, action, self._keys_at(key, counter))
            finished = base.of_environments(self.spec, step.terminated | step.truncated)

            def chosen(new: Array, old: Array) -> Array:
                return jnp.where(finished.reshape(finished.shape + (1,) * (new.ndim - 1)), new, old)

            return jax.tree.map(chosen, fresh, reached), step, base.legal_lanes(self.spec, step.observation)

        fresh = self._begin_traced(reset_keys, counter + 1)
        current, step, next_mask = jax.vmap(member)(timed, actions, fresh, transition_keys)
        observation, mask = self._view_traced(current)
        outcome = (step.reward, step.observation, step.terminated, step.truncated, next_mask, observation, mask)
        return current, outcome

    def _keys_at(self, key: Key, counter: Array) -> Key:
        """The keys of a member's environments at a step: [E]."""
        return keys.range_of(keys.at(key, counter), 0, self.shape[1] // self.spec.actors)


def _shape(name: str, seeds: Sequence[int], environments: int) -> tuple[int, int]:
    if environments < 1 or len(seeds) == 0 or any(int(seed) != seed or seed < 0 for seed in seeds):
        raise SadqError(
            f"environment {name} got seeds {list(seeds)} and {environments} environments, expected at least one of "
            "each and no negative seed: choose others."
        )
    return len(seeds), environments


def _checked_actions(environments: "HostEnvironments | NativeAsHost", actions: np.ndarray) -> np.ndarray:
    array = np.asarray(actions)
    if array.shape != environments.shape or array.dtype.kind not in "iu":
        raise SadqError(
            f"environment {environments.name} got actions of shape {array.shape} and type {array.dtype}, expected "
            f"integers of shape {environments.shape}: pass one action for each environment of each member."
        )
    if array.min() < IDLE or array.max() >= environments.action_count:
        raise SadqError(
            f"environment {environments.name} got actions from {array.min()} to {array.max()}, expected 0 to "
            f"{environments.action_count - 1}: pass legal ones."
        )
    return array
