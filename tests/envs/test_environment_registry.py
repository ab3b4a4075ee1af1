"""Names and objects lead to the environments that they stand for."""

import gymnasium
import numpy as np
import pytest
from sample_environments import Walk

from sadq.envs import (
    Acrobot,
    BitFlip,
    CartPole,
    HostEnvironments,
    HostSpec,
    list_environments,
    make,
    register,
    registry,
)
from sadq.errors import SadqError


@pytest.fixture(autouse=True)
def unchanged_registries(monkeypatch):
    monkeypatch.setattr(registry, "_FACTORIES", dict(registry._FACTORIES))
    before = dict(gymnasium.registry)
    yield
    gymnasium.registry.clear()
    gymnasium.registry.update(before)


@pytest.mark.parametrize(
    "name,environment",
    [
        ("CartPole-v0", CartPole(max_steps=200)),
        ("CartPole-v1", CartPole(max_steps=500)),
        ("Acrobot-v1", Acrobot()),
        ("BitFlip", BitFlip(bits=8)),
        ("BitFlip-5", BitFlip(bits=5)),
    ],
)
def test_native_names(name, environment):
    assert make(name) == environment
    assert make(name).name == name
    assert make(environment) is environment


@pytest.mark.filterwarnings("ignore:.*latest versioned environment")
def test_a_name_without_a_version_is_the_latest():
    assert make("CartPole") == CartPole(max_steps=500)
    assert make("MountainCar").name == "MountainCar-v0"


@pytest.mark.parametrize("options", [("gymnasium:CartPole-v1", False), ("CartPole-v1", True)])
def test_the_host_can_be_asked_for(options):
    spec = make(*options)
    assert isinstance(spec, HostSpec) and spec.name == "gymnasium:CartPole-v1" and spec.max_steps == 500
    assert make(spec.name) == spec or make(spec.name).name == spec.name
    assert make(spec) is spec


def test_other_names_are_gymnasium_s():
    spec = make("MountainCar-v0")
    assert (spec.name, spec.observation_shape, spec.action_count, spec.max_steps) == ("MountainCar-v0", (2,), 3, 200)
    assert spec.deterministic is None


@pytest.mark.filterwarnings("ignore:.*out of date")
@pytest.mark.parametrize(
    "name,near",
    [
        ("cartpole-v1", "CartPole-v1"),
        ("LunarLander-v2", "LunarLander-v3"),
        ("CartPole-v7", "CartPole-v1"),
        ("bitflp", "BitFlip"),
        ("ALE/MsPacman-v9", "atari/MsPacman"),
        ("SeaquestNoFrameskip-v9", "atari/Seaquest"),
    ],
)
def test_unknown_names_get_near_ones(name, near):
    with pytest.raises(SadqError, match=f"unknown environment '{name}', .*did you mean.*{near}"):
        make(name)


@pytest.mark.parametrize("name", ["zzzzzz", "", "not an id"])
def test_unknown_names_without_near_ones(name):
    with pytest.raises(SadqError, match="unknown environment .*list_environments"):
        make(name)


def test_a_module_that_cannot_be_imported():
    with pytest.raises(SadqError, match="environment no_such_module:X-v0 could not be made: .*no_such_module"):
        make("no_such_module:X-v0")


@pytest.mark.parametrize(
    "text,words",
    [("Box2D is not installed, run `pip ...`", r"install sadq\[box2d\]"), ("MuJoCo is not installed", "MuJoCo")],
)
def test_missing_packages(monkeypatch, text, words):
    def fail(*_, **__):
        raise gymnasium.error.DependencyNotInstalled(text)

    monkeypatch.setattr(gymnasium, "make", fail)
    with pytest.raises(SadqError, match=f"environment LunarLander-v3 needs .*{words}"):
        make("LunarLander-v3")


def test_registering():
    register("Mine", lambda: BitFlip(bits=3))
    assert make("Mine") == BitFlip(bits=3) and "Mine" in list_environments()
    with pytest.raises(SadqError, match="registered already"):
        register("Mine", BitFlip)
    register("Mine", BitFlip, replace=True)
    assert make("Mine") == BitFlip()
    register("Walk", Walk)
    assert isinstance(make("Walk"), HostSpec) and make("Walk").name == "Walk"


