"""From a config to a fleet: the members' numbers, the learner's parts, the memory it takes."""

import dataclasses

import jax
import numpy as np
import pytest
import tiny_runs

from sadq.agents import AGENTS
from sadq.core.bootstrap import Double, Greedy
from sadq.core.ensembles import Agreement, Single
from sadq.dynamics import RSSM, Gaussian
from sadq.envs import registry
from sadq.envs.base import Environment
from sadq.errors import SadqError
from sadq.experiment import build
from sadq.experiment.build import check_memory, hyper_of, make_learner, members_of
from sadq.experiment.config import Config
from sadq.experiment.opening import create
from sadq.experiment.presets import return_range
from sadq.experiment.ranges import EARLIER
from sadq.exploration import (
    Behaviour,
    Best,
    Counteractive,
    EpsilonZ,
    Never,
    RandomAction,
    Thompson,
    UpperConfidence,
)
from sadq.networks import (
    Bayesian,
    BayesianHead,
    Categorical,
    CategoricalHead,
    Dense,
    Fraction,
    FractionHead,
    Implicit,
    ImplicitHead,
    Nature,
    NoisyLinear,
    Quantile,
    QuantileHead,
    ScalarHead,
)
from sadq.replay import Prioritised, Uniform
from sadq.replay.samplers import PrioritisedSampler, UniformSampler

PLAIN = Config(agent="dqn", alpha=None, target_update_interval=100)
BITFLIP = registry.make("BitFlip-3")


def test_the_compiled_program_gets_each_members_own_numbers():
    config = dataclasses.replace(tiny_runs.TINY, alpha=(0.0, 0.5), learning_rate=(1e-2, 1e-3), seeds=(4, 2**32 - 1))
    hyper, members = hyper_of(config), members_of(config)
    assert all(leaf.shape == (8,) for leaf in jax.tree.leaves(hyper._replace(span=None)))
    assert hyper.span.tolist() == [[0, config.steps]] * 8
    assert hyper_of(config, origin=3).span.tolist() == [[3 * config.collect, config.steps]] * 8
    for name in ("seed", "alpha", "learning_rate", "discount", "epsilon_start", "epsilon_end", "epsilon_decay"):
        own = np.array([member[name] for member in members]).astype(getattr(hyper, name).dtype)
        np.testing.assert_array_equal(getattr(hyper, name), own)


def test_a_plain_agent_is_built_without_any_model():
    learner = make_learner(PLAIN, BITFLIP)
    assert learner.guidance is None
    assert [member["alpha"] for member in members_of(PLAIN)] == [None]
    np.testing.assert_array_equal(hyper_of(PLAIN).alpha, [1.0])


def test_the_config_overrides_the_replay_of_an_agents_row():
    plain = make_learner(PLAIN, BITFLIP)
    assert plain.sampler == UniformSampler(plain.store) and plain.store.steps == 1
    own = make_learner(dataclasses.replace(PLAIN, replay=Prioritised(exponent=0.3), n_step=3), BITFLIP)
    assert isinstance(own.sampler, PrioritisedSampler) and own.sampler.exponent == 0.3
    assert own.sampler.store == own.store and own.store.steps == 3


#        head             bootstrap means              deviates        replay         n  noisy  dueling ensemble
ROWS = {
    "dqn": (ScalarHead, Greedy, Best, RandomAction, Uniform, 1, False, False, Single()),
    "double": (ScalarHead, Double, Best, RandomAction, Uniform, 1, False, False, Single()),
    "dueling": (ScalarHead, Greedy, Best, RandomAction, Uniform, 1, False, True, Single()),
    "bdqn": (BayesianHead, Double, Thompson, Never, Uniform, 1, False, False, Single()),
    "sunrise": (ScalarHead, Greedy, UpperConfidence, RandomAction, Uniform, 1, False, False, Agreement(5)),
    "c51": (CategoricalHead, Greedy, Best, RandomAction, Uniform, 1, False, False, Single()),
    "rainbow": (CategoricalHead, Double, Best, Never, Prioritised, 3, True, True, Single()),
    "qrdqn": (QuantileHead, Greedy, Best, RandomAction, Uniform, 1, False, False, Single()),
    "iqn": (ImplicitHead, Greedy, Best, RandomAction, Uniform, 1, False, False, Single()),
    "fqf": (FractionHead, Greedy, Best, RandomAction, Uniform, 1, False, False, Single()),
    "teg": (CategoricalHead, Double, Best, EpsilonZ, Prioritised, 3, False, True, Single()),
    "coact": (QuantileHead, Greedy, Best, Counteractive, Uniform, 1, False, False, Single()),
}


