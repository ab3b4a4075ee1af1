"""A row of host environments stepped one after another, in this process or, unchanged, in a worker's."""

import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sadq.envs import contract
from sadq.envs.contract import HostSpec
from sadq.errors import SadqError

IDLE = -1
"""The action that leaves an environment alone for a step; what it answers then is zeros."""


class HostStep(NamedTuple):
    """What a batch of environments answers to its actions; leading axes [M, E], or [n] within a group."""

    reward: np.ndarray  # f32[...]
    next_observation: np.ndarray  # [..., *observation_shape], of the state really reached
    terminated: np.ndarray  # bool[...]
    truncated: np.ndarray  # bool[...], never together with `terminated`
    next_mask: np.ndarray | None  # bool[..., A]: legal actions at `next_observation`
    observation: np.ndarray  # [..., *observation_shape], to act on next: of a new episode where the last one ended
    mask: np.ndarray | None  # bool[..., A]: legal actions at `observation`


class Slot(NamedTuple):
    """One environment's place in the fleet."""

    seed: int  # of its member
    environment: int  # its index within the member


def episode_seed(slot: Slot, purpose: str, episode: int) -> int:
    """The seed of an episode: a function of where and which it is, so that it can be replayed alone."""
    sequence = np.random.SeedSequence(slot.seed, spawn_key=(zlib.crc32(purpose.encode()), slot.environment, episode))
    # Some environments keep their seed in an int32.
    return int(sequence.generate_state(1)[0] >> 1)


class EnvironmentGroup:
    """The environments of some slots; each begins its next episode as soon as one has ended."""

    def __init__(self, spec: HostSpec, slots: Sequence[Slot], purpose: str):
        self._spec = spec
        self._slots = slots
        self._purpose = purpose
        self._episodes = [0] * len(slots)
        self._environments = [contract.build(spec.name, spec.maker) for _ in slots]
        if len({id(environment) for environment in self._environments}) < len(slots):
            self.close()
            raise SadqError(
                f"the factory of environment {spec.name} returned the same object twice, expected a new environment "
                "on each call: make it inside the factory."
            )

    def reset(self, episodes: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Begin each slot's episode of the given number [n]: (observations [n, ...], masks bool[n, A])."""
        self._episodes = episodes.tolist()
        return self._begin(range(len(self._slots)))

    def step(self, actions: np.ndarray) -> HostStep:
        """Take one action [n] in each environment, but none where it is IDLE."""
        spec, count = self._spec, len(self._slots)
        raw = contract.rows(spec, count)
        rewards = np.zeros(count)
        terminated = np.zeros(count, bool)
        truncated = np.zeros(count, bool)
        next_mask = np.ones((count, spec.action_count), bool) if spec.has_masks else None
        for slot, action in enumerate(actions.tolist()):
            if action == IDLE:
                continue
            result = contract.call_step(spec, self._environments[slot], action + spec.action_start)
            raw[slot], rewards[slot], ends, truncated[slot], info = contract.checked_step(spec, result)
            terminated[slot] = ends
            legal = contract.checked_mask(spec, "step", info, final=ends)
            if next_mask is not None:
                next_mask[slot] = legal
        with np.errstate(over="ignore"):
            reward = rewards.astype(np.float32)
        next_observation = contract.finite(spec, "step", raw, reward)

        observation, mask = next_observation, next_mask
        finished = np.flatnonzero(terminated | truncated).tolist()
        if finished:
            for slot in finished:
                self._episodes[slot] += 1
            first, first_mask = self._begin(finished)
            observation = next_observation.copy()
            observation[finished] = first
            if next_mask is not None:
                mask = next_mask.copy()
                mask[finished] = first_mask
        # A time limit may fall on the very step that terminates: then there is nothing to bootstrap from.
        truncated &= ~terminated
        return HostStep(reward, next_observation, terminated, truncated, next_mask, observation, mask)

    def replay(
        self, episodes: np.ndarray, lengths: np.ndarray, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        """Begin the given episodes [n] and take their recorded actions, `lengths` [n] of them each, end to end.

        Returns (observations, masks, ended bool[n]); an environment whose episode ended before its actions did has
        begun the next one.
        """
        spec = self._spec
        observations, masks = self.reset(episodes)
        ended = np.zeros(len(self._slots), bool)
        splits = np.split(actions + spec.action_start, np.cumsum(lengths)[:-1])
        for slot, recorded in enumerate(splits):
            for action in recorded.tolist():
                result = contract.call_step(spec, self._environments[slot], action)
                observation, _, terminated, truncated, info = contract.checked_step(spec, result)
                mask = contract.checked_mask(spec, "step", info, final=terminated)
                if terminated or truncated:
                    ended[slot] = True
                    self._episodes[slot] += 1
                    break
            if ended[slot]:
                first, first_mask = self._begin([slot])
                observations[slot] = first[0]
                if masks is not None and first_mask is not None:
                    masks[slot] = first_mask[0]
            elif len(recorded):
                observations[slot] = contract.finite(spec, "step", contract.rows(spec, 1, observation))[0]
                if masks is not None:
                    masks[slot] = mask
        return observations, masks, ended

    def close(self) -> None:
        """Close every environment."""
        for environment in self._environments:
            environment.close()

    def _begin(self, slots: Sequence[int]) -> tuple[np.ndarray, np.ndarray | None]:
        spec = self._spec
        raw = contract.rows(spec, len(slots))
        masks = np.empty((len(slots), spec.action_count), bool) if spec.has_masks else None
        for row, slot in enumerate(slots):
            seed = episode_seed(self._slots[slot], self._purpose, self._episodes[slot])
            raw[row], info = contract.checked_reset(spec, contract.call_reset(spec, self._environments[slot], seed))
            legal = contract.checked_mask(spec, "reset", info)
            if masks is not None:
                masks[row] = legal
        return contract.finite(spec, "reset", raw), masks
