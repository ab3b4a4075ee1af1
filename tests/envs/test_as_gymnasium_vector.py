"""Many native environments as one gymnasium.vector.VectorEnv: each is what it would be alone."""

import gymnasium
import numpy as np
import pytest

import sadq.envs.plugin  # noqa: F401  registers the environments
from sadq.envs.as_gymnasium import NativeEnvironment
from sadq.envs.as_gymnasium_vector import NativeVectorEnvironment
from sadq.envs.native import BitFlip
from sadq.errors import SadqError

SMALL = {"servers": 4, "warmup_tasks": 40, "max_steps": 12}


def assert_each_is_itself(together, alone, steps, seed=5):
    """Copies of a vector against single environments with the same actions, resets at the following step included."""
    random, ended = np.random.default_rng(1), [False] * len(alone)
    seen, _ = together.reset(seed=seed)
    for index, one in enumerate(alone):
        np.testing.assert_array_equal(seen[index], one.reset(seed=seed + index)[0])
    assert seen in together.observation_space
    ends = 0
    for _ in range(steps):
        actions = random.integers(together.single_action_space.n, size=together.num_envs)
        seen, reward, terminated, truncated, infos = together.step(actions)
        for index, one in enumerate(alone):
            begins = ended[index]
            expected = (one.reset()[0], 0.0, False, False, {}) if begins else one.step(actions[index])
            np.testing.assert_allclose(seen[index], expected[0], rtol=1e-5)
            assert reward[index] == pytest.approx(expected[1], rel=1e-5)
            assert (terminated[index], truncated[index]) == expected[2:4]
            ended[index] = expected[2] or expected[3]
            if ended[index] and "measures" in expected[4] and expected[4]["measures"]:
                ends += 1
                assert infos["_measures"][index]
                for name, value in expected[4]["measures"].items():
                    assert (
                        infos["measures"][name][index] == pytest.approx(value) and infos["measures"]["_" + name][index]
                    )
    return ends


def test_episodes_of_any_length_restart_by_themselves():
    """BitFlip ends when it is solved, so that copies end at different steps."""
    together = NativeVectorEnvironment(BitFlip(bits=2), 3)
    assert_each_is_itself(together, [NativeEnvironment(BitFlip(bits=2)) for _ in range(3)], 25)


def test_make_vec_steps_them_together():
    together = gymnasium.make_vec("sadq/OCloud-v0", num_envs=2, **SMALL)
    assert isinstance(together.unwrapped, NativeVectorEnvironment)
    assert together.observation_space.shape[0] == 2 and together.metadata["autoreset_mode"].value == "NextStep"
    alone = [gymnasium.make("sadq/OCloud-v0", **SMALL) for _ in range(2)]
    assert assert_each_is_itself(together, alone, 30) == 4
    one = together.reset(seed=[3, None])[0][0]
    np.testing.assert_array_equal(together.reset(seed=[3, 4])[0][0], one)


def test_cityflow_is_among_them():
    small = {"rows": 1, "columns": 1, "seconds": 15, "green_seconds": 8, "yellow_seconds": 2}
    together = gymnasium.make_vec("sadq/CityFlow-v0", num_envs=4, **small)
    seen, infos = together.reset(seed=0)
    assert seen.shape == (4, 44) and seen.dtype == np.float32 and infos == {}
    ended = [together.step(np.arange(4))[3].tolist() for _ in range(3)]
    assert ended == [[False] * 4, [True] * 4, [False] * 4]
    assert len({row.tobytes() for row in together.step(np.arange(4))[0]}) == 4


def test_misuse_is_told():
    together = NativeVectorEnvironment(BitFlip(bits=2), 2)
    with pytest.raises(SadqError, match="before it was reset"):
        together.step([0, 0])
    together.reset(seed=0)
    for actions in ([0], [0, 2], [0.0, 1.0], [[0, 1]]):
        with pytest.raises(SadqError, match="expected 2 whole numbers from 0 to 1"):
            together.step(actions)
    with pytest.raises(SadqError, match="got 3 seeds"):
        together.reset(seed=[1, 2, 3])
    with pytest.raises(SadqError, match="num_envs is 0"):
        NativeVectorEnvironment(BitFlip(bits=2), 0)
    with pytest.raises(SadqError, match="native engine only.*vectorization_mode"):
        gymnasium.make_vec("sadq/CityFlow-v0", num_envs=2, engine="cityflow")