@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_is_built_as_its_row_says(agent):
    head, rule, means, deviates, replay, steps, noisy, dueling, ensemble = ROWS[agent]
    config = dataclasses.replace(PLAIN, agent=agent, encoder=Dense((8,)))
    learner = make_learner(config, BITFLIP)
    network = jax.eval_shape(learner.make_network, jax.random.key(0))
    assert (type(network.head), learner.bootstrap, learner.ensemble) == (head, rule(), ensemble)
    assert config.behaviour == Behaviour(means(), deviates())
    nodes = jax.tree.leaves(network, is_leaf=lambda node: isinstance(node, NoisyLinear))
    assert any(isinstance(node, NoisyLinear) for node in nodes) == noisy
    if head is not BayesianHead:
        stream = network.head.at.stream if hasattr(network.head, "at") else network.head.stream
        assert (stream.value is not None) == dueling
    assert (learner.refit is not None) == (agent == "bdqn")
    sampler = PrioritisedSampler if replay is Prioritised else UniformSampler
    assert (type(learner.sampler), learner.store.steps) == (sampler, steps)
    online = jax.eval_shape(learner.init, jax.tree.map(lambda leaf: leaf[0], hyper_of(config))).online.parameters
    assert {leaf.shape[0] for leaf in jax.tree.leaves(online)} == {ensemble.size}


def test_the_settings_of_choices_reach_what_they_describe():
    config = dataclasses.replace(
        PLAIN,
        encoder=Dense((8,)),
        adjusted=(
            Categorical(atoms=7, support=(-2.0, 3.0)),
            Quantile(quantiles=9, huber=0.5),
            Implicit(levels=5, cosines=6, huber=0.25),
            Fraction(levels=4, cosines=6),
            EpsilonZ(1.5, 9),
            Counteractive(11),
            UpperConfidence(2.5),
        ),
    )

    def built(agent: str):
        own = dataclasses.replace(config, agent=agent)
        return jax.eval_shape(make_learner(own, BITFLIP).make_network, jax.random.key(0)).head, own.behaviour

    categorical, _ = built("c51")
    assert (categorical.atoms, categorical.low, categorical.high) == (7, -2.0, 3.0)
    assert categorical.stream.advantage.weight.shape == (8, 3 * 7)
    quantile, behaviour = built("coact")
    assert (quantile.quantiles, quantile.huber_at, behaviour.deviation.starts) == (9, 0.5, 11)
    implicit, _ = built("iqn")
    assert (implicit.count, implicit.at.cosines, implicit.huber_at) == (5, 6, 0.25)
    assert built("fqf")[0].proposal.weight.shape == (8, 4)
    assert built("teg")[1].deviation == EpsilonZ(1.5, 9)
    assert built("sunrise")[1].intended == UpperConfidence(2.5)


@dataclasses.dataclass(frozen=True)
class Elsewhere(Environment):
    """An environment that nobody knows; none of it is run."""

    actors: int = 1
    name: str = "Elsewhere"
    observation_size: int = 4
    action_count: int = 2
    max_steps: int = 5

    def initial(self, key):
        raise NotImplementedError

    transition = observe = initial


