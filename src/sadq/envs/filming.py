"""Pictures that a Gymnasium environment renders while an episode is played, and the animation that they make."""

import io
from collections.abc import Callable
from typing import Any

import numpy as np

from sadq.envs import contract
from sadq.envs.contract import HostSpec
from sadq.envs.group import EVALUATE, Slot, episode_seed
from sadq.envs.limits import rendering
from sadq.errors import SadqError

GIF = ".gif"
FRAMES_PER_SECOND = 30
"""Where an environment names none."""
FASTEST = 50
"""Frames a second that browsers show; they slow down what is faster."""

HostPolicy = Callable[[np.ndarray, np.ndarray | None, int], int]
"""(observation [*observation_shape], legal actions bool[A] or None, step) -> the number of an action."""


def check_renders(spec: HostSpec) -> None:
    """Refuse, before anything is played, an environment that renders no pictures."""
    frames_of(spec, 0, 0, lambda *_: 0, most=0)


def frames_of(spec: HostSpec, seed: int, number: int, policy: HostPolicy, most: int) -> tuple[list[np.ndarray], float]:
    """(pictures u8[rows, columns, 3] of episode `number`, of its first steps where there are more, how many a second)."""
    environment = contract.build(spec.name, rendering(spec).maker)
    try:
        first = episode_seed(Slot(seed, 0), EVALUATE, number)
        seen, info = contract.checked_reset(spec, contract.call_reset(spec, environment, first))
        frames, over = [_picture(spec, environment)], False
        mask = contract.checked_mask(spec, environment, "reset", info)
        while not over and len(frames) <= most:
            observation = contract.finite(spec, "step", contract.rows(spec, 1, seen))[0]
            action = policy(observation, mask, len(frames) - 1)
            result = contract.call_step(spec, environment, action)
            seen, _, terminated, truncated, info = contract.checked_step(spec, result)
            mask = contract.checked_mask(spec, environment, "step", info, final=terminated)
            frames.append(_picture(spec, environment))
            over = terminated or truncated
        return frames, float((environment.metadata or {}).get("render_fps") or FRAMES_PER_SECOND)
    finally:
        contract.close(spec.name, environment)


def animation(frames: list[np.ndarray], frames_per_second: float) -> bytes:
    """The content of a GIF; of more frames a second than are shown some are left out."""
    from PIL import Image

    every = max(1, round(frames_per_second / FASTEST))
    pictures = [Image.fromarray(frame) for frame in frames[::every]]
    content = io.BytesIO()
    duration = round(1000 * every / frames_per_second)
    pictures[0].save(content, "gif", save_all=True, append_images=pictures[1:], duration=duration, loop=0)
    return content.getvalue()


def _picture(spec: HostSpec, environment: Any) -> np.ndarray:
    if environment.render_mode != "rgb_array":
        raise SadqError(
            f"environment {spec.name} has render_mode {environment.render_mode!r}, expected 'rgb_array' to be filmed: make "
            "it with that, or leave video out."
        )
    try:
        picture = np.asarray(environment.render())
    except Exception as error:
        raise SadqError(f"environment {spec.name} cannot be filmed: {contract.one_line(error)}") from error
    if picture.ndim != 3 or picture.shape[2] != 3 or not picture.size or picture.dtype != np.uint8:
        raise SadqError(
            f"environment {spec.name} rendered an array of shape {picture.shape} and type {picture.dtype}, expected a "
            "picture of bytes, (rows, columns, 3): fix its render, or leave video out."
        )
    return picture.copy()  # for some paint over what they gave before
