"""A fleet over environments outside JAX in several squads: while one squad's environments step, another one learns.

With one environment a member there is nothing to do between its action and its answer. So the members are divided, and
every squad is a `HostLoop` in a thread of its own: waiting for an environment, or for the device, lets the others go on.
Members never communicate, so that nothing but the time depends on it.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from sadq.envs.group import Environments
from sadq.fleet.devices import Programs
from sadq.fleet.host_loop import HostLoop
from sadq.fleet.members import Evaluation, Fleet, MemberState
from sadq.learning.state import Hyper
from sadq.types import Metrics, PyTree


class SquadLoop:
    """Members that collect and learn in squads of the given `sizes`, and are evaluated together."""

    evaluates_beside: ClassVar[bool] = True

    def __init__(
        self,
        fleet: Fleet,
        hyper: Hyper,
        collects: int,
        sizes: Sequence[int],
        training: Callable[[slice], Environments],
        evaluation: Environments,
    ):
        """`training` makes the environments of the members in a place."""
        ends = np.cumsum(sizes).tolist()
        self._places = places = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
        self.squads = [
            HostLoop(fleet, jax.tree.map(lambda leaf: leaf[place], hyper), collects, training(place), evaluation)
            for place in places
        ]
        self.placement = fleet.placement(hyper.seed.shape[0])
        self._judge = HostLoop(fleet, hyper, collects, self.squads[0].training, evaluation)
        self._threads = ThreadPoolExecutor(len(sizes), "squad")
        # Apart and together again only once a chunk, for that copies the replay.
        self._apart = jax.jit(lambda state: [jax.tree.map(lambda leaf: leaf[place], state) for place in places])
        self._together = jax.jit(_joined)

    @property
    def programs(self) -> Programs:
        """With the time that the compilations of all squads took."""
        total = Programs()
        total.compile_seconds = sum(loop.programs.compile_seconds for loop in (*self.squads, self._judge))
        return total

    def start(self) -> MemberState:
        return self._together(*self._threads.map(HostLoop.start, self.squads))

    def advance(self, state: MemberState, first: int) -> tuple[MemberState, Metrics]:
        parts = self._apart(state)
        del state
        under_way = [
            self._threads.submit(squad.advance, part, first) for squad, part in zip(self.squads, parts, strict=True)
        ]
        del parts  # a squad gives its memory away as it learns
        states, metrics = zip(*(one.result() for one in under_way), strict=True)
        return self._together(*states), jax.tree.map(lambda *rows: np.concatenate(rows), *metrics)

    def evaluate(self, state: MemberState, number: int) -> Evaluation:
        return self._judge.evaluate(state, number)

    def outside(self) -> dict[str, np.ndarray]:
        return {
            f"{number}.{name}": values
            for number, squad in enumerate(self.squads)
            for name, values in squad.outside().items()
        }

    def restore(self, state: MemberState, outside: dict[str, np.ndarray]) -> bool:
        def restored(number: int) -> bool:
            prefix = f"{number}."
            own = {name.removeprefix(prefix): saved for name, saved in outside.items() if name.startswith(prefix)}
            return self.squads[number].restore(state, own)

        return all(list(self._threads.map(restored, range(len(self.squads)))))

    def follow(self, hyper: Hyper) -> None:
        for squad, place in zip(self.squads, self._places, strict=True):
            squad.follow(jax.tree.map(lambda leaf: leaf[place], hyper))
        self._judge.follow(hyper)

    def close(self) -> None:
        for squad in self.squads:
            squad.training.close()
        self._judge.evaluation.close()
        self._threads.shutdown()


def _joined(*parts: PyTree) -> PyTree:
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)