@pytest.mark.parametrize(
    ("environment", "support"),
    [
        (registry.make("CartPole-v1"), (0.0, 100.0)),
        (registry.make("BitFlip-9"), (0.0, 1.0)),
        (registry.make("Acrobot-v1"), (-100.0, 0.0)),
        (Elsewhere(), (-100.0, 100.0)),
    ],
    ids=lambda case: getattr(case, "name", ""),
)
def test_a_support_is_the_head_s_or_the_environment_s(environment, support):
    assert (return_range(environment.name) or EARLIER) == support
    for head, expected in ((Categorical(), support), (Categorical(support=(1.0, 2.0)), (1.0, 2.0))):
        config = dataclasses.replace(PLAIN, agent="c51", head=head, encoder=Dense((8,)))
        made = jax.eval_shape(make_learner(config, environment).make_network, jax.random.key(0)).head
        assert (made.low, made.high) == expected


@pytest.mark.parametrize(
    ("changes", "interval"),
    [
        ({"target_update_interval": 640}, 640),
        ({"target_update_interval": 50, "target_update_unit": "updates", "collect": 64, "updates_per_collect": 4}, 800),
        ({"target_update_interval": None, "soft_target_rate": 0.1}, build.REFIT_INTERVAL),
        ({"target_update_interval": 640, "head": Bayesian(refit_interval=96)}, 96),
    ],
)
def test_a_posterior_is_refitted_with_the_target_s_copy_unless_told_otherwise(changes, interval):
    config = dataclasses.replace(PLAIN, agent="bdqn", **changes)
    refit = make_learner(config, BITFLIP).refit
    assert (refit.interval, refit.settings) == (interval, config.row.head)


def test_the_encoder_has_the_configs_layers_and_the_head_adds_one():
    network = make_learner(dataclasses.replace(PLAIN, encoder=Dense((16, 8))), BITFLIP).make_network(jax.random.key(0))
    assert [layer.weight.shape for layer in network.encoder.layers] == [(6, 16), (16, 8)]
    assert network.head.stream.hidden.weight.shape == (8, 8)
    assert network.head.stream.advantage.weight.shape == (8, 3)


def test_an_encoder_and_a_model_that_take_bytes_for_different_numbers_are_refused():
    @dataclasses.dataclass(frozen=True)
    class Pictures(Elsewhere):
        dtype: type = np.uint8
        observation_shape = (2, 36, 36)

        @property
        def observation_dtype(self):
            return np.dtype(self.dtype)

    guided = dataclasses.replace(PLAIN, agent="dqn+sadq", alpha=(0.2,))
    pairs = {
        (Nature(), Gaussian()): "255 is 1 to encoder nature and 255 to model gaussian",
        (Dense((8,)), RSSM()): "255 is 255 to encoder dense and 1 to model rssm",
    }
    for (encoder, model), words in pairs.items():
        config = dataclasses.replace(guided, encoder=encoder, model=model)
        with pytest.raises(SadqError, match=f"^Elsewhere shows bytes, of which {words}: choose "):
            make_learner(config, Pictures())
        make_learner(config, Pictures(dtype=np.float32))
        make_learner(dataclasses.replace(config, agent="dqn", alpha=None), Pictures())
    for encoder, model in ((Nature(), RSSM()), (Dense((8,)), Gaussian()), (Dense((8,)), RSSM(space="embedding"))):
        make_learner(dataclasses.replace(guided, encoder=encoder, model=model), Pictures())


def test_the_store_has_a_lane_for_every_actor_and_room_for_a_collect_of_all():
    config = dataclasses.replace(PLAIN, environments=4, collect=32, n_step=2, buffer_size=4 * 3 * (8 + 1))
    store = make_learner(config, Elsewhere(actors=3)).store
    assert (store.lanes, store.rows) == (12, 9)
    with pytest.raises(SadqError) as refused:
        make_learner(config, Elsewhere(actors=4))
    assert str(refused.value) == (
        "buffer_size = 108 is too small for Elsewhere: it must hold at least one collect of all its actors, 144 transitions."
    )


