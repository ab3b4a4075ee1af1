"""What is left of a chunk that an error, or a second Ctrl-C, broke off after it had taken the state's memory."""

from typing import Any

import jax

from sadq.fleet.members import Loop, MemberState


def is_lost(tree: Any) -> bool:
    """Whether any of its arrays was given away to a program that gave nothing back."""
    return any(leaf.is_deleted() for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array))


def salvaged(state: MemberState, loop: Loop) -> MemberState:
    """The state with networks that can still act, if the loop has some left."""
    networks = loop.left_over() if is_lost(state) else None
    if networks is None or is_lost(networks):
        return state
    online = state.learner.online
    parameters = jax.tree.unflatten(jax.tree.structure(online.parameters), networks)
    return state._replace(learner=state.learner._replace(online=online._replace(parameters=parameters)))
