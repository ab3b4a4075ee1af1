"""A run that begins with another run's models: which member gets which, what else it keeps, and what is refused."""

import dataclasses

import jax
import numpy as np
import pytest
from tiny_runs import TINY

from sadq.dynamics import Gaussian
from sadq.errors import SadqError
from sadq.experiment import checkpoint, transfer
from sadq.experiment.folder import CHECKPOINTS
from sadq.experiment.opening import create
from sadq.experiment.run import Experiment


def begun(**changes) -> Experiment:
    experiment = create(dataclasses.replace(TINY, **changes), None)
    experiment.begin()
    return experiment


def test_members_get_the_models_in_turn_and_nothing_else_changes(whole):
    fresh, taken = (begun(seeds=(5, 6, 7), **more) for more in ({}, {"model_from": str(whole)}))
    _, tensors, _ = checkpoint.load(checkpoint.latest(whole / CHECKPOINTS))
    dealt = checkpoint.named_leaves(taken.state.learner.model.parameters)
    assert dealt
    for name, leaf in dealt.items():
        learned = tensors[f"{transfer.PARAMETERS}{name}"]
        np.testing.assert_array_equal(leaf, learned[[0, 1, 0]])
        assert not np.array_equal(leaf[0], leaf[1])
    untouched = fresh.state.learner.model
    kept = taken.state._replace(
        learner=taken.state.learner._replace(model=taken.state.learner.model._replace(parameters=untouched.parameters))
    )
    for one, other in zip(jax.tree.leaves(kept), jax.tree.leaves(fresh.state), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model": Gaussian(hidden=(9,))}, "models of another shape.*same environment"),
        ({"environment": "BitFlip-4"}, "models of another shape"),
        ({"agent": "dueling", "alpha": None}, "dueling is a plain agent that has no model"),
    ],
)
def test_models_that_do_not_fit_are_refused_before_anything_is_written(whole, tmp_path, changes, sentence):
    with pytest.raises(SadqError, match=sentence):
        create(dataclasses.replace(TINY, model_from=str(whole), **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_that_has_no_model_is_refused(whole, tmp_path):
    with pytest.raises(SadqError, match="no run folder"):
        create(dataclasses.replace(TINY, model_from=str(tmp_path)), None)
    unsaved = tmp_path / "unsaved"
    create(TINY, unsaved)
    with pytest.raises(SadqError, match="has no checkpoint"):
        create(dataclasses.replace(TINY, model_from=str(unsaved)), None)
    plain = create(dataclasses.replace(TINY, agent="dueling", alpha=None), tmp_path / "plain")
    plain.begin()
    plain.save(plain.folder)
    plain.close()
    with pytest.raises(SadqError, match="is a run without a model"):
        create(dataclasses.replace(TINY, model_from=str(tmp_path / "plain")), None)
