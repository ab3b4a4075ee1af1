"""All axes in one place: what can be chosen, by the name of the config field that chooses it.

An entry of your own is a frozen dataclass under `@HEADS.register("name")` or another axis here; the built-in entries, each
beside its implementation, show what an axis asks for.
"""

from sadq.core.bootstrap import BOOTSTRAPS
from sadq.core.ensembles import ENSEMBLES
from sadq.core.gates import GATES
from sadq.core.optimisers import OPTIMISERS
from sadq.dynamics import MODELS
from sadq.exploration import DEVIATIONS, EXPLORATIONS, INTENTIONS
from sadq.networks import ENCODERS, HEADS
from sadq.registry import Axis
from sadq.replay import REPLAYS

__all__ = [
    "AXES",
    "BOOTSTRAPS",
    "DEVIATIONS",
    "ENCODERS",
    "ENSEMBLES",
    "EXPLORATIONS",
    "GATES",
    "HEADS",
    "INTENTIONS",
    "MODELS",
    "OPTIMISERS",
    "REPLAYS",
]

AXES: dict[str, Axis] = {
    axis.name: axis
    for axis in (
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
        OPTIMISERS,
    )
}
