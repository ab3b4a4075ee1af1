"""Every breach of the host contract is told in one sentence that names the environment."""

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from sample_environments import Broken, Spaces, Walk

from sadq.envs import HostEnvironments, make
from sadq.errors import SadqError, SadqWarning


def refusal(action):
    with warnings.catch_warnings(), pytest.raises(SadqError) as caught:
        warnings.simplefilter("error")
        action()
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    "observations,actions,words",
    [
        (None, spaces.Box(-1, 1, (1,)), ["action space Box", "expected Discrete"]),
        (None, spaces.MultiDiscrete([65, 64]), ["65 x 64 = 4,160 joint actions", "expected at most 4,096"]),
        (spaces.Box(0, 1, (4, 0)), None, ["expected a Box", "at least one entry"]),
        (spaces.Dict({"a": spaces.Text(4)}), None, ["in which Text", "expected a Box"]),
    ],
)
def test_spaces(observations, actions, words):
    text = refusal(lambda: make(lambda: Spaces(observations, actions)))
    assert all(word in text for word in ["environment Spaces has", *words])


@pytest.mark.parametrize("problem", [RuntimeError("none yet"), AttributeError("none")])
def test_spaces_that_cannot_be_asked_for(problem):
    class Shy(Walk):
        @property
        def action_space(self):
            raise problem

        @action_space.setter
        def action_space(self, _):
            pass

    assert "environment Shy does not tell its spaces (" in refusal(lambda: make(Shy))


@pytest.mark.parametrize("given", [lambda made: made, lambda made: made(), lambda made: lambda: made()])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_failure_in_close_is_said_and_ends_nothing(given, workers):
    class Stuck(Walk):
        def close(self):
            raise RuntimeError("still open")

    with pytest.warns(SadqWarning, match="environment Stuck failed in close: RuntimeError: still open"):
        environments = HostEnvironments(make(given(Stuck)), [0], 2, workers=workers)
        environments.reset()
        environments.step(np.zeros((1, 2), int))
        environments.close()


@pytest.mark.parametrize("space", [spaces.MultiBinary(3), spaces.Box(-1, 1, (3,))])
def test_vector_spaces_are_taken(space):
    spec = make(lambda: Spaces(space))
    assert (spec.observation_shape, spec.observation_dtype) == ((3,), np.float32)


@pytest.mark.parametrize(
    "space,dtype",
    [
        (spaces.Box(0, 255, (4, 4), np.uint8), np.uint8),
        (spaces.Box(0, 1, (4, 4, 1), np.float64), np.float32),
        (spaces.Box(-9, 9, (4, 4), np.int8), np.float32),
        (spaces.Box(0, 1, (4, 4), np.bool_), np.float32),
        (spaces.MultiBinary([2, 2]), np.float32),
    ],
)
def test_arrays_of_any_shape_are_taken(space, dtype):
    shown = np.zeros(space.shape, space.dtype)
    spec = make(lambda: Spaces(space, shown=shown))
    assert (spec.observation_shape, spec.observation_dtype) == (space.shape, dtype)
    observations, _ = HostEnvironments(spec, [0], 2, workers=0).reset()
    assert observations.shape == (1, 2, *space.shape) and observations.dtype == dtype


BYTES = spaces.Box(0, 255, (2, 2), np.uint8)


@pytest.mark.parametrize("shown", [[[0, 255], [3, 4]], np.array([[0.0, 255.0], [3.0, 4.0]]), np.ones((2, 2), bool)])
def test_bytes_may_come_as_other_numbers(shown):
    observations, _ = HostEnvironments(make(lambda: Spaces(BYTES, shown=shown)), [0], 1, workers=0).reset()
    assert observations.dtype == np.uint8
    np.testing.assert_array_equal(observations[0, 0], shown)


@pytest.mark.parametrize(
    "space,shown,words",
    [
        (BYTES, [[0, 256], [3, 4]], ["an observation with 256", "0 to 255", "uint8"]),
        (BYTES, [[0, -1], [3, 4]], ["an observation with -1"]),
        (BYTES, [[0, 0.5], [3, 4]], ["an observation with 0.5"]),
        (BYTES, [[0, np.nan], [3, 4]], ["an observation with nan"]),
        (BYTES, np.zeros(4, np.uint8), ["shape (4,)", "expected shape (2, 2)"]),
        (BYTES, "picture", ["expected an array of 2 x 2 numbers"]),
        (spaces.Box(0, 1, (2, 2)), [[0, np.inf], [0, 0]], ["an observation with inf", "finite in float32"]),
    ],
)
def test_arrays_are_checked(space, shown, words):
    text = refusal(lambda: make(lambda: Spaces(space, shown=shown)))
    assert all(word in text for word in ["environment Spaces returned", "from reset", *words])


