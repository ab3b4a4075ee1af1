"""A value network: an encoder and a head."""

import equinox as eqx

from sadq.core.returns import Return
from sadq.nets.encoders import VectorEncoder
from sadq.nets.heads import ScalarHead
from sadq.types import Array


class ValueNetwork(eqx.Module):
    """The return of every action at one observation."""

    encoder: VectorEncoder
    head: ScalarHead

    def __call__(self, observation: Array, mask: Array | None = None) -> Return:
        return self.head(self.encoder(observation), mask)
