"""How far a sweep is: what counts as done, and the time that is left."""

import pytest

from sadq.experiment.run import Progress
from sadq.studies import display
from sadq.studies.display import Display


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets."""
    now = [1000.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
    return now


def progress(step: int, steps: int = 100) -> Progress:
    return Progress(step, steps, 1.5, 250.0, [])


def test_the_time_left_follows_the_pace_of_this_call_alone(clock):
    shown = Display([("a", 300), ("b", 100), ("c", 100)], quiet=True)
    assert shown.share == 0 and shown.seconds_left is None
    shown.reused("b")
    assert shown.share == pytest.approx(0.2) and shown.seconds_left is None
    shown.started("a", 50, 100)  # half of it was made by an earlier call
    assert shown.share == pytest.approx(0.5) and shown.seconds_left is None
    clock[0] += 30
    shown.update("a", progress(75))
    assert shown.share == pytest.approx(0.65) and shown.seconds_left == pytest.approx(30 * 0.35 / 0.15)
    shown.finished("a")
    assert shown.share == pytest.approx(0.8)


def test_a_job_begun_again_after_a_loss_counts_from_where_it_is(clock):
    shown = Display([("a", 100)], quiet=True)
    shown.started("a", 0, 100)
    shown.update("a", progress(80))
    shown.started("a", 40, 100)
    assert shown.share == pytest.approx(0.4)


def test_news_that_arrive_after_the_end_change_nothing(clock, capsys, monkeypatch):
    monkeypatch.setattr(display.sys.stderr, "isatty", lambda: True)
    with Display([("a", 100), ("b", 100)]) as shown:
        shown.started("a", 0, 100, "10.0.0.7, process 5")
        shown.finished("a")
        shown.update("a", progress(50))  # on a cluster what a worker tells and that it is done take different ways
        assert shown.share == 0.5


def test_lines_now_and_then_where_there_is_no_terminal(clock, capsys):
    with Display([("dqn", 100), ("dqn+sadq", 100)]) as shown:
        shown.reused("dqn")
        shown.started("dqn+sadq", 20, 100, "10.0.0.7")
        shown.update("dqn+sadq", progress(30))
        clock[0] += 20
        shown.update("dqn+sadq", progress(60))
        shown.finished("dqn+sadq")
    assert capsys.readouterr().err.splitlines() == [
        "sadq: dqn is finished already",
        "sadq: dqn+sadq (2 of 2) on 10.0.0.7, from step 20 on",
        "dqn+sadq: step 60/100, 250 steps/s, return 1.50; 80% of all, ETA 0:00:20",
    ]


def test_quiet_says_nothing(clock, capsys):
    with Display([("dqn", 100)], quiet=True) as shown:
        shown.started("dqn", 0, 100)
        clock[0] += 20
        shown.update("dqn", progress(50))
    assert capsys.readouterr().err == ""