def test_flattened_discrete_observations_work():
    spec = make(lambda: gymnasium.wrappers.FlattenObservation(gymnasium.make("CliffWalking-v1")))
    environments = HostEnvironments(spec, [0], 2, workers=0)
    observations, masks = environments.reset()
    np.testing.assert_array_equal(observations.sum(-1), 1)
    assert spec.observation_shape == (48,) and spec.action_count == 4 and masks is None


FINE = np.zeros(3, np.float32)


@pytest.mark.parametrize(
    "reset,words",
    [
        (FINE, ["reset", "expected (observation, info)"]),
        ((FINE, None), ["reset", "a tuple of 2 (ndarray, NoneType)", "expected (observation, info)"]),
        ((FINE, {}, 0), ["a tuple of 3"]),
        ((np.zeros(4), {}), ["shape (4,)", "expected shape (3,)"]),
        ((np.array([0, np.nan, 0]), {}), ["nan", "from reset", "finite"]),
        ((["a", "b", "c"], {}), ["expected an array of 3 numbers"]),
        (([[1, 2], [3]], {}), ["expected an array of 3 numbers"]),
        (ValueError("no\nlevel"), ["failed in reset: ValueError: no level"]),
    ],
)
def test_reset(reset, words):
    text = refusal(lambda: make(lambda: Broken(reset=reset)))
    assert all(word in text for word in ["environment Broken", *words])


NO_MASK = {"action_mask": np.array([False, False])}


@pytest.mark.parametrize(
    "breach,words",
    [
        ({"step": (FINE, 0.0, False, {})}, ["a tuple of 4", "(observation, reward, terminated, truncated, info)"]),
        ({"step": FINE}, ["from step", "(observation, reward, terminated, truncated, info)"]),
        ({"step": (FINE, 0.0, False, False, None)}, ["a tuple of 5 (ndarray, float, bool, bool, NoneType)"]),
        ({"step": TypeError("bad action")}, ["failed in step: TypeError: bad action"]),
        ({"observation": np.zeros((1, 3))}, ["shape (1, 3)", "expected shape (3,)"]),
        ({"observation": np.float32(0)}, ["shape ()", "expected shape (3,)"]),
        ({"observation": np.zeros(3, complex)}, ["expected an array of 3 numbers"]),
        ({"observation": np.array([np.inf, 0, 0])}, ["inf", "from step", "finite in float32"]),
        ({"observation": np.array([1e300, 0, 0])}, ["1.e+300", "finite in float32"]),
        ({"reward": float("nan")}, ["the reward nan"]),
        ({"reward": 1e300}, ["the reward inf", "finite in float32"]),
        ({"reward": None}, ["the reward None", "one number"]),
        ({"reward": np.zeros(2)}, ["the reward array([0., 0.])", "one number"]),
        ({"terminated": None}, ["terminated = None", "True or False"]),
        ({"truncated": 2}, ["truncated = 2", "True or False"]),
        ({"info": {}}, ["no info['action_mask'] from step", "its first reset gave one"]),
        ({"info": {"action_mask": np.ones(3, bool)}}, ["action_mask array([ True,  True,  True])", "2 booleans"]),
        ({"info": {"action_mask": np.ones(2)}}, ["2 booleans"]),
        ({"info": NO_MASK}, ["without any legal action"]),
        (
            {"info": {"action_mask": np.ones(2, bool)}, "reset_info": {}},
            ["an info['action_mask'] from step", "its first reset gave none"],
        ),
    ],
)
def test_step(breach, words):
    spec = make(lambda: Broken(after=2, **breach))
    environments = HostEnvironments(spec, [0], 1, workers=0)
    environments.reset()
    action = np.zeros((1, 1), np.int32)
    environments.step(action)
    environments.step(action)
    text = refusal(lambda: environments.step(action))
    assert all(word in text for word in ["environment Broken", *(" ".join(word.split()) for word in words)])


