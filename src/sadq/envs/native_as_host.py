"""A native environment behind the interface of host environments, as the loop over these and its tests need it."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sadq import keys
from sadq.envs import base
from sadq.envs.base import Environment, Timed
from sadq.envs.group import HostStep, SavedState, checked_actions, checked_shape
from sadq.errors import SadqError
from sadq.types import Array, Key


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
        members, count = checked_shape(environment.name, seeds, environments)
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
        self.send(actions)
        return self.receive()

    def send(self, actions: np.ndarray) -> None:
        """Begin a step: its actions, for `receive` to give what comes of them."""
        self._started()
        self._actions = checked_actions(self, actions).astype(np.int32)

    def receive(self) -> HostStep:
        """What came of the actions that were sent."""
        timed = self._started()
        self._timed, step = self._advance(timed, self._actions, self._step, self._reset_keys, self._transition_keys)
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

    def measures(self) -> dict[str, np.ndarray]:
        """Nothing beside the returns."""
        return {}

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
