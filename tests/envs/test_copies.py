"""What a user hands over is copied as it is now: an environment with changed attributes, a vector of environments."""

import copy
import types
import warnings

import gymnasium
import numpy as np
import pytest
from sample_environments import Walk

from own_environments import Endless, Switches
from sadq.envs import HostEnvironments, make
from sadq.envs.limits import limited, measuring
from sadq.errors import SadqError, SadqWarning


def earned(spec, workers=0, steps=30):
    environments = HostEnvironments(spec, [0], 2, workers=workers)
    environments.reset()
    told = [environments.step(np.full((1, 2), number % spec.action_count)) for number in range(steps)]
    environments.close()
    return np.stack([step.next_observation for step in told])


@pytest.mark.parametrize("workers", [0, 2])
def test_attributes_that_were_changed_are_kept(workers):
    instance = gymnasium.make("MountainCar-v0")
    instance.unwrapped.gravity = 0.02
    changed = earned(make(instance), workers)
    np.testing.assert_array_equal(changed, earned(make(instance), 0))
    assert not np.array_equal(changed, earned(make("MountainCar-v0")))


class Engine:
    """What no copy can be made of."""

    def __reduce__(self):
        raise TypeError("an engine")


class Remade(Walk, gymnasium.utils.EzPickle):
    """What Gymnasium copies by making it anew, as most of its own environments."""

    def __init__(self, push=0.0):
        gymnasium.utils.EzPickle.__init__(self, push)
        super().__init__()
        self.push, self.table, self.shift, self.engine = push, np.zeros(3), lambda: 0.0, Engine()

    def observation(self):
        return super().observation() + np.float32(self.push + self.table.sum() + self.shift())

    def reset(self, *, seed=None, options=None):
        self.window, self.engine.running = Engine(), True
        return super().reset(seed=seed, options=options)


@pytest.mark.parametrize("workers", [0, 2])
def test_they_are_kept_where_a_copy_is_made_anew(workers):
    instance = Remade()
    instance.push, instance.table = 3.0, np.full(3, 2.0)
    instance.shift = types.MethodType(lambda own: own.push, instance)
    assert copy.deepcopy(instance).push == 0.0
    plain, spec = earned(make(Remade), workers), make(instance)
    instance.push = 5.0  # which was not so when it was handed over
    np.testing.assert_allclose(earned(spec, workers), plain + 12, rtol=1e-5)


def test_what_such_a_copy_cannot_have_is_named():
    instance = Remade()
    before = instance.observation
    instance.observation = lambda: before() + 1  # of this very object
    with pytest.warns(SadqWarning, match="Remade is copied by being made anew, .* under observation: pass a function"):
        spec = make(instance)
    np.testing.assert_array_equal(earned(spec), earned(make(Remade)))


def test_what_cannot_be_copied_says_so():
    instance = gymnasium.make("MountainCar-v0")
    instance.unwrapped.lock = (one for one in ())
    with pytest.warns(SadqWarning, match="MountainCar-v0 cannot be copied .*from its Gymnasium spec, without what"):
        spec = make(instance)
    np.testing.assert_array_equal(earned(spec), earned(make("MountainCar-v0")))


@pytest.mark.parametrize(
    "given",
    [
        lambda: gymnasium.make_vec("MountainCar-v0", num_envs=3, vectorization_mode="sync"),
        gymnasium.make_vec("MountainCar-v0", num_envs=2, vectorization_mode="sync"),
    ],
)
def test_a_vector_of_environments_gives_its_single_ones(given):
    spec = make(given)
    assert spec.name == "MountainCar-v0" and spec.max_steps == 200
    np.testing.assert_array_equal(earned(spec), earned(make("MountainCar-v0")))


def test_a_vector_that_has_none_is_refused():
    def wrapped():
        vector = gymnasium.make_vec("MountainCar-v0", num_envs=2, vectorization_mode="sync")
        return gymnasium.wrappers.vector.ClipReward(vector, -1, 1)

    with pytest.raises(SadqError, match="ClipReward is a vector of 2 whose single environments cannot be had"):
        make(wrapped)


class Many(gymnasium.vector.VectorEnv):
    """Walks as somebody would write them side by side, which begin anew as `mode` says."""

    def __init__(self, num_envs=2, mode=gymnasium.vector.AutoresetMode.NEXT_STEP):
        self.walks, self.num_envs, self.mode = [Walk(masks=True) for _ in range(num_envs)], num_envs, mode
        self.single_observation_space, self.single_action_space = (
            self.walks[0].observation_space,
            self.walks[0].action_space,
        )
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, num_envs)
        self.metadata = {"autoreset_mode": mode}

    def reset(self, *, seed=None, options=None):
        seen, infos = zip(*(walk.reset(seed=seed) for walk in self.walks), strict=True)
        return np.stack(seen), {"action_mask": np.stack([info["action_mask"] for info in infos])}

    def step(self, actions):
        told = [walk.step(int(action)) for walk, action in zip(self.walks, actions, strict=True)]
        seen, rewards, terminated, truncated, infos = map(list, zip(*told, strict=True))
        info = {"action_mask": np.stack([one["action_mask"] for one in infos])}
        if self.mode is gymnasium.vector.AutoresetMode.SAME_STEP and (terminated[0] or truncated[0]):
            info |= {
                "final_obs": np.array(seen),
                "_final_obs": np.array([True]),
                "final_info": {"ended": np.array([1])},
            }
            seen = [walk.reset()[0] for walk in self.walks]
        return np.stack(seen), np.array(rewards), np.array(terminated), np.array(truncated), info


@pytest.mark.parametrize("mode", list(gymnasium.vector.AutoresetMode))
def test_a_vector_of_another_kind_is_made_one_by_one_where_its_number_can_be_asked_for(mode):
    spec = make(lambda num_envs: Many(num_envs, mode))
    assert spec.name == "Many" and spec.has_masks
    alone, single = (earned(one, steps=45) for one in (spec, make(lambda: Walk(masks=True))))
    np.testing.assert_array_equal(alone, single)


def test_a_limit_is_set_whatever_the_environment_is():
    endless = limited(make(Endless), 7)
    environments = HostEnvironments(endless, [0], 1, workers=0)
    environments.reset()
    assert [environments.step(np.zeros((1, 1), int)).truncated.item() for _ in range(7)] == [False] * 6 + [True]
    assert endless.max_steps == 7
    assert limited(limited(make(Endless), 7), 9).max_steps == 7
    longer = limited(make("MountainCar-v0"), 300)
    assert longer.max_steps == 300 and make(longer.maker).max_steps == 300
    assert limited(make("CartPole-v1"), 9).max_steps == 9
    with pytest.raises(
        SadqError, match="episodes of 4 steps by its own rules, and got max_episode_steps = 9: leave that"
    ):
        limited(make("BitFlip-4"), 9)


def test_measures_are_named_once_and_by_gymnasiums_environments_only():
    assert measuring(make(Switches), ["a", "b"]).measures == ("a", "b")
    with pytest.raises(SadqError, match="each once"):
        measuring(make(Switches), ["a", "a"])
    with pytest.raises(SadqError, match="CartPole-v1 has measures of its own"):
        measuring(make("CartPole-v1"), ["a"])


def test_nothing_is_said_where_all_is_well():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(Walk())
        played = Remade()
        played.reset()
        make(played)
