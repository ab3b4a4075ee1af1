"""Learning on frames with every kind of image model, and in bfloat16: at alpha 1 it is the base agent to the bit."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables import filled, phase_of, update_of

from sadq.dynamics import RSSM
from sadq.envs.atari import AtariSpec
from sadq.experiment.build import hyper_of, make_learner
from sadq.experiment.presets import PRESETS, preset
from sadq.learning.guidance import Seen
from sadq.learning.model_updates import model_update
from sadq.learning.optimiser import trainable
from sadq.learning.state import LearnerState
from sadq.networks import Nature, Quantile
from sadq.types import Batch, Transition
from tiny import KEY, difference

pytest.importorskip("ale_py", reason="a preset of Atari needs sadq[atari]")

MODEL = RSSM(deterministic=12, variables=2, classes=3, hidden=6, channels=(4, 4, 4), decoder=(4, 4, 4))
VARIANTS = {
    "frames": MODEL,
    "newest frame": dataclasses.replace(MODEL, newest_frame=True),
    "embedding": dataclasses.replace(MODEL, space="embedding"),
}


def frames() -> Seen:
    """Four transitions of random pixels, one of them terminal."""
    seen = jax.random.randint(KEY, (2, 4, *AtariSpec.observation_shape), 0, 256).astype(jnp.uint8)
    action, reward, ends = jnp.arange(4), jnp.array([0.0, 1.0, -1.0, 0.0]), jnp.arange(4) == 3
    batch = Batch(seen[0], action, reward, seen[1], jnp.where(ends, 0.0, 0.99))
    return Seen(batch, Transition(seen[0], action, reward, seen[1], ends, ends & False), ends)


def first_state(learner: Any, hyper: Any) -> LearnerState:
    """With weights from NumPy, for to compile the drawing of every layer takes longer than the update."""
    shapes = jax.eval_shape(learner.init, hyper)
    online, target = (
        jax.tree.map(lambda leaf: leaf / 4, filled(part, 1)) for part in (shapes.online[0], shapes.target)
    )
    model = None if shapes.model is None else trainable(jax.tree.map(lambda leaf: leaf / 4, filled(shapes.model[0], 2)))
    return LearnerState(trainable(online, online.movers()), target, model)


def updated(agent: str, alpha: float | None = None, model_learns: bool = False, **fields: Any) -> LearnerState:
    """A learner's state after a value update, and before that a model update where the model learns too."""
    config = dataclasses.replace(
        preset("atari/Breakout", agent),
        seeds=(3,),
        encoder=Nature(channels=(4, 4, 4), hidden=16),
        adjusted=(Quantile(quantiles=5),),
        buffer_size=100,
        alpha=None if alpha is None else (alpha,),
        **fields,
    )
    learner = make_learner(config, AtariSpec(("Breakout",)))
    hyper = jax.tree.map(lambda leaf: leaf[0], hyper_of(config))
    phase, seen = phase_of(learner, hyper), frames()

    @jax.jit
    def both(state: Any) -> Any:
        if model_learns:
            state, _ = model_update(learner.guidance, state, phase, KEY, seen.transition)
        return learner.value_update(state, phase, update_of(seen))[0]

    return both(first_state(learner, hyper))


@pytest.fixture(scope="module")
def base() -> Any:
    return updated("qrdqn").online


@pytest.mark.parametrize("name", VARIANTS)
def test_at_alpha_one_it_is_its_base_whatever_the_model_predicts(name, base):
    assert difference(base, updated("qrdqn+sadq", 1.0, model=VARIANTS[name]).online) == 0.0


def test_in_bfloat16_parameters_stay_float32_and_move_nearly_alike(base):
    after = updated("qrdqn+sadq", 1.0, model_learns=True, model=MODEL, compute="bfloat16")
    assert after.model.steps == after.online.steps == 1 and after.model.diverged_at == after.online.diverged_at == -1
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves((after.online[:3], after.model[:3])))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((after.online, after.model)))
    # The optimiser's running mean after one update is a share of the gradient.
    pairs = zip(jax.tree.leaves(after.online.first), jax.tree.leaves(base.first), strict=True)
    cast, exact = (np.concatenate([np.ravel(leaf) for leaf in column]) for column in zip(*pairs, strict=True))
    assert cast @ exact / np.linalg.norm(cast) / np.linalg.norm(exact) > 0.99
    assert (cast != exact).any()


def test_the_fast_preset_differs_in_its_model_alone():
    fast, paper = PRESETS["atari100k-fast"], PRESETS["atari100k"]
    assert dataclasses.replace(fast, preset="atari100k", model=paper.model) == paper
    assert fast.model != paper.model and paper.model == RSSM() and paper.compute == "float32"
