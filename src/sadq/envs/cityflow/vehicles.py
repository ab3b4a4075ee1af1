"""The vehicles inside the net as columns over slots, and the line of them on every drivable."""

from typing import NamedTuple

import numpy as np

from sadq.types import Array

ON_LANE = int(np.iinfo(np.int32).max)


class Vehicles(NamedTuple):
    """Vehicle slots, [V]. The last one stays empty: it is the "nobody" that a slot number can point to."""

    place: Array  # position on its way; `Sizes.nowhere` for an empty slot
    previous: Array  # place before its last move
    distance: Array  # of its front from the start of the drivable
    speed: Array
    leader: Array  # slot of the vehicle before it on the same drivable
    follower: Array  # slot of the vehicle behind it on the same drivable
    blocker: Array  # slot of the vehicle that it yielded to in the last step
    link_time: Array  # step at which it entered its link; `ON_LANE` on a lane
    priority: Array
    trip: Array
    traits: Array  # these three are what its place says, copied when it gets there
    drivable_length: Array
    top_speed: Array

    @property
    def nobody(self) -> int:
        return len(self.place) - 1


class Lists(NamedTuple):
    """The ends of every drivable's line of vehicles, and the empty slots."""

    head: Array  # i32[drivables + 1] slot of the first vehicle
    tail: Array  # i32[drivables + 1] slot of the last vehicle
    free: Array  # i32[V] a stack of empty slots
    free_count: Array  # i32[]
