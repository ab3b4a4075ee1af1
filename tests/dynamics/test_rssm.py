"""The model of images: its loss recomputed by NumPy, its rollouts, its gradients, and what it refuses."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sadq import keys
from sadq.core.two_hot import BINS
from sadq.dynamics import RSSM, ModelShape, RSSMModel
from sadq.dynamics.images import FrameDecoder
from sadq.errors import SadqError
from sadq.types import Transition

KEY = keys.member_key(1)
SMALL = {"deterministic": 10, "variables": 3, "classes": 4, "hidden": 7, "channels": (2, 3, 4), "decoder": (4, 3, 2)}
FRAMES = (3, 36, 48)
SHAPE = ModelShape(FRAMES, 3, 5)


def model(**settings) -> RSSMModel:
    """With a reward head that has learned something."""
    made = RSSM(**(SMALL | settings)).build(SHAPE, KEY)
    weight = jax.random.normal(keys.purpose(KEY, "learned"), made.reward.output.weight.shape)
    return eqx.tree_at(lambda one: one.reward.output.weight, made, weight)


def one(terminated: bool = False) -> Transition:
    frames = jax.random.randint(KEY, (2, *FRAMES), 0, 256).astype(jnp.uint8)
    return Transition(frames[0], jnp.int32(2), jnp.float32(0.4), frames[1], jnp.asarray(terminated), jnp.asarray(False))


def features(observation):
    """f32[5], as a target network's encoder would."""
    return jnp.mean(observation.astype(jnp.float32)) / 255 * jnp.arange(1.0, 6.0)


def silu(values: np.ndarray) -> np.ndarray:
    return values / (1 + np.exp(-values))


def dense(layer, values: np.ndarray) -> np.ndarray:
    return values @ np.asarray(layer.weight) + np.asarray(layer.bias)


def probabilities(perceptron, values: np.ndarray, unimix: float) -> np.ndarray:
    logits = dense(perceptron.output, silu(dense(perceptron.hidden, values))).reshape(3, 4)
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return (1 - unimix) * powers / powers.sum(axis=1, keepdims=True) + unimix / 4


class ByHand:
    """What the model says of a transition, by the paper's equations over [enc(x), onehot a]; z is drawn from `source`."""

    def __init__(self, made: RSSMModel, transition: Transition, source: str):
        before, after = (
            np.asarray(made.encoder(frames / 255.0)) for frames in (transition.observation, transition.next_observation)
        )
        weight = np.concatenate([made.state_layer.weight, made.action_rows])
        inputs = np.concatenate([before, np.eye(3)[int(transition.action)]])
        self.known = silu(inputs @ weight + np.asarray(made.state_layer.bias))
        unimix = made.settings.unimix
        self.prior = probabilities(made.prior, self.known, unimix)
        self.posterior = probabilities(made.posterior, np.concatenate([self.known, after]), unimix)
        drawn = jax.random.categorical(KEY, jnp.log(getattr(self, source)))
        self.latent = np.concatenate([self.known, np.eye(4)[np.asarray(drawn)].reshape(-1)])
        self.hidden = silu(dense(made.reward.hidden, self.latent))
        logits = dense(made.reward.output, self.hidden)
        self.log_reward = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
        self.divergence = np.sum(self.posterior * np.log(self.posterior / self.prior))

    def reward_loss(self, reward: float) -> float:
        above = int(np.searchsorted(BINS, reward))
        share = (reward - BINS[above - 1]) / (BINS[above] - BINS[above - 1])
        return -(1 - share) * self.log_reward[above - 1] - share * self.log_reward[above]


