"""Spaces as people have them become flat numbers and back, in Gymnasium's own order."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from own_environments import Narrow, Sorting, Switches
from sadq.envs import HostEnvironments, make
from sadq.envs.forms import Form, Misfit, action_form, actions_of, flattened, joint_legal, observation_form
from sadq.errors import SadqError

NESTED = spaces.Dict(
    {
        "b": spaces.Tuple((spaces.Discrete(3, start=-1), spaces.Box(-9, 9, (2, 2), np.int32))),
        "a": spaces.MultiDiscrete([[2, 3], [4, 2]]),
        "c": spaces.Dict({"z": spaces.MultiBinary([2, 2]), "y": spaces.Box(-1, 1, ())}),
    }
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("environment", [Sorting(), Switches(), Narrow(strict=False), Narrow("info", strict=False)])
def test_environments_of_our_own_follow_gymnasium(environment):
    check_env(environment, skip_render_check=True)


@pytest.mark.parametrize(
    "space",
    [
        NESTED,
        spaces.Discrete(4, start=2),
        spaces.MultiDiscrete([3, 2], start=[0, 5]),
        spaces.Tuple((spaces.MultiBinary(3), spaces.Box(0, 255, (2, 3), np.uint8))),
        spaces.Box(-5, 5, ()),
    ],
)
def test_observations_are_flattened_as_gymnasium_flattens_them(space):
    form = observation_form("any", space)
    space.seed(3)
    samples = [space.sample() for _ in range(5)]
    expected = np.stack([spaces.flatten(space, sample) for sample in samples])
    singles = [flattened(form, sample) for sample in samples]
    assert all(single for _, single in singles)
    np.testing.assert_allclose(np.concatenate([row for row, _ in singles]), expected, rtol=1e-6)
    assert form.size == spaces.flatdim(space) and Form.from_json(form.as_json()) == form
    batch = gymnasium.vector.utils.concatenate(
        space, samples, gymnasium.vector.utils.create_empty_array(space, n=5, fn=np.zeros)
    )
    rows, single = flattened(form, batch)
    assert not single
    np.testing.assert_allclose(rows, expected, rtol=1e-6)


@pytest.mark.parametrize(
    "value,words",
    [
        ({"a": 1}, ["the keys a", "a dictionary of a, b, c"]),
        (3, ["3", "a dictionary of a, b, c"]),
        ("b0", ["the value 2 at 0 at 'b'", "from -1 to 1"]),
        ("b1", ["shape (3,) at 1 at 'b'", "shape (2, 2)"]),
        ("tuple", ["at 'b'", "a tuple of 2"]),
        ("text", ["'y'", "an array of shape ()"]),
        ("a", ["at 'a'", "4 whole numbers"]),
        ("mixed", ["one value in some parts"]),
    ],
)
def test_what_is_not_of_the_form_is_told(value, words):
    form = observation_form("any", NESTED)
    odd = NESTED.sample()
    changes = {
        "b0": ("b", (2, odd["b"][1])),
        "b1": ("b", (0, np.zeros(3))),
        "tuple": ("b", (1,)),
        "text": ("c", {"z": odd["c"]["z"], "y": "up"}),
        "a": ("a", np.array([[0, 0], [9, 0]])),
        "mixed": ("a", np.zeros((2, 2, 2), int)),
    }
    if isinstance(value, str):
        odd[changes[value][0]] = changes[value][1]
        value = odd
    with pytest.raises(Misfit) as caught:
        flattened(form, value)
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize(
    "space,words",
    [
        (spaces.Text(3), ["Text", "expected a Box, Discrete"]),
        (spaces.Dict({"a": spaces.Tuple((spaces.Text(3),))}), ["in which Text"]),
        (spaces.Box(0, 1, (4, 0)), ["at least one entry"]),
        (spaces.Discrete(100_000), ["100,000 numbers", "at most 65,536"]),
    ],
)
def test_observation_spaces_without_a_form(space, words):
    with pytest.raises(SadqError) as caught:
        observation_form("any", space)
    assert all(word in str(caught.value) for word in ["environment any has", *words])


def test_joint_actions_are_numbered_by_their_first_entry_first():
    form = action_form("any", spaces.MultiDiscrete([2, 3], start=[0, 7]))
    np.testing.assert_array_equal(actions_of(form, np.array([0, 2, 3, 5])), [[0, 7], [0, 9], [1, 7], [1, 9]])
    flags = action_form("any", spaces.MultiBinary([1, 2]))
    np.testing.assert_array_equal(actions_of(flags, np.array([2])), [[[1, 0]]])
    with pytest.raises(SadqError, match="with at least one choice"):
        action_form("any", spaces.MultiDiscrete([]))
    for wanted in (spaces.MultiDiscrete([50] * 40), spaces.MultiBinary(13)):
        with pytest.raises(SadqError, match="joint actions, expected at most 4,096, for a network"):
            action_form("any", wanted)


def test_joint_actions_have_the_type_of_their_space():
    space = spaces.MultiDiscrete([2, 3], dtype=np.int32)
    form = action_form("any", space)
    assert space.contains(actions_of(form, np.array([5]))[0]) and Form.from_json(form.as_json()) == form
    older = {name: value for name, value in form.as_json().items() if name != "dtype"}
    assert Form.from_json(older).dtype == "int64"
    with pytest.raises(ValueError, match="fit together"):
        Form.from_json(form.as_json() | {"dtype": "float32"})


def test_legality_of_joint_actions_in_every_form():
    form = action_form("any", spaces.MultiDiscrete([2, 3]))
    expected = [False, False, False, True, False, True]
    by_choice = np.array([0, 1], bool), np.array([1, 0, 1], bool)
    for given in (by_choice, np.concatenate(by_choice), np.array(expected), np.reshape(expected, (2, 3))):
        np.testing.assert_array_equal(joint_legal(form, given), expected)


@pytest.mark.parametrize("space", [spaces.MultiDiscrete([2, 2]), spaces.MultiBinary(2)])
def test_a_mask_that_may_be_of_choices_or_of_joint_actions_is_refused(space):
    form, diagonal = action_form("any", space), np.eye(2, dtype=bool)
    with pytest.raises(Misfit, match=r"4 entries that may be of choices .* joint shape \(2, 2\)"):
        joint_legal(form, diagonal.ravel())
    np.testing.assert_array_equal(joint_legal(form, diagonal), [True, False, False, True])
    np.testing.assert_array_equal(joint_legal(form, tuple(diagonal)), [False, True, False, False])


def played(spec, workers):
    """Two episodes of random legal actions: what was seen and earned."""
    environments, random = HostEnvironments(spec, [0, 1], 2, workers=workers), np.random.default_rng(0)
    observation, mask = environments.reset()
    rows = [observation]
    for _ in range(12):
        free = random.random((2, 2, spec.action_count)) * (1 if mask is None else mask)
        step = environments.step(free.argmax(-1))
        mask = step.mask
        rows += [step.observation, step.reward]
    environments.close()
    return rows


@pytest.mark.parametrize("made", [Sorting, Switches, Narrow, lambda: Narrow("info")])
def test_they_are_stepped_here_and_in_workers_alike(made):
    spec = make(made)
    here, there = played(spec, 0), played(spec, 2)
    for one, other in zip(here, there, strict=True):
        np.testing.assert_array_equal(one, other)
    assert here[0].shape == (2, 2, *spec.observation_shape)


def test_masks_of_method_and_info_are_the_same():
    method, info = make(Narrow), make(lambda: Narrow("info"))
    assert method.has_masks and method.mask_method and info.has_masks and not info.mask_method
    for one, other in zip(played(method, 0), played(info, 0), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_method_that_fails_is_told():
    class Failing(Narrow):
        def __init__(self):
            super().__init__("none")

        def action_masks(self):
            return [True] * (4 if self.steps == 0 else 3)

    environments = HostEnvironments(make(Failing), [0], 1, workers=0)
    _, mask = environments.reset()
    with pytest.raises(SadqError, match=r"an action_masks\(\) \[True, True, True\] from step, expected 4 booleans"):
        environments.step(np.flatnonzero(environments._runner._environments[0].mask)[:1][None])


def test_a_picture_in_a_dict_and_integers_are_numbers():
    space = spaces.Dict(
        {"image": spaces.Box(0, 255, (2, 2), np.uint8), "large": spaces.Box(-(2**40), 2**40, (1,), np.int64)}
    )
    rows, _ = flattened(observation_form("any", space), {"image": [[0, 255], [1, 2]], "large": [2**33]})
    np.testing.assert_array_equal(rows, [[0, 255, 1, 2, 2**33]])
