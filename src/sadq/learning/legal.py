"""Which actions are legal, as one thing that is asked for: by the environment's rules, and by what a member has."""

from collections.abc import Callable

import jax.numpy as jnp

from sadq.types import Array

Legal = Callable[[Array | None], Array | None]
"""observation, or None where it is not known -> bool[A]; None: every action."""


def legal_actions(
    by_environment: Callable[[Array], Array | None], action_count: int, member_actions: Array | None
) -> Legal:
    """The environment's own mask, and for a member with fewer actions than its fleet only its first ones."""
    owned = None if member_actions is None else jnp.arange(action_count) < member_actions

    def legal(observation: Array | None) -> Array | None:
        mask = None if observation is None else by_environment(observation)
        if owned is None or mask is None:
            return owned if mask is None else mask
        return mask & owned

    return legal


def every_action(observation: Array) -> Array | None:
    """No rule: a host environment tells its mask only for states it is in, so at a predicted one all actions count."""
    return None