@pytest.mark.parametrize("name,factory", [("", BitFlip), ("gymnasium:X", BitFlip), (3, BitFlip), ("X", BitFlip())])
def test_registering_nonsense(name, factory):
    with pytest.raises(SadqError):
        register(name, factory)


def test_listing():
    names = ["Acrobot-v1", "BitFlip", "CartPole-v0", "CartPole-v1", "CityFlow", "CityFlowGrid", "OCloud"]
    assert list_environments() == names
    assert {"MountainCar-v0", "LunarLander-v3", "CartPole-v1"} <= set(list_environments(host=True))


def test_factories():
    assert make(CartPole) == CartPole()
    assert make(Walk).name == "Walk"
    assert make(lambda: gymnasium.make("CartPole-v1")).name == "gymnasium:CartPole-v1"
    with pytest.raises(SadqError, match="could not be made: ZeroDivisionError"):
        make(lambda: 1 / 0)
    with pytest.raises(SadqError, match="made as a int, expected an Environment or a gymnasium.Env"):
        make(lambda: 3)
    with pytest.raises(SadqError, match="3 is no environment"):
        make(3)
    with pytest.raises(SadqError, match="native, expected a Gymnasium one"):
        make(CartPole(), host=True)


def first_observations(spec, workers=0):
    environments = HostEnvironments(spec, [0], 2, workers=workers)
    observations, _ = environments.reset()
    environments.close()
    return observations


@pytest.mark.filterwarnings("ignore:.*precision lowered")
def test_an_instance_is_copied_through_its_spec():
    instance = gymnasium.wrappers.RescaleObservation(
        gymnasium.wrappers.TransformObservation(
            gymnasium.make("MountainCar-v0", max_episode_steps=50), np.tanh, gymnasium.spaces.Box(-1, 1, (2,))
        ),
        -2.0,
        2.0,
    )
    spec = make(instance)
    assert spec.name == "MountainCar-v0" and spec.max_steps == 50
    plain = first_observations(make("MountainCar-v0"))
    np.testing.assert_allclose(first_observations(spec), 2 * np.tanh(plain), rtol=1e-5)
    np.testing.assert_array_equal(first_observations(spec), first_observations(spec, workers=2))


def test_an_instance_without_a_spec_is_copied():
    instance = Walk(actions=4)
    instance.reset(seed=0)
    spec = make(instance)
    assert (spec.name, spec.action_count) == ("Walk", 4)
    environments = HostEnvironments(spec, [0], 2, workers=0)
    environments.reset()
    environments.step(np.zeros((1, 2), int))
    assert instance.taken == []
    np.testing.assert_array_equal(first_observations(spec), first_observations(spec, workers=2))


class Anonymous(gymnasium.Wrapper):
    """A wrapper that a spec cannot rebuild."""


def test_an_instance_with_a_wrapper_unknown_to_its_spec_is_copied():
    spec = make(Anonymous(gymnasium.make("MountainCar-v0")))
    np.testing.assert_array_equal(first_observations(spec), first_observations(make("MountainCar-v0")))


def test_an_instance_that_cannot_be_copied():
    class Unique(Walk):
        def __deepcopy__(self, memo):
            raise TypeError("only one")

    with pytest.raises(SadqError, match="neither through its Gymnasium spec .it has none. nor by copy.deepcopy .*only"):
        make(Unique())


def test_an_id_registered_here_is_known_to_workers():
    gymnasium.register("Local/Walk-v0", entry_point=Walk, max_episode_steps=9, nondeterministic=True)
    spec = make("Local/Walk-v0")
    assert spec.max_steps == 9 and spec.deterministic is False
    np.testing.assert_array_equal(first_observations(spec), first_observations(spec, workers=2))


def test_a_number_of_bits_is_given_once():
    with pytest.raises(SadqError, match="BitFlip-5 was given bits = 4 too: give a number of bits once"):
        make("BitFlip-5", settings={"bits": 4})
