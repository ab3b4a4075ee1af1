"""How a loop over environments outside JAX learns from its collects: after each one, or beside the next."""

import warnings
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sadq import keys
from sadq.fleet.devices import Placement, Program, Programs
from sadq.fleet.members import Fleet, MemberState
from sadq.learning.state import Hyper, Known, Stretch
from sadq.networks.network import settled
from sadq.types import Array, Metrics, PyTree, Transition


class Row:
    """What one program tells of a collect, as one array: a dozen of them would each be fetched apart."""

    def __init__(self, gaps: bool = False) -> None:
        self.gaps = gaps  # whether it may have nothing to tell
        self.names: tuple[str, ...] = ()  # known once the program has been traced

    def packed(self, metrics: Metrics) -> Array:
        self.names = tuple(metrics)
        return jnp.stack(list(metrics.values()))


class AfterEach:
    """A collect is learned from before the next one begins, as in a `ScanLoop`.

    Members are lists of leaves here, for taking them apart at every call would take long.
    """

    def __init__(self, fleet: Fleet, member: MemberState, placement: Placement, programs: Programs):
        """`member` has the shapes of one."""
        self._fleet, self._over_members, self._timed = fleet, placement.over_members, programs.timed
        self._hyper: Hyper
        self._leaves: list[Array]
        self._rows: list[list[tuple[Row, Array]]]  # of every collect
        self._structure = jax.tree.structure(member)
        self._places = jax.tree.unflatten(self._structure, range(len(jax.tree.leaves(member))))
        self._online = jax.tree.leaves(self._places.learner.online.parameters)
        self._target = jax.tree.leaves(self._places.learner.target)
        networks = jax.tree.structure(member.learner.online.parameters)

        def copied(leaves: list[Array], _: tuple[()]) -> list[Array]:
            # Copied, since both are given away later: what goes through a program unchanged would else be one array.
            return [jnp.copy(leaf) for leaf in jax.tree.leaves(settled(jax.tree.unflatten(networks, leaves)))]

        # What a collect's number decides is decided here; but a head that is refitted follows what the target copies.
        self._decides = fleet.learner.refit is None
        choices = [Known(begun, copies=False) for begun in (False, True)] if self._decides else [None]
        self._absorb = {known: self._changing(partial(self._absorbed, known)) for known in choices}
        self._copied = self._timed(self._over_members(copied))

    def begin(self, state: MemberState, hyper: Hyper) -> None:
        """A chunk begins with this state."""
        self._hyper, self._leaves, self._rows = hyper, jax.tree.leaves(state), []

    @property
    def networks(self) -> list[Array]:
        """The leaves of the networks that act in the next collect."""
        return [self._leaves[place] for place in self._online]

    def memory(self, collect: int) -> PyTree:
        """What behaviour remembers before `collect`, the number of the next one."""
        return jax.tree.map(lambda place: self._leaves[place], self._places.behaviour)

    def meanwhile(self, step: int) -> None:
        """The actions of this step of a collect are being found, and environments will be busy with them."""

    def collected(self, collect: int, transitions: Transition, memory: PyTree) -> None:
        """A collect was made; its transitions must stay as they are until the first action of the one after the next."""
        for place, leaf in zip(jax.tree.leaves(self._places.behaviour), jax.tree.leaves(memory), strict=True):
            self._leaves[place] = leaf
        self._rows.append([])
        self._learn(collect, transitions, self._knows(collect))

    def end(self) -> tuple[MemberState, Metrics]:
        """The state when the chunk is over, and the metrics of its collects, [M, collects], idle copies included."""
        leaves, self._leaves = self._leaves, []
        return jax.tree.unflatten(self._structure, leaves), self._told()

    def close(self) -> None:
        """Nothing more is to be learned."""

    def _absorbed(
        self, known: Known | None, member: MemberState, hyper: Hyper, collected: Transition, index: Array
    ) -> tuple[MemberState, Metrics]:
        return self._fleet.absorb(member, hyper, collected, index, known)

    def _knows(self, collect: int) -> Known | None:
        return self._fleet.learner.knows(collect) if self._decides else None

    def _learn(self, collect: int, transitions: Transition, known: Known | None) -> None:
        """All that follows a collect."""
        absorb = self._absorb[known and known._replace(copies=False)]
        self._change(absorb, (transitions,), collect)
        self._copy(known)

    def _copy(self, known: Known | None) -> None:
        """The target network becomes a copy of the online one where that is due."""
        if known is not None and known.copies:
            copies = self._copied([self._leaves[place] for place in self._online], ())
            for place, leaf in zip(self._target, copies, strict=True):
                self._leaves[place] = leaf

    def _changing(
        self, function: Callable[..., tuple[MemberState, Metrics]], gaps: bool = False
    ) -> tuple[Program, Row]:
        """`function(member, hyper, *inputs of members, *shared inputs)` as a program over leaves, and its row."""
        row = Row(gaps)

        def program(leaves: list[Array], inputs: PyTree, *shared: Array) -> tuple[list[Array], Array]:
            after, metrics = function(jax.tree.unflatten(self._structure, leaves), *inputs, *shared)
            return jax.tree.leaves(after), row.packed(metrics) if metrics else jnp.zeros(0)

        return self._timed(self._over_members(program, donate=True)), row

    def _change(self, changing: tuple[Program, Row], inputs: tuple[PyTree, ...], *shared: int) -> None:
        program, row = changing
        self._leaves, told = program(self._leaves, (self._hyper, *inputs), *map(np.int32, shared))
        if row.names:
            self._rows[-1].append((row, told))

    def _told(self) -> Metrics:
        """Of every collect the mean over the programs that tell a thing."""
        values = jax.device_get([[told for _, told in rows] for rows in self._rows])
        collects: list[dict[str, np.ndarray]] = []
        for rows, of_rows in zip(self._rows, values, strict=True):
            found: dict[Row, list[np.ndarray]] = {}
            for (row, _), told in zip(rows, of_rows, strict=True):
                found.setdefault(row, []).append(told)
            means = {row: _mean(told, row.gaps) for row, told in found.items()}
            collects.append({name: mean[:, at] for row, mean in means.items() for at, name in enumerate(row.names)})
        whole: dict[str, Any] = {name: np.stack([one[name] for one in collects], axis=1) for name in collects[0]}
        return whole