def test_the_layout_of_the_paper_has_its_number_of_parameters():
    made = jax.eval_shape(lambda key: RSSM().build(ModelShape((4, 84, 84), 18), key), KEY)
    count = sum(leaf.size for leaf in jax.tree.leaves(made))
    assert abs(count / 34.6e6 - 1) < 0.01
    assert made.state_layer.weight.shape == (3136, 4096) and made.action_rows.shape == (18, 4096)
    assert made.posterior.hidden.weight.shape == (4096 + 3136, 512) and made.prior.output.bias.shape == (1024,)
    assert made.reward.output.bias.shape == (255,) and made.successor.coarse.weight.shape == (5120, 7 * 7 * 48)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {
            "free_nats": 0.01,
            "unimix": 0.2,
            "reconstruction": 3.0,
            "reward": 0.5,
            "dynamics": 0.7,
            "representation": 0.3,
        },
    ],
    ids=["paper", "others"],
)
def test_the_loss_by_hand(settings):
    made, own = model(**settings), RSSM(**(SMALL | settings))
    hand = ByHand(made, one(), "posterior")
    drawn = np.asarray(made.successor(jnp.asarray(hand.latent, jnp.float32)))
    state_loss = np.mean((drawn - np.asarray(one().next_observation) / 255.0) ** 2)
    reward_loss = hand.reward_loss(0.4)
    clamped = max(own.free_nats, hand.divergence)
    expected = own.reconstruction * state_loss + own.reward * reward_loss
    expected += (own.dynamics + own.representation) * clamped
    total, parts = made.loss(one(), KEY, features)
    assert set(parts) == {"model_state_loss", "model_reward_loss", "model_kl"}
    np.testing.assert_allclose(parts["model_state_loss"], state_loss, rtol=1e-4)
    np.testing.assert_allclose(parts["model_reward_loss"], reward_loss, rtol=1e-4)
    np.testing.assert_allclose(parts["model_kl"], hand.divergence, rtol=1e-2)
    np.testing.assert_allclose(total, expected, rtol=1e-4)
    assert 0.01 < hand.divergence < 1, "one of the two clamps, the other does not"


def test_a_rollout_by_hand():
    made = model()
    hand = ByHand(made, one(), "prior")
    prediction = made.step(made.encode(one().observation), jnp.int32(2), KEY)
    drawn = np.asarray(made.successor(jnp.asarray(hand.latent, jnp.float32)))
    assert (drawn < 0).any(), "some of it must be clipped"
    np.testing.assert_allclose(prediction.next_input, np.clip(drawn, 0, 1), rtol=1e-4, atol=1e-6)
    shares = np.exp(hand.log_reward.astype(np.float64))
    size = np.sum(shares * np.abs(BINS))
    np.testing.assert_allclose(prediction.reward, np.sum(shares * BINS), atol=1e-5 * size)
    assert prediction.continuation == 1.0 and made.space == "observation"


def test_a_rollout_stays_within_the_range_of_pixels():
    bright = eqx.tree_at(lambda one: one.successor.layers[-1].linear.bias, model(), jnp.full(27, 5.0))
    prediction = bright.step(bright.encode(one().observation), jnp.int32(0), KEY)
    assert prediction.next_input.shape == FRAMES and prediction.next_input.dtype == jnp.float32
    np.testing.assert_array_equal(prediction.next_input, 1.0)


def test_a_fresh_model_expects_no_reward():
    made = RSSM(**SMALL).build(SHAPE, KEY)
    assert made.step(made.encode(one().observation), jnp.int32(1), KEY).reward == 0.0
    np.testing.assert_allclose(made.loss(one(), KEY, features)[1]["model_reward_loss"], np.log(255), rtol=1e-5)


def test_bytes_are_frames_in_the_unit_range():
    made, seen = model(), one()
    numbers = seen._replace(observation=seen.observation / 255.0, next_observation=seen.next_observation / 255.0)
    np.testing.assert_allclose(made.loss(seen, KEY, features)[0], made.loss(numbers, KEY, features)[0], rtol=1e-6)
    contexts = (made.encode(frames).state for frames in (seen.observation, numbers.observation))
    np.testing.assert_allclose(*contexts, rtol=1e-6)


