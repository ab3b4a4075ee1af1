"""Our environments among Gymnasium's: `gymnasium.make("sadq/OCloud-v0")` once `sadq` has been imported.

Importing this module registers names and loads nothing else: JAX is imported when an environment is made.
"""

from typing import TYPE_CHECKING, Any

import gymnasium

if TYPE_CHECKING:
    from sadq.envs.as_gymnasium import NativeEnvironment

ENTRY_POINTS = {"sadq/CityFlow-v0": f"{__name__}:make_cityflow", "sadq/OCloud-v0": f"{__name__}:make_ocloud"}


def register_environments() -> None:
    """Add our environments to Gymnasium's registry; a second call changes nothing."""
    for identifier, entry_point in ENTRY_POINTS.items():
        if identifier not in gymnasium.registry:
            gymnasium.register(identifier, entry_point=entry_point)


def make_cityflow(**settings: Any) -> gymnasium.Env:
    """CityFlow as a gymnasium.Env; the settings are those of `sadq.envs.cityflow.environment.make`."""
    from sadq.envs.as_gymnasium import NativeEnvironment
    from sadq.envs.cityflow.environment import CityFlow, make

    made = make(**settings)
    return NativeEnvironment(made, low=0.0) if isinstance(made, CityFlow) else made


def make_ocloud(**settings: Any) -> "NativeEnvironment":
    """O-Cloud as a gymnasium.Env; the settings are those of `sadq.envs.ocloud.make`."""
    from sadq.envs.as_gymnasium import NativeEnvironment
    from sadq.envs.ocloud import make

    return NativeEnvironment(make(**settings), low=0.0)


register_environments()