def test_a_mask_without_legal_actions_at_reset():
    assert "without any legal action" in refusal(lambda: make(lambda: Broken(reset_info=NO_MASK)))


@pytest.mark.parametrize(
    "space,mask", [(spaces.MultiDiscrete([3, 2]), ([1, 1], [1, 1, 1])), (spaces.Discrete(2), [[1], [1, 0]])]
)
def test_a_mask_of_rows_of_different_lengths(space, mask):
    made = Broken(reset_info={"action_mask": mask})
    made.action_space = space
    assert "booleans: fix the environment" in refusal(lambda: make(made))


def test_a_mask_that_may_be_of_choices_or_of_joint_actions():
    made = Broken(reset_info={"action_mask": [1, 0, 0, 1]})
    made.action_space = spaces.MultiDiscrete([2, 2])
    assert "an action_mask of 4 entries that may be of choices" in refusal(lambda: make(made))


def test_a_terminated_state_needs_no_legal_action():
    spec = make(lambda: Broken(info=NO_MASK, terminated=True))
    environments = HostEnvironments(spec, [0], 1, workers=0)
    environments.reset()
    step = environments.step(np.zeros((1, 1), np.int32))
    assert step.next_mask.all() and step.mask.sum() == 1


@pytest.mark.parametrize("flag", [np.bool_(True), np.array(True), 1, np.array([True])])
@pytest.mark.parametrize("reward", [1, np.float32(1), np.array(1.0), np.array([1]), True])
def test_flags_and_rewards_may_be_numpy_s(flag, reward):
    spec = make(lambda: Broken(terminated=flag, truncated=flag, reward=reward))
    environments = HostEnvironments(spec, [0], 1, workers=0)
    environments.reset()
    step = environments.step(np.zeros((1, 1), np.int32))
    assert step.terminated.dtype == bool and step.reward.dtype == np.float32
    # Both flags at once: the episode has terminated, so there is nothing to bootstrap from.
    assert step.terminated[0, 0] and not step.truncated[0, 0] and step.reward[0, 0] == 1


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.int8, np.float16])
def test_observations_become_float32(dtype):
    spec = make(lambda: Walk(dtype=dtype))
    environments = HostEnvironments(spec, [5], 1, workers=0)
    observations, _ = environments.reset()
    step = environments.step(np.ones((1, 1), np.int64))
    reference = Walk(dtype=dtype)
    from sadq.envs.group import Slot, episode_seed

    first, _ = reference.reset(seed=episode_seed(Slot(5, 0), "collect", 0))
    for mine, theirs in [(observations, first), (step.next_observation, reference.step(1)[0])]:
        assert mine.dtype == np.float32
        np.testing.assert_array_equal(mine[0, 0], theirs.astype(np.float32))


def test_actions_are_counted_from_the_space_s_start():
    spec = make(lambda: Walk(start=5, actions=3))
    environments = HostEnvironments(spec, [0], 2, workers=0)
    environments.reset()
    environments.step(np.array([[0, 2]]))
    assert [environment.taken for environment in environments._runner._environments] == [[0], [2]]


@pytest.mark.parametrize("actions", [np.zeros((2, 1), int), np.zeros((1, 2)), [[0, 2]], [[0, -2]]])
def test_actions_are_checked(actions):
    environments = HostEnvironments(make(Walk), [0], 2, workers=0)
    environments.reset()
    assert "environment Walk got actions" in refusal(lambda: environments.step(np.asarray(actions)))


def test_use_before_reset():
    environments = HostEnvironments(make(Walk), [0], 1, workers=0)
    assert "reset" in refusal(lambda: environments.step(np.zeros((1, 1), int)))
    assert "reset" in refusal(environments.state)


@pytest.mark.parametrize("seeds,count", [([], 1), ([0], 0), ([-1], 1), ([0.5], 1)])
def test_seeds_and_sizes_are_checked(seeds, count):
    assert "environment Walk got seeds" in refusal(lambda: HostEnvironments(make(Walk), seeds, count, workers=0))


@pytest.mark.parametrize("workers", [-1, "many", True, 1.5])
def test_workers_are_checked(workers):
    assert "workers is" in refusal(lambda: HostEnvironments(make(Walk), [0], 1, workers=workers))


def test_a_factory_must_make_new_environments():
    only = Walk()
    spec = make(lambda: only)
    assert "same object" in refusal(lambda: HostEnvironments(spec, [0], 2, workers=0))