def test_actions_and_keys_change_what_follows():
    made = model()
    context = made.encode(one().observation)
    assert context.kept is None
    first, second = (made.step(context, jnp.int32(action), KEY) for action in (0, 1))
    assert (first.next_input != second.next_input).any() and first.reward != second.reward
    again = [made.step(context, jnp.int32(0), keys.at(KEY, index)).next_input for index in range(8)]
    assert any((one != again[0]).any() for one in again[1:])


def test_the_newest_frame_is_appended_to_those_that_stay():
    made, plain = model(newest_frame=True), model()
    assert made.successor.layers[-1].linear.bias.size == 9 and plain.successor.layers[-1].linear.bias.size == 27
    seen = one()
    prediction = made.step(made.encode(seen.observation), jnp.int32(2), KEY)
    frame = made.successor(jnp.asarray(ByHand(made, seen, "prior").latent, jnp.float32))
    assert prediction.next_input.shape == FRAMES
    np.testing.assert_array_equal(prediction.next_input[:-1], seen.observation[1:] / 255.0)
    np.testing.assert_allclose(prediction.next_input[-1:], jnp.clip(frame, 0, 1), rtol=1e-4, atol=1e-6)
    drawn = made.successor(jnp.asarray(ByHand(made, seen, "posterior").latent, jnp.float32))[0]
    expected = np.mean((np.asarray(drawn) - np.asarray(seen.next_observation[-1]) / 255.0) ** 2)
    np.testing.assert_allclose(made.loss(seen, KEY, features)[1]["model_state_loss"], expected, rtol=1e-4)


def test_features_are_predicted_without_any_decoder():
    made = model(space="embedding")
    assert made.space == "features"
    parts = jax.tree.leaves(made, is_leaf=lambda part: isinstance(part, FrameDecoder))
    assert not any(isinstance(part, FrameDecoder) for part in parts)
    hand = ByHand(made, one(), "posterior")
    predicted = dense(made.successor.output, silu(dense(made.successor.hidden, hand.latent)))
    truth = np.asarray(features(one().next_observation))
    measured = made.loss(one(), KEY, features)[1]["model_state_loss"]
    np.testing.assert_allclose(measured, np.mean((predicted - truth) ** 2), rtol=1e-4)
    rolled = dense(made.successor.output, silu(dense(made.successor.hidden, ByHand(made, one(), "prior").latent)))
    prediction = made.step(made.encode(one().observation), jnp.int32(2), KEY)
    assert (rolled < 0).any(), "features are not clipped"
    np.testing.assert_allclose(prediction.next_input, rolled, rtol=1e-4, atol=1e-6)


def test_the_model_does_not_move_the_features_that_it_predicts():
    made = model(space="embedding")
    slope = jax.grad(lambda scale: made.loss(one(), KEY, lambda frames: scale * features(frames))[0])(1.0)
    assert slope == 0.0


def moved(made: RSSMModel) -> set[str]:
    """The parts that the loss of one transition has a gradient for."""
    gradient = jax.grad(lambda current: current.loss(one(), KEY, features)[0])(made)
    names = ("encoder", "state_layer", "prior", "posterior", "reward", "successor")
    return {name for name in names if any((leaf != 0).any() for leaf in jax.tree.leaves(getattr(gradient, name)))}


NOTHING = {"reconstruction": 0.0, "reward": 0.0, "dynamics": 0.0, "representation": 0.0, "free_nats": 0.0}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"dynamics": 1.0}, {"encoder", "state_layer", "prior"}),
        ({"representation": 0.1}, {"encoder", "state_layer", "posterior"}),
        ({"dynamics": 1.0, "representation": 0.1, "free_nats": 9.0}, set()),
        ({"reconstruction": 2.0}, {"encoder", "state_layer", "posterior", "successor"}),
        ({"reward": 1.0}, {"encoder", "state_layer", "posterior", "reward"}),
    ],
    ids=["dynamics", "representation", "free nats", "reconstruction", "reward"],
)
def test_what_each_part_of_the_loss_moves(settings, expected):
    assert moved(model(**(NOTHING | settings))) == expected