def test_the_predicted_bytes_are_those_that_the_replay_takes():
    store = make_learner(tiny_runs.TINY, BITFLIP).store
    assert store.nbytes == sum(leaf.nbytes for leaf in jax.tree.leaves(store.init()))


def hyper_for(members: int):
    return hyper_of(dataclasses.replace(tiny_runs.TINY, seeds=tuple(range(members))))


def bytes_of_a_member(learner) -> int:
    """Of the replay, and of all that learning changes."""
    state = learner.init(jax.tree.map(lambda leaf: leaf[0], hyper_for(1)))
    return learner.store.nbytes + sum(leaf.nbytes for leaf in jax.tree.leaves(state))


def test_a_fleet_that_cannot_fit_is_refused_with_the_figures(monkeypatch):
    """On a CPU with one member beside the fleet's own memory, where the member at work lies."""
    learner = make_learner(tiny_runs.TINY, BITFLIP)
    each = bytes_of_a_member(learner)
    monkeypatch.setattr(build, "free_bytes", lambda device: 5 * each)
    assert check_memory(learner, hyper_for(4)) == 5 * each
    with pytest.raises(SadqError, match="The fleet needs .* for 5 members .* enough for 4: lower"):
        check_memory(learner, hyper_for(5))
    huge = make_learner(dataclasses.replace(tiny_runs.TINY, buffer_size=10**9), BITFLIP)
    figures = (
        r"needs 638\.00 GB for 10 members \(replay 58\.00 GB of 1,000,000,000 transitions .* has 0\.0.* enough for 0"
    )
    with pytest.raises(SadqError, match=figures):
        check_memory(huge, hyper_for(10))


def test_on_an_accelerator_the_share_of_one_device_counts(monkeypatch):
    @dataclasses.dataclass(frozen=True)
    class Accelerator:
        platform: str = "gpu"
        device_kind: str = "one"

    learner = make_learner(tiny_runs.TINY, BITFLIP)
    each = bytes_of_a_member(learner)
    monkeypatch.setattr(build.Placement, "mesh", (Accelerator(),) * 4)
    monkeypatch.setattr(build, "free_bytes", lambda device: 2 * each)
    assert check_memory(learner, hyper_for(5)) == check_memory(learner, hyper_for(8)) == 2 * each
    with pytest.raises(SadqError, match="but one has 0.00 GB free, enough for 8"):
        check_memory(learner, hyper_for(9))


def test_memory_that_nobody_tells_is_not_refused(monkeypatch):
    monkeypatch.setattr(build, "free_bytes", lambda device: None)
    learner = make_learner(dataclasses.replace(tiny_runs.TINY, buffer_size=2**31 - 1), BITFLIP)
    assert check_memory(learner, hyper_for(1)) > 2 * learner.store.nbytes


def test_this_machine_tells_its_free_memory():
    assert 10**6 < build.free_bytes(jax.devices("cpu")[0]) < 10**15


def test_a_refused_run_leaves_no_folder(tmp_path):
    out = tmp_path / "run"
    with pytest.raises(SadqError, match="The fleet needs"):
        create(dataclasses.replace(tiny_runs.TINY, buffer_size=2**31 - 1, seeds=tuple(range(1000))), out)
    with pytest.raises(SadqError, match="unknown environment"):
        create(dataclasses.replace(tiny_runs.TINY, environment="Nowhere-v0"), out)
    assert not out.exists()


def test_what_is_about_to_run_is_told_with_the_replays_bytes():
    config = dataclasses.replace(tiny_runs.TINY, buffer_size=200_000, seeds=(0, 1, 2))
    needed = make_learner(config, BITFLIP).store.nbytes * 3 / 1e6
    expected = f"dueling+sadq on BitFlip-3: 3 members of 8,000 steps, replay {needed:,.1f} MB"
    assert create(config, None).describe() == expected
