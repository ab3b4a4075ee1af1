"""All axes in one place: what can be chosen, by the name of the config field that chooses it.

An entry of your own is a frozen dataclass under `@HEADS.register("name")` or another axis here; the built-in entries, each
beside its implementation, show what an axis asks for.
"""

from collections.abc import Iterable
from typing import Any

from sadq.core.bootstrap import BOOTSTRAPS
from sadq.core.ensembles import ENSEMBLES
from sadq.core.gates import GATES
from sadq.core.optimisers import OPTIMISERS
from sadq.core.schedules import PACINGS
from sadq.dynamics import MODELS
from sadq.exploration import DEVIATIONS, EXPLORATIONS, INTENTIONS
from sadq.networks import ENCODERS, HEADS
from sadq.registry import Axis
from sadq.replay import REPLAYS


def _by_name(*axes: Axis) -> dict[str, Axis]:
    return {axis.name: axis for axis in axes}


AXES = _by_name(
    HEADS,
    ENCODERS,
    BOOTSTRAPS,
    INTENTIONS,
    DEVIATIONS,
    EXPLORATIONS,
    REPLAYS,
    ENSEMBLES,
    GATES,
    MODELS,
    PACINGS,
    OPTIMISERS,
)


def axis_of(value: Any, names: Iterable[str] = AXES) -> str | None:
    """The first of these axes on which a name, a class or a choice is registered."""
    return next((name for name in names if value in AXES[name]), None)
