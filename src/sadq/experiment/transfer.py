"""`--model-from RUN`: a run that begins with the dynamics models that another run has learned."""

from pathlib import Path

import jax
import numpy as np

from sadq.errors import SadqError
from sadq.experiment import checkpoint
from sadq.experiment.folder import CHECKPOINTS, RunFolder
from sadq.fleet.devices import Placement
from sadq.fleet.members import MemberState
from sadq.learning.learner import Learner

PARAMETERS = ".learner.model.parameters"


def models_of(run: Path) -> dict[str, np.ndarray]:
    """The parameters [M, ...] of a run's models at its newest checkpoint, by their path in a model."""
    RunFolder.open(run)  # says what is wrong with it
    saved = checkpoint.latest(run / CHECKPOINTS)
    if saved is None:
        raise SadqError(f"--model-from {run} has no checkpoint, so no model: give a run that has been saved.")
    _, tensors, _ = checkpoint.load(saved)
    learned = {name.removeprefix(PARAMETERS): leaf for name, leaf in tensors.items() if name.startswith(PARAMETERS)}
    if not learned:
        raise SadqError(f"--model-from {run} is a run without a model: give one of an agent with +sadq.")
    return learned


def check(run: Path, learner: Learner) -> None:
    """Refuse a run whose models are not of a learner's kind, before anything is written."""
    found = models_of(run)
    assert learner.guidance is not None  # the config's own check
    expected = jax.eval_shape(learner.guidance.make_model, jax.random.key(0))
    places, _ = jax.tree_util.tree_flatten_with_path(expected)
    kinds = {jax.tree_util.keystr(path): (str(leaf.dtype), leaf.shape) for path, leaf in places}
    if kinds != {name: (str(leaf.dtype), leaf.shape[1:]) for name, leaf in found.items()}:
        advice = "give a run on the same environment with the same `model` settings"
        raise SadqError(f"--model-from {run} has models of another shape than this run's: {advice}.")


def with_models_of(run: Path, state: MemberState, placement: Placement) -> MemberState:
    """The state with another run's models, its members' in turn; their optimiser begins anew."""
    assert state.learner.model is not None
    turns = np.arange(placement.members)
    dealt = {name: leaf[turns % leaf.shape[0]] for name, leaf in models_of(run).items()}
    models = checkpoint.fill(state.learner.model.parameters, dealt, run, placement.padded)
    return state._replace(learner=state.learner._replace(model=state.learner.model._replace(parameters=models)))
