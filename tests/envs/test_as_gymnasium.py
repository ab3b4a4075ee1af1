"""Native environments as gymnasium.Env: Gymnasium's own checker, seeds, measures, and what registration loads."""

import subprocess
import sys
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from sadq.envs import plugin
from sadq.envs.as_gymnasium import NativeEnvironment
from sadq.envs.native import Acrobot, BitFlip
from sadq.errors import SadqError

SMALL = {"servers": 4, "warmup_tasks": 40, "max_steps": 12}


def played(environment, seed, steps):
    """Observations, rewards and endings of seeded random actions, resets included."""
    random = np.random.default_rng(0)
    observation, info = environment.reset(seed=seed)
    record = [observation]
    for _ in range(steps):
        observation, reward, terminated, truncated, info = environment.step(random.integers(environment.action_space.n))
        record += [observation, reward, terminated, truncated]
        if terminated or truncated:
            observation, info = environment.reset()
            record.append(observation)
    return record


@pytest.mark.parametrize(
    "make", [lambda: gymnasium.make("sadq/OCloud-v0", **SMALL), lambda: NativeEnvironment(Acrobot())]
)
def test_gymnasium_s_checker_passes(make):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Bounds that do not exist, and an environment made without gymnasium.make, are remarks rather than faults.
        warnings.filterwarnings("ignore", message=".*Box observation space (minimum|maximum) value is.*infinity.*")
        warnings.filterwarnings("ignore", message=".*environment not having a spec.*")
        check_env(make().unwrapped)


def test_the_registered_environment_is_ocloud_of_the_paper():
    environment = gymnasium.make("sadq.envs.plugin:sadq/OCloud-v0")
    assert environment.observation_space.shape == (43,) and environment.action_space.n == 10
    observation, _ = environment.reset(seed=1)
    assert observation.dtype == np.float32 and observation in environment.observation_space


def test_a_seed_fixes_everything_that_follows():
    environment, other = (gymnasium.make("sadq/OCloud-v0", **SMALL) for _ in range(2))
    first, second = played(environment, 7, 30), played(other, 7, 30)
    for left, right in zip(first, second, strict=True):
        np.testing.assert_array_equal(left, right)
    again = played(environment, 7, 30)
    np.testing.assert_array_equal(
        np.concatenate([np.ravel(part) for part in again]), np.concatenate([np.ravel(part) for part in first])
    )
    assert not np.array_equal(played(environment, 8, 1)[0], first[0])
    starts = [environment.reset()[0] for _ in range(2)]
    assert not np.array_equal(*starts)


def test_measures_come_with_the_end_of_an_episode():
    environment = gymnasium.make("sadq/OCloud-v0", **SMALL)
    environment.reset(seed=0)
    for step in range(12):
        _, reward, terminated, truncated, info = environment.step(step % 4)
        assert type(reward) is float and not terminated and truncated == (step == 11)
        assert ("measures" in info) == (step == 11)
    assert set(info["measures"]) == {"mean_latency", "mean_power", "mean_waited", "final_waiting", "lost_tasks"}
    assert all(type(value) is float for value in info["measures"].values())
    assert environment.unwrapped.state.decisions == 12


def test_an_environment_without_measures_has_none():
    environment = NativeEnvironment(BitFlip(bits=1))
    environment.reset(seed=0)
    _, reward, terminated, truncated, info = environment.step(0)
    assert reward == 1.0 and terminated and not truncated and info == {"measures": {}}


def test_illegal_actions_are_named():
    class Masked(BitFlip):
        def legal(self, observation):
            return observation[: self.bits] != observation[self.bits :]

    environment = NativeEnvironment(Masked(bits=4))
    observation, info = environment.reset(seed=0)
    np.testing.assert_array_equal(info["action_mask"], observation[:4] != observation[4:])


def test_misuse_is_told():
    environment = NativeEnvironment(BitFlip(bits=2))
    with pytest.raises(SadqError, match="used before it was reset"):
        environment.step(0)
    environment.reset(seed=0)
    for action in (2, -1, 0.5):
        with pytest.raises(SadqError, match="expected 0 to 1"):
            environment.step(action)


def test_registration_is_repeatable_and_loads_no_jax():
    plugin.register_environments()
    assert "sadq/OCloud-v0" in gymnasium.registry
    command = "import sys, sadq.envs.plugin; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", command]).returncode == 0
