"""SADQ inside Stable-Baselines3's DQN: its target is the core's, its habits are theirs; and their tools on our agents."""

import gymnasium
import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="needs the extra sb3: make sb3")

import equinox as eqx
import jax
import jax.numpy as jnp
import torch
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import CheckpointCallback, EvalCallback, StopTrainingOnRewardThreshold
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from own_environments import Narrow, Switches
from sadq import SADQ, SadqError, core
from sadq.core import BatchReliability, ScalarReturn, bellman_estimate, greedy, guided, rollout_scores
from sadq.dynamics import Gaussian
from sadq.dynamics.protocol import ModelShape
from sadq.networks import Dense
from sadq.sb3 import SADQDQN, mixed_values, reliable_alpha, within_allowance

torch.set_num_threads(1)
TINY = {
    "policy_kwargs": {"net_arch": [16]},
    "learning_starts": 32,
    "train_freq": 8,
    "target_update_interval": 20,
    "buffer_size": 1000,
    "device": "cpu",
    "seed": 3,
}
MODEL = {"model_hidden": (12, 10), "model_batch_size": 16}


class Bandit(gymnasium.Env):
    """Three arms, of which what is seen points to the best; nobody registered it."""

    observation_space = spaces.Box(0, 1, (3,), np.float32)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left, self.best = 5, int(self.np_random.integers(3))
        return np.eye(3, dtype=np.float32)[self.best], {}

    def step(self, action):
        reward, self.left = float(action == self.best), self.left - 1
        self.best = int(self.np_random.integers(3))
        return np.eye(3, dtype=np.float32)[self.best], reward, self.left == 0, False, {}


def agent(kind=SADQDQN, env=None, **more):
    return kind("MlpPolicy", Bandit() if env is None else env, **TINY | (MODEL if kind is SADQDQN else {}) | more)


def numbers(model) -> list[np.ndarray]:
    return [one.detach().numpy().copy() for one in model.policy.parameters()]


@pytest.fixture(scope="module")
def learned() -> SADQDQN:
    return agent(alpha=0.3, rollout="mean").learn(160)


# The target


def test_values_and_weights_are_the_cores():
    random = np.random.default_rng(0)
    target_q, scores = (random.normal(size=(64, 5)).astype("f4") for _ in range(2))
    scores[3], target_q[4] = 1.0, 2.0  # ties: the first action, in both
    for alpha in (0.0, 0.2, 1.0):
        choices = jax.vmap(lambda q, score, alpha=alpha: guided(greedy(q, q), score, alpha))(target_q, scores)
        expected = jax.vmap(lambda q, one: ScalarReturn(q).under(one).mean)(target_q, choices)
        np.testing.assert_allclose(mixed_values(*map(torch.tensor, (target_q, scores)), alpha), expected, rtol=1e-6)
        for size in (0.1, 2.0, 50.0, np.nan):
            error = (size * random.normal(size=64)).astype("f4")
            weight = BatchReliability()(jnp.float32(alpha), choices, target_q, scores, error)
            found = reliable_alpha(alpha, torch.tensor(target_q), torch.tensor(error))
            np.testing.assert_allclose(np.broadcast_to(found, 64), weight, rtol=1e-5)
        discount = (0.9 * (random.random(64) < 0.8)).astype("f4")
        bases = jax.vmap(greedy)(target_q, target_q)
        for allowance in (0.1, 1.0, 100.0):
            weights = core.within_allowance(jnp.full(64, alpha), bases, target_q, scores, discount, allowance)
            given = (torch.as_tensor(one) for one in (alpha, target_q, scores, discount))
            np.testing.assert_allclose(np.broadcast_to(within_allowance(*given, allowance), 64), weights, rtol=1e-4)


def as_jax(model: SADQDQN):
    """The same network and model by the library's own classes."""
    layers = [one for one in model.q_net_target.q_net if hasattr(one, "weight")]
    weights = [(one.weight.detach().numpy().T, one.bias.detach().numpy()) for one in layers]

    def values(observation):
        for index, (weight, bias) in enumerate(weights):
            observation = observation @ weight + bias
            observation = jax.nn.relu(observation) if index + 1 < len(weights) else observation
        return observation

    own, size = model.dynamics, model.dynamics.size
    theirs = Gaussian(MODEL["model_hidden"], rollout="mean", continuation=True).build(
        ModelShape((size,), 3), jax.random.key(0)
    )
    first, second, last = [
        (one.weight.detach().numpy().T, one.bias.detach().numpy()) for one in (*own.layers, own.output)
    ]
    theirs = eqx.tree_at(
        lambda one: (one.state_layer, one.action_rows, one.layers[0], one.output, one.continuation),
        theirs,
        (
            theirs.state_layer.replaced(first[0][:size], first[1]),
            jnp.asarray(first[0][size:]),
            theirs.layers[0].replaced(*second),
            theirs.output.replaced(last[0][:, :-1], last[1][:-1]),
            theirs.continuation.replaced(last[0][:, -1:], last[1][-1:]),
        ),
    )
    return values, theirs


