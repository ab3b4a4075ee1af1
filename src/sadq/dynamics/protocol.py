"""What SADQ asks of a learned one-step model: `encode` a state once, `step` it with any action, and learn by a `loss`."""

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

from sadq.core.rollout import Prediction
from sadq.networks.precision import Compute
from sadq.registry import Axis
from sadq.types import Array, Key, Metrics, PyTree, Transition

MODELS = Axis("model", "the learned one-step model that guides a SADQ target", "build")

Space = Literal["observation", "features"]


class ModelShape(NamedTuple):
    """What a model is built for."""

    observation: tuple[int, ...]  # the shape of one
    actions: int
    features: int | None = None  # of the value network's encoder
    compute: Compute = "float32"  # in which precision; a model that has no use for it always computes in float32


class DynamicsModel(Protocol):
    """A pytree of parameters with these functions of one sample."""

    @property
    def space(self) -> Space:
        """What a prediction's `next_input` is: an observation, or features that the value network's head reads alone.

        The same for all predictions of a model: a class variable, or a matter of its settings.
        """

    def encode(self, observation: Array) -> PyTree:
        """The context of one state, computed once for all its actions."""

    def step(self, context: PyTree, action: Array, key: Key) -> Prediction:
        """What follows `action`."""

    def loss(self, transition: Transition, key: Key, features: Callable[[Array], Array]) -> tuple[Array, Metrics]:
        """The loss of one one-step transition, with its parts; `features` encodes as the target network does."""


class ModelChoice(Protocol):
    """An entry of the axis; by `full_byte` it may say which number stands for a byte of 255 in what it predicts."""

    def build(self, shape: ModelShape, key: Key) -> DynamicsModel:
        """A model with its initial parameters."""
