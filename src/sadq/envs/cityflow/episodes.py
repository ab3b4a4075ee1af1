"""The vehicles of an episode: when they come is the scenario's, where each starts and its priority are drawn."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sadq import keys
from sadq.envs.cityflow.demand import Demand, drawn_trips, entry_lanes
from sadq.envs.cityflow.road_network import RoadNetwork
from sadq.types import Key


class Departures(NamedTuple):
    """What is the same in every episode. N vehicles in the order of creation, F flows, C lanes to start on at most."""

    flow: np.ndarray  # i32[N]
    created: np.ndarray  # i32[N], step of the engine
    queues: int  # lanes that vehicles may start on
    options: np.ndarray  # i32[F], how many of these a flow has
    queue: np.ndarray  # i32[F, C], which
    place: np.ndarray  # i32[F, C], where the way from each begins


def departures_of(network: RoadNetwork, steps: int) -> Departures:
    """The departures of episodes that last so many steps of the engine."""
    trips, lanes = drawn_trips(network, steps), entry_lanes(network)
    most = max(map(len, network.starts), default=1)
    queue, place = (np.zeros((len(network.starts), most), np.int32) for _ in range(2))
    for flow, start in enumerate(network.starts):
        queue[flow, : len(start)] = np.searchsorted(lanes, sorted(start))
        place[flow, : len(start)] = [start[lane] for lane in sorted(start)]
    options = np.array([len(start) for start in network.starts], np.int32)
    return Departures(trips.flow.astype(np.int32), trips.created.astype(np.int32), len(lanes), options, queue, place)


def draw_demand(departures: Departures, key: Key) -> Demand:
    """An episode's vehicles: first lanes and priorities are uniform, as the engine draws them."""
    pick = jax.random.randint(keys.purpose(key, "lane"), departures.flow.shape, 0, departures.options[departures.flow])
    bits = jax.random.bits(keys.purpose(key, "priority"), departures.flow.shape, jnp.uint32)
    queue = jnp.asarray(departures.queue)[departures.flow, pick]
    order = jnp.argsort(queue, stable=True)
    ends = jnp.searchsorted(queue[order], jnp.arange(departures.queues), side="right").astype(jnp.int32)
    return Demand(
        place=jnp.asarray(departures.place)[departures.flow, pick][order],
        created=jnp.asarray(departures.created)[order],
        priority=jax.lax.bitcast_convert_type(bits, jnp.int32)[order],
        trip=order.astype(jnp.int32),
        queue_start=jnp.concatenate([jnp.zeros(1, jnp.int32), ends[:-1]]),
        queue_end=ends,
    )
