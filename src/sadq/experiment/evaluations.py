"""Evaluations of a run under way: of environments outside JAX beside its training, on a snapshot of the networks."""

import math
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sadq.envs.base import Environment
from sadq.errors import SadqError
from sadq.experiment.folder import RunFolder
from sadq.fleet.members import Evaluation, Loop, MemberState


class Evaluations:
    """As many evaluations at a time as the loop allows; their rows are written in the order in which they began."""

    def __init__(self, environment: Any, folder: RunFolder):
        self.environment, self.folder = environment, folder
        self.troubled: dict[int, tuple[int, str]] = {}
        """Member -> the env step of its evaluation, and why that had episodes without a return: for who asks to take."""
        self._pending: deque[tuple[int, Beside]] = deque()  # those under way, the oldest first

    def begin(self, loop: Loop, state: MemberState, number: int, step: int) -> None:
        """Evaluate what the state holds now, as evaluation `number`, at env step `step`."""
        while self._pending and len(self._pending) >= loop.evaluates_beside:
            self._settle_oldest()
        if not loop.evaluates_beside:
            self._record(step, loop.evaluate(state, number))
            return
        # Training goes on to change, and to give away, the memory of what is evaluated.
        online = state.learner.online
        networks = jax.tree.map(jnp.copy, online.parameters)
        learner = state.learner._replace(online=online._replace(parameters=networks), target=networks, model=None)
        snapshot = state._replace(learner=learner, replay=None, sampler=None)
        self._pending.append((step, Beside(lambda: loop.evaluate(snapshot, number))))

    def settle(self) -> None:
        """Wait for the evaluations that are under way, if any."""
        while self._pending:
            self._settle_oldest()

    def abandon(self) -> None:
        """Wait for the evaluations that are under way, and forget them."""
        while self._pending:
            self._pending.popleft()[1].join()

    def _settle_oldest(self) -> None:
        step, beside = self._pending.popleft()
        self._record(step, beside.result())

    def _record(self, step: int, found: Evaluation) -> None:
        evaluation = jax.tree.map(np.asarray, found)
        for member in np.flatnonzero(~np.isfinite(evaluation.returns).all(axis=1)).tolist():
            measures = {name: values[member] for name, values in evaluation.measures.items()}
            sentence = trouble_in(self.environment, evaluation.returns[member], measures)
            self.troubled.setdefault(member, (step, sentence))
        rows = []
        for member, returns in enumerate(evaluation.returns):
            overestimated = evaluation.predicted[member] - evaluation.discounted[member]
            measures = {name: json_number(np.mean(values[member])) for name, values in evaluation.measures.items()}
            row: dict[str, Any] = {"step": step, "member": member, "returns": list(map(_exact, returns))}
            row["lengths"] = evaluation.lengths[member].tolist()
            row["overestimation"] = json_number(np.mean(overestimated))
            rows.append(row | ({"measures": measures} if measures else {}))
        self.folder.add_evaluations(rows)


class Beside(threading.Thread):
    """A call in a thread of its own, which a process that ends waits for: a program of JAX cannot be left halfway."""

    def __init__(self, call: Callable[[], Any]):
        super().__init__()
        self._call = call
        self._answer: Any = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._answer = self._call()
        except BaseException as error:  # it is raised where the answer is asked for
            self._error = error

    def result(self) -> Any:
        """What the call answered, or its error."""
        self.join()
        if self._error is not None:
            raise self._error
        return self._answer


def trouble_in(environment: Any, returns: np.ndarray, measures: Mapping[str, np.ndarray]) -> str:
    """Why some returns [episodes] are no numbers, where the environment knows; else an error."""
    for episode in np.flatnonzero(~np.isfinite(returns)):
        of_episode = {name: float(values[episode]) for name, values in measures.items()}
        sentence = environment.trouble(of_episode) if isinstance(environment, Environment) else None
        if sentence is not None:
            return sentence
    odd = f"environment {environment.name} returned rewards that are not finite"
    raise SadqError(f"{odd}, expected numbers: fix the environment.")


def mean_return(row: dict[str, Any]) -> float:
    """Of an evaluation's row; NaN where an episode came to none."""
    return float(np.mean([math.nan if value is None else value for value in row["returns"]]))


def _exact(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def json_number(value: float) -> float | None:
    """A JSON number to single precision's six digits; None for what JSON has no number for."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
