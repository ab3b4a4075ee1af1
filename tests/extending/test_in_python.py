"""A user's own entries from Python: chosen by object, class or name; saved, loaded, and learned on to the bit."""

import numpy as np
import pytest
import tiny_runs

from sadq import SADQ, SadqError
from sadq.experiment.config import Epsilon
from sadq.networks import Dense

SIZES = {
    "encoder": Dense((8,)),
    "environments": 2,
    "collect": 8,
    "batch_size": 4,
    "updates_per_collect": 1,
    "buffer_size": 64,
    "evaluations": 2,
    "evaluation_episodes": 2,
    "learning_rate_schedule": "constant",
    "epsilon": Epsilon((0.5,), (0.5,), (1.0,)),
    "n_step": 1,
}
STATES = np.random.default_rng(0).integers(0, 2, (64, 6)).astype(np.float32)


def leaves(model: SADQ) -> dict[str, np.ndarray]:
    return tiny_runs.checkpoint.named_leaves(model._begun().state)


def test_a_head_of_ones_own_is_saved_loaded_and_learned_on(own_process, desk):
    from my_head import Bounded, BoundedHead

    model = SADQ("BitFlip-3", agent="dqn", head=Bounded(high=2.0), **SIZES).learn(64)
    assert isinstance(model._begun().state.learner.online.parameters.head, BoundedHead)
    assert 0 < model.metrics[-1]["q"] < 2
    model.save(desk / "agent")
    loaded = SADQ.load(desk / "agent")
    assert loaded.config.head == Bounded(high=2.0)
    np.testing.assert_array_equal(loaded.predict(STATES)[0], model.predict(STATES)[0])
    mine, theirs = leaves(loaded.learn(32)), leaves(model.learn(32))
    assert mine.keys() == theirs.keys()
    for name, value in mine.items():
        assert value.tobytes() == theirs[name].tobytes(), name


def test_an_agent_with_an_entry_that_nobody_imported_is_refused(own_process, desk):
    from my_head import Bounded

    model = SADQ("BitFlip-3", agent="dqn", head=Bounded(), **SIZES)
    model.predict(STATES)
    model.save(desk / "agent")
    own_process.close()
    with pytest.raises(SadqError, match="head = 'bounded' is unknown: expected .*--import"):
        SADQ.load(desk / "agent")


def test_an_entry_is_chosen_by_object_class_or_name(own_process):
    from my_exploration import Again, Boltzmann, Ladder
    from my_head import Bounded

    for given in (Bounded(), Bounded, "bounded"):
        assert SADQ("BitFlip-3", agent="dqn", head=given, **SIZES).config.head == Bounded()
    for given, field in ((Ladder(base=0.5), "exploration"), (Again, "deviation"), ("boltzmann", "intended")):
        config = SADQ("BitFlip-3", agent="dqn", exploration=given, **SIZES).config
        chosen = {name for name in ("exploration", "intended", "deviation") if getattr(config, name) is not None}
        assert chosen == {field}
    assert SADQ("BitFlip-3", agent="dqn", exploration=Ladder(0.5), **SIZES).config.behaviour == Ladder(0.5)
    assert SADQ("BitFlip-3", agent="dqn", exploration=Boltzmann, **SIZES).config.behaviour.intended == Boltzmann()


def test_a_behaviour_of_ones_own_is_what_acts(own_process):
    """Each by what only it does: the whole one by its ladder of rates, an intention by its temperature."""
    from my_exploration import Boltzmann, Ladder

    many = np.repeat(STATES[:1], 8000, axis=0)

    def shares(**fields) -> np.ndarray:
        model = SADQ("BitFlip-3", agent="dqn", **(SIZES | fields))
        best = model.predict(STATES[0])[0]
        return (model.predict(many, deterministic=False)[0] != best).reshape(8, -1).mean(axis=1)

    ladder = shares(exploration=Ladder(base=0.6))
    assert ladder[0] > 0.25 and ladder[-1] < 0.05 and (np.diff(ladder) < 0.02).all()
    warm, cold = (shares(exploration=Boltzmann(temperature=one), deviation="never").mean() for one in (100.0, 1e-4))
    assert warm == pytest.approx(2 / 3, abs=0.03) and cold < 0.05