@pytest.mark.parametrize("gate", ["fixed", "batch"])
def test_a_batch_s_target_is_the_cores_with_the_same_networks(learned, gate, monkeypatch):
    monkeypatch.setattr(learned, "gate", gate)
    # Estimates of a model that has learned for so short a time would close the gate.
    with torch.no_grad():
        learned.q_net_target.q_net[-1].bias.copy_(torch.tensor([5.0, -5.0, 0.0]))
        batch = learned.replay_buffer.sample(32)
        targets, alpha = learned._targets(batch, batch)
    values, model = as_jax(learned)
    seen, after = (jnp.asarray(one.numpy()) for one in (batch.observations, batch.next_observations))
    action, reward, ends = (jnp.asarray(one.numpy())[:, 0] for one in (batch.actions, batch.rewards, batch.dones))
    key, discount = jax.random.key(0), learned.gamma

    def scores_at(observation):
        return rollout_scores(model.step, values, model.encode(observation), 3, key, discount=discount)

    def error_of(observation, taken, got, then, over):
        predicted = bellman_estimate(model.step(model.encode(observation), taken, key), values, discount)
        return predicted - (got + discount * (1 - over) * jnp.max(values(then)))

    target_q, scores = jax.vmap(values)(after), jax.vmap(scores_at)(after)
    base = jax.vmap(lambda q: greedy(q, q))(target_q)
    weight = jnp.full(32, learned.alpha)
    if gate == "batch":
        weight = BatchReliability()(
            jnp.float32(0.3), base, target_q, scores, jax.vmap(error_of)(seen, action, reward, after, ends)
        )
        assert 0.3 < weight[0] < 1, "the gate is neither open nor shut"
    choices = jax.vmap(guided)(base, scores, weight)
    assert jnp.any(choices.actions[:, 0] != choices.actions[:, 1]) or gate == "batch"
    backed_up = jax.vmap(lambda q, one, got, over: ScalarReturn(q).under(one).backup(got, discount * (1 - over)).mean)
    np.testing.assert_allclose(targets.squeeze(1), backed_up(target_q, choices, reward, ends), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(float(alpha), weight[0], rtol=1e-4)


@pytest.mark.parametrize("more", [{}, {"n_steps": 3, "gradient_steps": 2}], ids=["one step", "three steps"])
def test_alpha_one_is_dqn_to_the_bit(more):
    plain = agent(DQN, DummyVecEnv([Bandit] * 2), **more).learn(120)
    with_model = agent(env=DummyVecEnv([Bandit] * 2), alpha=1, model_updates=2, **more).learn(120)
    guided_agent = agent(env=DummyVecEnv([Bandit] * 2), alpha=0.0, gate="fixed", **more).learn(120)
    assert all(np.array_equal(*pair) for pair in zip(numbers(plain), numbers(with_model), strict=True))
    assert not all(np.array_equal(*pair) for pair in zip(numbers(plain), numbers(guided_agent), strict=True))


def test_the_model_learns_what_follows():
    """Which arm pays is seen, and so is the end: of what a step leads to nothing else can be known."""
    model = agent(model_learning_rate=0.01, model_updates=8).learn(800)
    with torch.no_grad():
        _, _, reward, logit = model.dynamics(torch.eye(3))
    np.testing.assert_allclose(reward, np.eye(3), atol=0.4)
    assert torch.all((logit.sigmoid() > 0.5) & (logit.sigmoid() < 0.98)), "four steps of five go on"


# Habits


def test_a_saved_agent_is_the_same_and_learns_on(learned, tmp_path):
    learned.save(tmp_path / "agent")
    loaded = SADQDQN.load(tmp_path / "agent")
    assert (loaded.alpha, loaded.gate, loaded.rollout, [*loaded.model_hidden]) == (0.3, "fixed", "mean", [12, 10])
    observations = np.random.default_rng(0).uniform(size=(20, 3)).astype("f4")
    both = [one.predict(observations, deterministic=True)[0] for one in (learned, loaded)]
    np.testing.assert_array_equal(*both)
    for name in ("dynamics", "dynamics.optimizer"):
        states = [torch.utils._pytree.tree_leaves(one.get_parameters()[name]) for one in (learned, loaded)]
        tensors = [[leaf for leaf in one if torch.is_tensor(leaf)] for one in states]
        assert tensors[0] and all(torch.equal(*pair) for pair in zip(*tensors, strict=True))
    loaded.set_env(DummyVecEnv([Bandit]))
    loaded.learn(40, reset_num_timesteps=False)
    assert loaded.num_timesteps == 200


def test_callbacks_and_normalised_environments_work(tmp_path):
    stop = StopTrainingOnRewardThreshold(-1.0, verbose=0)
    callbacks = [
        EvalCallback(
            VecNormalize(DummyVecEnv([Bandit]), training=False),
            callback_on_new_best=stop,
            eval_freq=100,
            n_eval_episodes=2,
            best_model_save_path=str(tmp_path),
            verbose=0,
        ),
        CheckpointCallback(50, str(tmp_path), "step", verbose=0),
    ]
    model = agent(env=VecNormalize(DummyVecEnv([Bandit]))).learn(1000, callbacks)
    assert model.num_timesteps == 100, "ended by the first evaluation"
    assert {one.name for one in tmp_path.iterdir()} >= {"best_model.zip", "step_50_steps.zip", "step_100_steps.zip"}
    mean, _ = evaluate_policy(SADQDQN.load(tmp_path / "best_model"), DummyVecEnv([Bandit]), 3)
    assert 0 <= mean <= 5
    model.train(1, 16)
    assert {"train/loss", "train/model_loss", "train/alpha"} <= set(model.logger.name_to_value)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"alpha": 1.5}, "alpha = 1.5: expected a number from 0 to 1"),
        ({"alpha": "much"}, "alpha = 'much'"),
        ({"gate": "sample"}, "gate = 'sample': expected 'fixed' or 'batch'"),
        ({"rollout": "n"}, "rollout = 'n'"),
        ({"model_updates": 0}, "model_updates = 0: expected a whole number of at least 1"),
        ({"model_hidden": ()}, r"model_hidden = \(\): expected the sizes"),
        (
            {"optimize_memory_usage": True, "replay_buffer_kwargs": {"handle_timeout_termination": False}},
            "leave it off",
        ),
        ({"env": gymnasium.make("FrozenLake-v1")}, "expected a Box of numbers that is no image"),
    ],
)
def test_what_cannot_be_gets_a_sentence(more, sentence):
    with pytest.raises(SadqError, match=sentence):
        agent(**more)


