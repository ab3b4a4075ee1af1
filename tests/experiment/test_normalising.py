"""Observations on a running scale and rewards of a smaller size: counted, seen by, checkpointed, off unless asked for."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_runs import TINY

from own_environments import Sorting
from sadq.dynamics.normalised import NormalisedModel
from sadq.dynamics.protocol import ModelShape
from sadq.errors import SadqError
from sadq.experiment import checkpoint
from sadq.experiment.build import hyper_of, make_learner, resolve
from sadq.experiment.opening import create, reopen
from sadq.experiment.stored import Stored
from sadq.learning.normalising import Statistics
from sadq.learning.rewards import Rewards
from sadq.networks.normalised import standardised
from sadq.types import Transition

CHUNKS = 3
SCALED = dataclasses.replace(
    TINY,
    normalise_observations=True,
    reward_scale=3.0,
    reward_clip=2.0,
    evaluations=CHUNKS,
    steps=CHUNKS * 8,
    buffer_size=64,
)


def test_statistics_are_those_of_all_that_was_seen():
    seen = 1000 + np.random.default_rng(0).normal(size=(6, 4, 5, 3)) * [1, 50, 0]
    statistics = Statistics.of_nothing((3,))
    for part in seen:
        statistics = statistics.with_more(jnp.asarray(part, jnp.float32))
    rows = seen.reshape(-1, 3)
    assert int(statistics.number) == len(rows)
    np.testing.assert_allclose(statistics.mean, rows.mean(0), rtol=1e-6)
    np.testing.assert_allclose(statistics.deviation, rows.std(0) + [0, 0, 1e-4], rtol=1e-3)


def test_what_is_far_from_the_mean_is_cut_off():
    np.testing.assert_allclose(
        standardised(jnp.array([5.0, 1e6, -1e6]), jnp.array([1.0, 0.0, 0.0]), jnp.array([2.0, 1.0, 1.0])), [2, 10, -10]
    )


def test_a_model_speaks_of_observations_in_their_own_units():
    plain = TINY.model.build(ModelShape((2,), 3), jax.random.key(0))
    scale = jnp.array([100.0, -3.0]), jnp.array([10.0, 0.5])
    model = eqx.tree_at(lambda own: (own.mean, own.deviation), NormalisedModel(plain, (2,)), scale)
    seen, key = jnp.array([110.0, -3.5]), jax.random.key(1)
    inside = plain.step(plain.encode(jnp.array([1.0, -1.0])), 1, key)
    outside = model.step(model.encode(seen), 1, key)
    np.testing.assert_allclose(outside.next_input, inside.next_input * scale[1] + scale[0], rtol=1e-6)
    assert outside.reward == inside.reward
    reached = jnp.array([90.0, -2.5])
    step = Transition(seen, jnp.int32(1), jnp.float32(1), reached, jnp.bool_(False), jnp.bool_(False), None, None)
    scaled = step._replace(observation=jnp.array([1.0, -1.0]), next_observation=jnp.array([-1.0, 1.0]))
    np.testing.assert_allclose(model.loss(step, key, None)[0], plain.loss(scaled, key, None)[0], rtol=1e-6)


@pytest.mark.parametrize("library", [np, jnp])
def test_rewards_are_scaled_and_then_cut_off(library):
    given = library.array([-3.0, 0.25, 9.0], library.float32)
    np.testing.assert_allclose(Rewards(2.0, 5.0).learned(given), [-5, 0.5, 5])
    np.testing.assert_allclose(Rewards(2.0).learned(given), [-6, 0.5, 18])
    assert Rewards().learned(given) is given and Rewards().plain


def test_a_constant_scale_gives_way():
    constant = dataclasses.replace(SCALED, model=dataclasses.replace(SCALED.model, state_scale=50.0))
    for config, scale in ((constant, 1.0), (dataclasses.replace(constant, normalise_observations=False), 50.0)):
        model = make_learner(config, resolve("BitFlip-3")).guidance.make_model(jax.random.key(0))
        assert getattr(model, "model", model).settings.state_scale == scale


def test_pictures_are_refused():
    film = dataclasses.replace(resolve(Sorting), observation_dtype=np.dtype(np.uint8))
    with pytest.raises(SadqError, match="normalise_observations is for numbers, and Sorting shows bytes"):
        make_learner(SCALED, film)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run to its end, and the same in a folder, stopped after its first chunk."""
    whole = create(SCALED, None)
    whole.begin()
    whole.run()
    folder = tmp_path_factory.mktemp("normalised") / "run"
    stopped = create(SCALED, folder)
    stopped.begin()
    stopped.run(lambda _: False)
    stopped.close()
    return whole, folder


def test_networks_and_model_see_by_what_was_collected(run):
    whole, _ = run
    learner, replay = whole.state.learner, whole.state.replay
    count = CHUNKS * 8
    for member in range(2):
        seen = np.asarray(replay.observation[member]).reshape(-1, 6)[:count]
        np.testing.assert_allclose(learner.statistics.mean[member], seen.mean(0), atol=1e-6)
        deviation = np.sqrt(seen.var(0) + 1e-8)
        for part in (learner.online.parameters.encoder, learner.target.encoder):
            np.testing.assert_allclose(part.mean[member, 0], seen.mean(0), atol=1e-6)
            np.testing.assert_allclose(part.deviation[member, 0], deviation, rtol=1e-5)
        np.testing.assert_allclose(learner.model.parameters.deviation[member], deviation, rtol=1e-5)
    assert set(np.unique(replay.reward)) <= {0.0, 2.0}  # a reward of 1, times 3, cut off
    assert max(max(row["returns"]) for row in whole.evaluations) <= 1.0


def test_a_resume_is_exact_and_a_policy_acts_by_its_scale(run):
    whole, folder = run
    resumed = reopen(folder)
    resumed.begin()
    assert resumed.step == 8
    resumed.run()
    mine, theirs = (checkpoint.named_leaves(one.state) for one in (whole, resumed))
    assert mine.keys() == theirs.keys() and any("statistics" in name for name in mine)
    for name, value in mine.items():
        assert np.asarray(value).tobytes() == np.asarray(theirs[name]).tobytes(), name
    assert resumed.evaluations == whole.evaluations
    resumed.close()
    stored = Stored.open(folder)
    np.testing.assert_array_equal(stored.parameters.encoder.mean, whole.parameters.encoder.mean)


def test_nothing_of_it_is_there_unless_asked_for():
    learner = make_learner(TINY, resolve("BitFlip-3"))
    state = jax.eval_shape(learner.init, jax.tree.map(lambda leaf: leaf[0], hyper_of(TINY)))
    assert state.statistics is None and not any("deviation" in name for name in checkpoint.named_leaves(state))
