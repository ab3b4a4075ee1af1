"""Where a run may pause and where it evaluates, and who its members are."""

import dataclasses
import itertools

import pytest
import tiny_runs
from hypothesis import given
from hypothesis import strategies as st

from sadq.experiment.build import MAX_CHUNK, Timetable, members_of
from sadq.experiment.config import Config

timetables = st.builds(
    lambda steps, evaluations, origin: (steps, origin, Timetable.of(planned(origin * 64 + steps, evaluations), origin)),
    steps=st.integers(1, 2_000_000),
    evaluations=st.integers(1, 300),
    origin=st.integers(0, 5_000),
)


def planned(steps, evaluations=100):
    return Config(agent="dqn", target_update_interval=100, steps=steps, evaluations=evaluations)


@given(timetables)
def test_a_timetable_covers_the_steps_and_exceeds_them_by_less_than_a_chunk(case):
    steps, origin, table = case
    assert 0 <= (table.end - origin) * 64 - steps < table.chunk * 64


@given(timetables)
def test_a_timetable_is_made_of_whole_chunks(case):
    _, origin, table = case
    assert 1 <= table.chunk <= MAX_CHUNK
    assert (table.end - origin) % table.chunk == 0
    assert table.interval % table.chunk == 0


@given(timetables)
def test_a_timetable_evaluates_at_its_start_at_its_end_and_at_a_fixed_interval(case):
    _, origin, table = case
    evaluated = [collect for collect in range(origin, table.end + 1, table.chunk) if table.evaluates(collect)]
    assert evaluated[0] == origin
    assert evaluated[-1] == table.end
    assert {after - before for before, after in itertools.pairwise(evaluated[:-1])} <= {table.interval}


def test_a_timetable_evaluates_at_least_as_often_as_asked():
    for steps in range(64, 64 * 10_000, 640):
        table = Timetable.of(planned(steps))
        evaluations = -(-table.end // table.interval)
        assert evaluations >= min(100, table.end), steps


def test_a_timetable_does_not_evaluate_much_more_often_than_asked():
    for steps in range(64 * 2_000, 64 * 10_000, 640):
        table = Timetable.of(planned(steps))
        assert table.end / table.interval < 1.1 * 100, steps


def test_where_training_may_pause_does_not_depend_on_where_it_paused_before():
    assert Timetable.of(planned(6_400, 10)) == Timetable(origin=0, end=100, chunk=10, interval=10)
    assert Timetable.of(planned(12_800, 10), origin=100) == Timetable(origin=100, end=200, chunk=10, interval=10)


@pytest.mark.parametrize(
    ("steps", "kept", "end", "chunk", "interval"),
    [
        (6_400, 20, 200, 20, 20),  # a multiple of it
        (6_400, 7, 205, 7, 7),  # less than a tenth too many
        (6_400, 30, 200, 10, 10),  # too many: planned as if there were none
        (640, 10, 110, 10, 10),
        (576, 10, 109, 1, 1),
    ],
)
def test_further_training_keeps_its_chunk_where_little_is_overshot(steps, kept, end, chunk, interval):
    table = Timetable.of(planned(6_400 + steps, 10), 100, kept)
    assert table == Timetable(100, end, chunk, interval)


def test_members_are_the_product_of_every_sweep_and_the_seeds():
    config = dataclasses.replace(
        tiny_runs.TINY,
        alpha=(0.0, 0.2, 1.0),
        learning_rate=(1e-3, 1e-4),
        discount=(0.9, 0.99),
        epsilon=dataclasses.replace(tiny_runs.TINY.epsilon, start=(1.0, 0.5), end=(0.1, 0.0), decay=(10.0, 20.0)),
        seeds=(3, 7, 9),
    )
    members = members_of(config)
    seen = {tuple(member.values()) for member in members}
    expected = itertools.product(
        (0.0, 0.2, 1.0), (1e-3, 1e-4), (0.9, 0.99), (1.0, 0.5), (0.1, 0.0), (10.0, 20.0), (3, 7, 9)
    )
    assert len(members) == 3 * 2 * 2 * 2 * 2 * 2 * 3
    assert seen == set(expected)
    assert [member["seed"] for member in members[:4]] == [3, 7, 9, 3], "seeds vary fastest, so pairs stand together"