def test_the_continuation_head_changes_nothing_else():
    plain, headed = model(), model(continuation=True)
    for left, right in zip(jax.tree.leaves(plain), jax.tree.leaves(eqx.tree_at(_head, headed, None)), strict=True):
        np.testing.assert_array_equal(left, right)
    hand = {source: ByHand(headed, one(), source) for source in ("prior", "posterior")}
    logit = {source: dense(headed.continuation, by_hand.hidden)[0] for source, by_hand in hand.items()}
    going_on = headed.step(headed.encode(one().observation), jnp.int32(2), KEY).continuation
    np.testing.assert_allclose(going_on, 1 / (1 + np.exp(-logit["prior"])), rtol=1e-4)
    for ends in (False, True):
        extra = headed.loss(one(ends), KEY, features)[0] - plain.loss(one(ends), KEY, features)[0]
        sign = 1 if ends else -1
        np.testing.assert_allclose(extra, np.log1p(np.exp(sign * logit["posterior"])), rtol=1e-3)


def test_a_time_limit_is_no_end_to_the_continuation_head():
    headed, cut = model(continuation=True), one()._replace(truncated=jnp.asarray(True))
    assert headed.loss(cut, KEY, features)[0] == headed.loss(one(), KEY, features)[0]


def _head(made: RSSMModel):
    return made.continuation


@pytest.mark.parametrize(
    "settings", [pytest.param({"newest_frame": True}, marks=pytest.mark.thorough), {"space": "embedding"}], ids=str
)
def test_members_side_by_side_are_as_they_are_alone(settings):
    member_keys = keys.range_of(KEY, 0, 2)
    alone = [RSSM(**(SMALL | settings)).build(SHAPE, key) for key in member_keys]
    together = jax.tree.map(lambda *leaves: jnp.stack(leaves), *alone)

    @jax.jit
    def learned_and_asked(made, key):
        gradient = jax.grad(lambda current: current.loss(one(), key, features)[0])(made)
        return gradient, made.step(made.encode(one().observation), jnp.int32(1), key)

    found = jax.vmap(learned_and_asked)(together, member_keys)
    for index, made in enumerate(alone):
        own = jax.tree.map(lambda leaf: leaf[index] if jnp.ndim(leaf) else leaf, found)
        pairs = zip(*map(jax.tree.leaves, (own, learned_and_asked(made, member_keys[index]))), strict=True)
        for left, right in pairs:
            np.testing.assert_allclose(left, right, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        {"deterministic": 0},
        {"variables": 0},
        {"classes": 1.5},
        {"hidden": 0},
        {"channels": (32, 64)},
        {"channels": (32, 0, 64)},
        {"decoder": (48, 32)},
        {"unimix": 1.1},
        {"free_nats": -1.0},
        {"reconstruction": -1.0},
        {"reward": -1.0},
        {"dynamics": -1.0},
        {"representation": -1.0},
        {"space": "pixels"},
        {"newest_frame": True, "space": "embedding"},
    ],
    ids=str,
)
def test_settings_that_make_no_model_are_refused(settings):
    with pytest.raises(SadqError, match=next(iter(settings))):
        RSSM(**settings)


@pytest.mark.parametrize(
    ("settings", "shape", "words"),
    [
        ({}, ModelShape((6,), 2), "gaussian"),
        ({}, ModelShape((4, 84, 80), 2), "multiples of 12"),
        ({"space": "embedding"}, ModelShape(FRAMES, 2), "how many features"),
    ],
)
def test_shapes_that_make_no_model_are_refused(settings, shape, words):
    with pytest.raises(SadqError, match=words):
        RSSM(**(SMALL | settings)).build(shape, KEY)