# Their tools on our agents


def test_their_evaluation_takes_an_agent_of_ours_loaded_without_an_environment(tmp_path):
    """Also from a callback, again and again, as an EvalCallback does."""
    seen = []

    def evaluate(progress):
        seen.append(evaluate_policy(model, DummyVecEnv([Bandit]), 4, deterministic=True)[0])

    model = SADQ(Bandit(), agent="dqn", encoder=Dense((16,)), environments=2, evaluations=2, max_episode_steps=9)
    model.learn(2048, callback=evaluate)
    assert seen and all(0 <= one <= 5 for one in seen)
    model.save(tmp_path / "agent")
    model.save(tmp_path / "policy", policy_only=True)
    for name in ("agent", "policy"):
        loaded = SADQ.load(tmp_path / name)
        mean, deviation = evaluate_policy(loaded, Bandit(), n_eval_episodes=10, warn=False)
        returns, lengths = evaluate_policy(loaded, DummyVecEnv([Bandit] * 2), 6, return_episode_rewards=True)
        assert 3 < mean <= 5 and deviation >= 0, "it learned which arm pays"
        assert lengths == [5] * 6 and np.mean(returns) > 3


class Shop(gymnasium.Env):
    """A Dict, flat as Stable-Baselines3 wants it: the good that is asked for, numbered from 1 on, is right."""

    def __init__(self):
        self.observation_space = spaces.Dict(
            {"asked": spaces.Discrete(3, start=1), "stock": spaces.Box(0, 9, (3,), np.int64)}
        )
        self.action_space = spaces.Discrete(3, start=1)

    def seen(self):
        self.asked = int(self.np_random.integers(1, 4))
        return {"asked": np.int64(self.asked), "stock": self.np_random.integers(0, 9, 3)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.seen(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        reward, self.steps = float(action == self.asked), self.steps + 1
        return self.seen(), reward, self.steps >= 4, False, {}


class Masked:
    """What evaluates an agent hands on no masks: they are fetched here, as a user would."""

    def __init__(self, model, environments):
        self.model, self.environments = model, environments

    def predict(self, observation, **more):
        masks = np.stack(self.environments.env_method("action_masks"))
        return self.model.predict(observation, action_masks=masks, **more)


@pytest.mark.parametrize("kind", [Shop, Switches, Narrow], ids=["dict", "multi-discrete", "masked"])
def test_their_evaluation_takes_agents_of_spaces_of_a_users_own(kind, tmp_path):
    check_env(Narrow(strict=False) if kind is Narrow else kind(), skip_render_check=True)
    environments, seen = DummyVecEnv([kind] * 2), []

    def judged(one):
        asked = Masked(one, environments) if kind is Narrow else one
        return evaluate_policy(asked, environments, 6, return_episode_rewards=True, warn=False)

    def evaluate(progress):
        seen.append(judged(model))

    model = SADQ(kind, agent="dqn", encoder=Dense((8,)), environments=2, evaluations=1, max_episode_steps=9)
    model.learn(128, callback=evaluate)
    model.save(tmp_path / "agent", policy_only=True)
    seen.append(judged(SADQ.load(tmp_path / "agent")))
    assert len(seen) >= 2
    for returns, lengths in seen:
        assert set(lengths) == {5 if kind is Narrow else 4} and 0 <= min(returns) <= max(returns) <= 5
