"""Learning beside the next collect: the same updates as after each, by actions of networks that are one collect older."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sadq.errors import SadqError
from sadq.experiment.config import Epsilon
from sadq.fleet import host_loop as module
from sadq.fleet.host_learning import AfterEach, BesideNext, Row
from small_fleets import host_loop
from tiny import CHUNK, config, difference, loop_of


class OneOlder(AfterEach):
    """What `BesideNext` must come to, in a row: networks act, and are drawn from, as they were a collect ago."""

    def __init__(self, fleet, member, *rest):
        super().__init__(fleet, member, *rest)
        self.structure = jax.tree.structure(member.learner.online.parameters)

    def begin(self, state, hyper):
        super().begin(state, hyper)
        self.acting = [jnp.copy(leaf) for leaf in super().networks]

    @property
    def networks(self):
        return self.acting

    def memory(self, collect):
        networks, kept = jax.tree.unflatten(self.structure, self.acting), super().memory(collect)
        one_by_one = [jax.tree.map(lambda leaf: leaf[at], (networks, self._hyper, kept)) for at in range(2)]  # noqa: B023
        begun = [self._fleet.begun(own, hyper, jnp.int32(collect), memory) for own, hyper, memory in one_by_one]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *begun)

    def collected(self, *collect):
        self.acting = [jnp.copy(leaf) for leaf in super().networks]
        super().collected(*collect)


def lived(made):
    loop = host_loop(made)
    state, told = loop.start(), []
    for index in range(2):
        state, metrics = loop.advance(state, index * CHUNK)
        told.append(metrics)
    return state, told


LATE = {"learning_starts": 36, "target_update_interval": 36, "soft_target_rate": None, "replay": "prioritised"}


@pytest.mark.parametrize(
    ("agent", "fields", "one_by_one"),
    [
        ("dqn+sadq", LATE, True),
        ("dqn+sadq", LATE, False),
        pytest.param("bdqn", {}, True, marks=pytest.mark.thorough),
    ],
)
def test_a_collect_is_learned_from_beside_the_next_one(agent, fields, one_by_one, monkeypatch):
    """With updates that begin late, a target that is copied and priorities; and with what is drawn once a collect."""
    monkeypatch.setattr(module, "BesideNext", partial(BesideNext, one_by_one=one_by_one))
    fields = fields | {
        "epsilon": Epsilon((0.1,), (0.1,)),
        "learning_rate": (0.01,),
    }  # so that updates soon change actions
    made = config(agent, "BitFlip-4", seeds=(2, 4), environments=2, collect=12, updates_per_collect=4, **fields)
    beside, told = lived(dataclasses.replace(made, overlap=True))
    in_a_row, _ = lived(made)
    monkeypatch.setattr(module, "BesideNext", OneOlder)
    expected, measured = lived(dataclasses.replace(made, overlap=True))
    assert difference(*(state._replace(behaviour=None) for state in (expected, beside))) < 1e-4
    np.testing.assert_array_equal(expected.replay.action, beside.replay.action)
    assert (in_a_row.replay.action != beside.replay.action).any()
    for ours, theirs in zip(told, measured, strict=True):
        assert list(ours) == list(theirs)
        for name, values in theirs.items():
            np.testing.assert_allclose(values, ours[name], rtol=1e-3, atol=1e-4, err_msg=name)


@pytest.fixture
def handing():
    """Learning that has nothing to hand over yet, beside collects of four steps."""
    learning = object.__new__(BesideNext)
    learning._fleet = type("Of", (), {"collect_steps": 4})
    learning._hands, learning._handing = ThreadPoolExecutor(1), []
    yield learning
    learning.close()


def test_updates_are_spread_over_the_steps_of_the_next_collect(handing):
    handed = []
    for parts, expected in ((2, [1, 1, 2, 2]), (4, [1, 2, 3, 4]), (6, [2, 3, 5, 6]), (1, [1, 1, 1, 1])):
        handed.clear()
        handing._waiting, handing._asked = [partial(handed.append, part) for part in range(parts)], 0
        counts = []
        for step in range(4):
            handing.meanwhile(step)
            wait(handing._handing)
            counts.append(len(handed))
        assert counts == expected
        assert handed == list(range(parts))


def test_what_is_left_is_handed_over_before_the_next_collect_is_learned_from(handing):
    handed = []
    handing._waiting, handing._asked = [partial(handed.append, part) for part in range(4)], 0
    handing.meanwhile(0)
    handing._finish()
    assert handed == [0, 1, 2, 3]
    handing._finish()
    assert handed == [0, 1, 2, 3]


def test_an_error_in_an_update_is_raised_where_the_next_collect_is_learned_from(handing):
    def fails():
        raise SadqError("too large")

    handing._waiting, handing._asked = [fails], 0
    handing.meanwhile(0)
    with pytest.raises(SadqError, match="too large"):
        handing._finish()


def test_a_mean_leaves_out_what_was_left_out_and_nothing_else():
    learning, values, model = object.__new__(AfterEach), Row(), Row(gaps=True)
    values.names, model.names = ("loss",), ("model_loss",)
    tell = [(values, [[1.0]]), (model, [[2.0]]), (values, [[np.nan]]), (model, [[np.nan]])]
    learning._rows = [[(row, np.array(told)) for row, told in tell]]
    told = learning._told()
    assert np.isnan(told["loss"]).all() and told["model_loss"] == [[2.0]]


def test_an_environment_in_jax_has_nothing_to_wait_for():
    with pytest.raises(SadqError, match="overlap is for environments outside JAX, and Acrobot-v1 is inside"):
        loop_of(config("dqn", overlap=True))
