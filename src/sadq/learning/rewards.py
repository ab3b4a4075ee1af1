"""What is learned of a reward: itself, or so much of it that it is of a size that a network learns well."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True)
class Rewards:
    """A reward is multiplied, then cut off. Evaluations tell returns of the environment's own rewards all the same."""

    scale: float = 1.0
    clip: float | None = None

    @property
    def plain(self) -> bool:
        return self.scale == 1.0 and self.clip is None

    def learned(self, reward: Any) -> Any:
        """Of rewards of any shape, NumPy's or JAX's."""
        if self.plain:
            return reward
        scaled = reward * np.float32(self.scale)
        if self.clip is None:
            return scaled
        library = np if isinstance(reward, np.ndarray) else jnp
        return library.clip(scaled, -np.float32(self.clip), np.float32(self.clip))
