"""Ready-made callbacks: what they keep, when they stop, what they refuse; on runs that cost nothing."""

import numpy as np
import pytest
from stub_runs import CHUNKS, CONFIG, StubLoop
from tiny_models import FIELDS

from sadq import SADQ, SadqError, api
from sadq.callbacks import BestModel, Checkpoints, EarlyStopping, Video
from sadq.experiment.arguments import callbacks_of

EACH = [0, 1, 3, 2, 3]
"""The mean return of the evaluation after as many chunks."""


@pytest.fixture
def agent(stub_loops, monkeypatch) -> SADQ:
    """An agent whose evaluations go up and down."""
    evaluate = StubLoop.evaluate

    def told(self, state, number):
        found = evaluate(self, state, number)
        return found._replace(returns=found.returns * 0 + EACH[min(number, CHUNKS)])

    monkeypatch.setattr(StubLoop, "evaluate", told)
    return SADQ("BitFlip-3", agent="dueling+sadq", alpha=0.2, seeds=2, **FIELDS | {"evaluations": CHUNKS})


def test_the_best_model_is_kept_as_it_was_when_it_was_best(agent, tmp_path):
    best = BestModel(tmp_path / "best")
    agent.learn(CONFIG.steps, callback=best)
    assert best.best == 3.0
    assert SADQ.load(tmp_path / "best").num_timesteps == 16, "the first of two that are as good"
    with pytest.raises(SadqError, match="nothing to learn on from"):
        SADQ.load(tmp_path / "best").learn(8)
    agent.learn(8, callback=BestModel(tmp_path / "whole", policy_only=False))
    assert SADQ.load(tmp_path / "whole").learn(8).num_timesteps == CONFIG.steps + 16


@pytest.mark.parametrize(
    ("settings", "stops"),
    [
        ({"threshold": 3.0}, 16),
        ({"threshold": 1.0}, 8),
        ({"threshold": 9.0}, CONFIG.steps),
        ({"patience": 1}, 24),
        ({"patience": 2}, 32),
        ({"patience": 9, "threshold": 2.5}, 16),
    ],
)
def test_training_stops_when_it_is_good_or_gets_no_better(agent, settings, stops):
    assert agent.learn(CONFIG.steps, callback=EarlyStopping(**settings)).num_timesteps == stops


def test_early_stopping_without_a_reason_is_refused():
    with pytest.raises(SadqError, match="neither threshold nor patience"):
        EarlyStopping()


def test_an_evaluation_of_the_training_before_is_not_counted_again(agent):
    patient = EarlyStopping(patience=2)
    agent.learn(16, callback=patient).learn(8, callback=patient)
    assert (patient.best, patient.since, agent.num_timesteps) == (3.0, 1, 24)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: EarlyStopping(threshold="9"), "threshold = '9' must be a number"),
        (lambda: EarlyStopping(threshold=float("nan")), "threshold = nan must be a number"),
        (lambda: EarlyStopping(patience="9"), "patience = '9' must be a whole number of at least 1"),
        (lambda: EarlyStopping(patience=0), "patience = 0 must be"),
        (lambda: BestModel(None), "None is no path"),
        (lambda: Checkpoints(None, 5), "None is no path"),
        (lambda: callbacks_of([print, BestModel]), "BestModel'> is a class: give an object of it"),
    ],
)
def test_settings_that_are_none_are_refused_at_once(made, words):
    with pytest.raises(SadqError, match=words):
        made()


def test_an_interval_may_be_numpys(tmp_path):
    assert Checkpoints(tmp_path, np.int64(16)).every == 16


def test_checkpoints_are_kept_every_so_many_steps(agent, tmp_path):
    agent.learn(8).learn(CONFIG.steps - 8, callback=[Checkpoints(tmp_path, 16)])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000000016", "000000032"]
    assert SADQ.load(tmp_path / "000000016").learn(8).num_timesteps == 24


@pytest.mark.parametrize("every", [0, -1, 1.5, "often", True])
def test_an_interval_that_is_none_is_refused(tmp_path, every):
    for kind in (Checkpoints, Video):
        with pytest.raises(SadqError, match=f"{kind.__name__}: every = {every!r} must be a whole number"):
            kind(tmp_path, every)


def test_what_cannot_be_filmed_is_refused_before_anything_is_learned(agent, tmp_path):
    with pytest.raises(SadqError, match="environment BitFlip-3 cannot be drawn"):
        agent.learn(CONFIG.steps, callback=Video(tmp_path, 16))
    assert agent.num_timesteps == 0


def test_films_are_made_every_so_many_steps(agent, tmp_path, monkeypatch):
    monkeypatch.setattr("sadq.callbacks.check_video", lambda *_: None)
    filmed = []
    monkeypatch.setattr(api, "film_experiment", lambda experiment, path: filmed.append((experiment.step, path)))
    agent.learn(CONFIG.steps, callback=Video(tmp_path, 12))
    assert filmed == [(step, tmp_path / f"{step:09d}.gif") for step in (16, 24)]


def test_callbacks_hear_of_the_end_however_it_came(agent):
    heard = []

    class Following:
        def begin(self, model):
            heard.append(("begin", model.num_timesteps, len(model.evaluations)))

        def __call__(self, progress):
            if progress.step == 16:
                raise ZeroDivisionError

        def end(self):
            heard.append("end")

    with pytest.raises(ZeroDivisionError):
        agent.learn(CONFIG.steps, callback=[Following(), print])
    assert heard == [("begin", 0, 2), "end"]


def test_an_evaluation_can_be_had_at_any_time(model):
    steps = model.num_timesteps
    first, again = model.evaluate(5), model.evaluate(5)
    assert first == again and len(first[0]["returns"]) == 5 and first[0]["seed"] == 0
    assert model.num_timesteps == steps
    for episodes in (0, 1.5, "many"):
        with pytest.raises(SadqError, match="evaluate was asked for .* episodes: expected a whole number"):
            model.evaluate(episodes)
