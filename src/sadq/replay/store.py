"""What a learner asks of a store of transitions; what it holds, and how, is its own business."""

from typing import Protocol

from sadq.types import Array, Batch, PyTree, Transition, TransitionSequence


class Store(Protocol):
    """The shape of a replay, without its contents: those are a pytree that only the store looks into.

    Transitions are written in rows, one for every lane (an environment, or an actor in one), and named by flat positions
    row * lanes + lane. A store has no counters of its own: how many rows were ever `written` is the training step, which
    all members of a fleet share, so the place to write stays one scalar under `vmap`.
    """

    @property
    def rows(self) -> int:
        """How many rows are kept."""

    @property
    def lanes(self) -> int: ...

    @property
    def steps(self) -> int:
        """n of the n-step view."""

    @property
    def nbytes(self) -> int:
        """What `init` will allocate."""

    def init(self) -> PyTree:
        """Empty contents."""

    def add(self, contents: PyTree, written: Array, collected: Transition) -> PyTree:
        """Write the rows of a collect, [T, lanes, ...], over the oldest ones; `written` counts the rows before it."""

    def one_step(self, contents: PyTree, position: Array) -> Transition:
        """The transitions at some positions."""

    def n_step(self, contents: PyTree, position: Array, discount: Array) -> Batch:
        """Their n-step view: rewards up to the episode's end or n steps, then s_{t+n}."""

    def sequence(self, contents: PyTree, position: Array, length: int, written: Array) -> TransitionSequence:
        """The `length` transitions that begin at some positions: [..., length]."""

    def terminal(self, transition: Transition) -> Array:
        """Where nothing is bootstrapped beyond s'."""

    def number(self, position: Array, written: Array) -> Array:
        """How many transitions had been stored before the ones at some positions."""
