"""How many vehicles there will be inside a net at once, estimated before anything is compiled for that many."""

import math

import numpy as np

from sadq.envs.cityflow.demand import Trips
from sadq.envs.cityflow.road_network import NOWHERE, RoadNetwork

SIGNAL_SECONDS = 60.0
"""Waited before each signal on the way, where the demand can be served."""
MARGIN = 2.0
LEAST = 255


FULL_JAM = 1.25
GRID_JAM = 0.8
"""Of a jam: on generated grids each green keeps some lanes moving. The paper's grid has room for 1,244 then, and held at
most 879 after any decision of the policies here."""


def jammed(network: RoadNetwork, lanes: np.ndarray, share: float) -> int:
    """Room for so much of a jam on the given lanes, at the mean spacing of the demand."""
    flows = [flow for index, flow in enumerate(network.scenario.flows) if index not in network.left_out]
    rates = np.array([1 / flow.interval for flow in flows])
    spacings = np.array([flow.vehicle.length + flow.vehicle.min_gap for flow in flows])
    return math.ceil(network.length[lanes].sum() * rates.sum() / (rates @ spacings) * share) + 16


def most_inside(network: RoadNetwork) -> int:
    """Vehicles that fit on all lanes and links, bumper to bumper: never are there more."""
    shortest = min(kind.length for kind in network.types)
    return int(np.sum(np.floor(network.length / shortest) + 1))


def expected_inside(network: RoadNetwork, trips: Trips, steps: int) -> int:
    """Room for those inside if each took as long as at full speed with a wait at every signal, and as many again.

    Where the demand is more than the net can serve there may be more, at most `most_inside`.
    """
    if not len(trips.flow):
        return LEAST
    place = np.array([network.starts[flow][lane] for flow, lane in zip(trips.flow, trips.lane, strict=True)])
    lasting = np.ceil(_seconds_from(network)[place] / network.scenario.interval).astype(int)
    change = np.zeros(steps + 1)
    np.add.at(change, np.minimum(trips.created, steps), 1)
    np.add.at(change, np.minimum(trips.created + lasting, steps), -1)
    likely = math.ceil(MARGIN * np.cumsum(change[:steps]).max())
    return min(max(likely, LEAST), len(trips.flow), most_inside(network))


def _seconds_from(network: RoadNetwork) -> np.ndarray:
    """From each place on a way to the way's end."""
    drivable, kind = network.ways.drivable, network.ways.vehicle_type
    fastest = np.array([kind.max_speed for kind in network.types])[kind]
    seconds = network.length[drivable] / np.minimum(network.speed_limit[drivable], fastest)
    seconds += np.where(drivable >= network.lane_count, SIGNAL_SECONDS, 0.0)
    through = np.cumsum(np.where(drivable == NOWHERE, 0.0, seconds))
    ends = np.flatnonzero(drivable == NOWHERE)
    return through[ends[np.searchsorted(ends, np.arange(len(drivable)))]] - through