class BesideNext(AfterEach):
    """A collect is learned from while the next one is stepped, by whose actions the networks are then a collect older.

    In a row, the device waits while environments step, and they wait while it learns. Here a thread of its own hands the
    updates over, for that takes the host about as long as the environments need for a step. An accelerator does one thing
    after the other, so it gets them one by one, each behind the actions of a step: those of the next step then wait for one
    update rather than for all, and there is always something to do while the environments step. A CPU acts and learns at
    once, and gets them whole. When a chunk ends nothing is left to be learned.
    """

    def __init__(
        self,
        fleet: Fleet,
        member: MemberState,
        placement: Placement,
        programs: Programs,
        one_by_one: bool | None = None,
    ):
        """`one_by_one`: None for what suits the platform."""
        super().__init__(fleet, member._replace(behaviour=None), placement, programs)
        self._one_by_one = placement.mesh[0].platform != "cpu" if one_by_one is None else one_by_one
        learner, exploration = fleet.learner, fleet.exploration
        networks = jax.tree.structure(member.learner.online.parameters)

        def stored(member: MemberState, _: Hyper, collected: Transition, index: Array) -> tuple[MemberState, Metrics]:
            return fleet.stored(member, collected, index), {}

        def slot(member: MemberState, own: Hyper, index: Array, number: Array) -> tuple[MemberState, Metrics]:
            return self._learned(member, own, index, Known(True, False, slots=Stretch(number, 1), updates=nothing))

        def update(member: MemberState, own: Hyper, index: Array, number: Array) -> tuple[MemberState, Metrics]:
            return self._learned(member, own, index, Known(True, False, slots=nothing, updates=Stretch(number, 1)))

        nothing = Stretch(0, 0)
        self._store, self._slot, self._update = (
            self._changing(stored),
            self._changing(slot, True),
            self._changing(update),
        )
        self._slots = 0 if learner.guidance is None else learner.guidance.updates
        self._snapshot = self._timed(self._over_members(lambda leaves, _: [jnp.copy(leaf) for leaf in leaves]))

        def begun(inputs: PyTree, own: Hyper, index: Array) -> PyTree:
            leaves, memory = inputs
            return fleet.begun(jax.tree.unflatten(networks, leaves), own, index, memory)

        def draws(networks: PyTree, memory: PyTree) -> None:
            after = exploration.begin(networks, keys.member_key(0), memory)
            pairs = zip(jax.tree.leaves(memory), jax.tree.leaves(after), strict=True)
            self._draws = any(before is not new for before, new in pairs)

        jax.eval_shape(draws, member.learner.online.parameters, member.behaviour)
        self._begun = self._timed(self._over_members(begun))
        self._acting: list[Array]
        self._memory: PyTree
        self._hands = ThreadPoolExecutor(1, "learning")
        self._waiting: list[Callable[[], None]] = []  # the parts of what follows the last collect, in order
        self._prepared = not (self._one_by_one and self._decides)  # or there is nothing to prepare
        self._asked = 0  # how many of them were to be handed over so far
        self._handing: list[Future[None]] = []

    def _absorbed(
        self, known: Known | None, member: MemberState, hyper: Hyper, collected: Transition, index: Array
    ) -> tuple[MemberState, Metrics]:
        return self._learned(self._fleet.stored(member, collected, index), hyper, index, known)

    def _learned(
        self, member: MemberState, hyper: Hyper, index: Array, known: Known | None
    ) -> tuple[MemberState, Metrics]:
        own = member.learner, hyper, member.replay, member.sampler
        state, sampler, metrics = self._fleet.learner.learn(*own, index, known)
        return member._replace(learner=state, sampler=sampler), metrics

    def begin(self, state: MemberState, hyper: Hyper) -> None:
        super().begin(state._replace(behaviour=None), hyper)
        if not self._prepared:
            # Both at once, while the environments are stepped that nothing is learned from yet.
            for program, _ in (self._slot, self._update)[0 if self._slots else 1 :]:
                program.prepare(self._leaves, (hyper,), np.int32(0), np.int32(0))
            self._prepared = True
        self._memory, self._acting = state.behaviour, self._snapshot(super().networks, ())

    @property
    def networks(self) -> list[Array]:
        return self._acting

    def memory(self, collect: int) -> PyTree:
        if self._draws and collect > 0:
            self._memory = self._begun((self._acting, self._memory), self._hyper, np.int32(collect))
        return self._memory

    def meanwhile(self, step: int) -> None:
        due = -(-len(self._waiting) * (step + 1) // self._fleet.collect_steps)
        if due > self._asked:
            self._handing.append(self._hands.submit(_in_order, self._waiting[self._asked : due]))
            self._asked = due

    def collected(self, collect: int, transitions: Transition, memory: PyTree) -> None:
        self._finish()
        self._memory, known = memory, self._knows(collect)
        self._rows.append([])
        if known is None or not (known.begun and self._one_by_one):
            parts: list[Callable[[], None]] = [partial(self._learn, collect, transitions, known)]
        else:
            slots, updates = range(self._slots), range(self._fleet.learner.updates)
            parts = [partial(self._change, self._slot, (), collect, number) for number in slots]
            parts += [partial(self._change, self._update, (), collect, number) for number in updates]
            parts[0] = partial(_in_order, [partial(self._change, self._store, (transitions,), collect), parts[0]])
            parts[-1] = partial(_in_order, [parts[-1], partial(self._copy, known)])
        parts[-1] = partial(_in_order, [parts[-1], self._renew])
        self._waiting, self._asked = parts, 0

    def end(self) -> tuple[MemberState, Metrics]:
        self._finish()
        state, metrics = super().end()
        return state._replace(behaviour=self._memory), metrics

    def close(self) -> None:
        self._hands.shutdown(cancel_futures=True)

    def _finish(self) -> None:
        """All that follows the last collect is handed over, if not yet done; from then on this thread may go on with it."""
        self.meanwhile(self._fleet.collect_steps - 1)
        handing, self._handing = self._handing, []
        for part in handing:
            part.result()

    def _renew(self) -> None:
        self._acting = self._snapshot(super().networks, ())


def _in_order(parts: list[Callable[[], None]]) -> None:
    for part in parts:
        part()


def _mean(parts: list[np.ndarray], gaps: bool) -> np.ndarray:
    """Over the parts, or over those of them that are numbers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # no part may be one
        return (np.nanmean if gaps else np.mean)(parts, axis=0)
