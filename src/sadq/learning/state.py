"""What a learner is given and what it changes: a member's numbers, its state, and one update's share of the replay."""

from typing import NamedTuple

from sadq import keys
from sadq.core.hearing import Record
from sadq.learning.guidance import Seen
from sadq.learning.optimiser import Trainable
from sadq.networks.network import Network
from sadq.types import Array, Key, PyTree


class Hyper(NamedTuple):
    """The numbers that may differ by member: traced, so a whole sweep is one compiled program."""

    seed: Array  # u32[]
    alpha: Array  # f32[]; 1 for a plain agent
    learning_rate: Array
    model_learning_rate: Array
    discount: Array
    epsilon_start: Array
    epsilon_end: Array
    epsilon_decay: Array
    actions: Array | None = None  # i32[]: how many of the fleet's actions this member has; None: all
    span: Array | None = None  # i32[2]: env steps where this training began and ends; None: 0, and as the learner says

    def stream(self, name: str) -> Key:
        """The member's random stream for one purpose."""
        return keys.purpose(keys.member_key(self.seed), name)


class LearnerState(NamedTuple):
    """All that learning changes, apart from the replay. Networks have the ensemble axis K on every leaf."""

    online: Trainable  # of networks
    target: Network
    model: Trainable | None  # of a dynamics model; None without SADQ
    pacing: PyTree = None  # the memory of what paces its updates; None where every slot has one
    statistics: PyTree = None  # of what was seen, see `normalising.py`; None where observations are taken as they are
    record: Record | None = None  # of what may earn the model a hearing; None where it has one anyway


class Phase(NamedTuple):
    """What stays the same during one learning phase, the updates that follow a collect."""

    hyper: Hyper
    collect: Array  # i32[]: its number
    rows: Array  # i32[]: written to the store so far
    step: Array  # i32[]: env steps of the member so far
    progress: Array  # f32[]: the share of this training that is done
    rate: Array  # f32[]: the learning rate


class Stretch(NamedTuple):
    """Some of the updates of a phase, one after the other."""

    first: Array | int
    length: int


class Known(NamedTuple):
    """What a caller that counts collects itself knows of one beforehand.

    A branch on an accelerator waits for all that was asked of it before. To make the target network a copy of the online
    one, settled, is then left to the caller too.
    """

    begun: bool  # whether anything is learned after it
    copies: bool  # whether the target network is copied then
    slots: Stretch | None = None  # of the model's updates, those that are to be made now; None: all
    updates: Stretch | None = None  # likewise of the values'


class Update(NamedTuple):
    """One value update's share of the replay."""

    key: Key
    seen: Seen
    weight: Array  # f32[B]: replay's
    heard: Array | None  # bool[B, K]: which networks of an ensemble learn from which sample; None: all from all
