"""BitFlip: turn a random bit string into a random goal, one bit a step; reward 1 on reaching it, and nothing before."""

import dataclasses

import jax
import jax.numpy as jnp

from sadq.envs.base import Environment
from sadq.errors import SadqError
from sadq.registry import typed
from sadq.types import Array, Key

MAX_BITS = 30  # a bit string is drawn as one 32-bit word


@typed
@dataclasses.dataclass(frozen=True)
class BitFlip(Environment):
    """The state is its own observation: the bits, then the goal's, as 0.0 and 1.0; action i flips bit i.

    An episode is truncated after as many steps as there are bits, which is just enough.
    """

    bits: int = 8

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= MAX_BITS:
            raise SadqError(f"BitFlip got bits={self.bits}, expected 1 to {MAX_BITS}: choose a size in that range.")

    @property
    def name(self) -> str:  # type: ignore[override]
        return "BitFlip" if self.bits == 8 else f"BitFlip-{self.bits}"

    @property
    def observation_size(self) -> int:  # type: ignore[override]
        return 2 * self.bits

    @property
    def action_count(self) -> int:  # type: ignore[override]
        return self.bits

    @property
    def max_steps(self) -> int:  # type: ignore[override]
        return self.bits

    def initial(self, key: Key) -> Array:
        start, difference = jax.random.bits(key, (2,))
        # Never zero, so the goal differs from the start, uniformly over all such goals: one draw is cheaper than two
        # `randint`s, and the remainder's bias, 2**bits / 2**32 on a few goals, is out of reach of any experiment.
        difference = 1 + difference % (2**self.bits - 1)
        codes = jnp.stack([start, start ^ difference])
        digits = (codes[:, None] >> jnp.arange(self.bits, dtype=jnp.uint32)) & 1
        return digits.reshape(-1).astype(jnp.float32)

    def transition(self, state: Array, action: Array, key: Key) -> tuple[Array, Array, Array]:
        flipped = jnp.where(jnp.arange(2 * self.bits) == action, 1.0 - state, state)
        matched = jnp.all(flipped[: self.bits] == flipped[self.bits :])
        return flipped, matched.astype(jnp.float32), matched

    def observe(self, state: Array) -> Array:
        return state
