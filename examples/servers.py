"""One small network that values every server of O-Cloud, in place of a network with an output for each.

    cd examples
    sadq train ocloud double --import servers --encoder servers --head servers …

Servers are alike: what makes a server good for a task does not depend on its number. The encoder gives each a row of
features, from the task, the server and the mean of all servers; the head values every row by the same weights. So one
decision teaches something about all of them, and numbering them anew changes nothing.
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp

from sadq import keys
from sadq.axes import ENCODERS, HEADS
from sadq.core import ScalarReturn
from sadq.networks import Head
from sadq.networks.layers import Linear
from sadq.registry import at_least

TASK, OF_SERVER = 3, 4
"""Numbers of the arriving task, and of each server, in O-Cloud's observation."""


@ENCODERS.register("servers")
@dataclass(frozen=True)
class Servers:
    """A row of features for every server, by one network for all of them."""

    width: int = 64
    """Of both layers, and of a row."""

    def __post_init__(self):
        at_least(self, 1, "width")

    def build(self, observation_shape, key):
        alone = Linear(TASK + OF_SERVER, self.width, keys.purpose(key, "alone"))
        return ServersEncoder(alone, Linear(2 * self.width, self.width, keys.purpose(key, "among others")))


class ServersEncoder(eqx.Module):
    alone: Linear
    among_others: Linear

    def __call__(self, observation):
        # Shares of a server are at most 1, but seconds, queues and penalties go into the thousands.
        observation = jnp.log1p(jnp.maximum(observation.astype(jnp.float32), 0))
        servers = observation[TASK:].reshape(OF_SERVER, -1).T
        tasks = jnp.broadcast_to(observation[:TASK], (len(servers), TASK))
        rows = jax.nn.relu(self.alone(jnp.concatenate([tasks, servers], axis=1)))
        mean = jnp.broadcast_to(rows.mean(axis=0), rows.shape)
        return jax.nn.relu(self.among_others(jnp.concatenate([rows, mean], axis=1))).reshape(-1)


@HEADS.register("servers")
@dataclass(frozen=True)
class Shared:
    """A state's value, from the mean of all rows, and what each server is better by, from its own."""

    def build(self, shape, key):
        width = shape.features // shape.actions
        sizes = {"hidden": 2 * width, "value": 1, "advantage": 1}
        return SharedHead(*(Linear(width, size, keys.purpose(key, name)) for name, size in sizes.items()))


class SharedHead(Head):
    hidden: Linear
    value: Linear
    advantage: Linear

    def __call__(self, features, mask=None):
        rows = jax.nn.relu(self.hidden(features.reshape(-1, self.hidden.weight.shape[0])))
        for_value, for_advantage = jnp.split(rows, 2, axis=1)
        advantage = self.advantage.precise(for_advantage)[:, 0]
        return ScalarReturn(self.value.precise(for_value.mean(axis=0)) + advantage - advantage.mean())
