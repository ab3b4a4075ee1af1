"""What charts are made of: round ticks, thinned traces, profiles, colours, and paths that odd data cannot break."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sadq.report import charts
from sadq.report.charts import Chart
from sadq.report.lines import lines_of
from sadq.report.runs import load_all
from sadq.report.scales import compact, scale_of, steps_scale
from sadq.report.stats import Estimate
from sadq.report.styles import COLOURS, GREY, Style, sheet, styles_of
from sadq.report.traces import POINTS, grid_of, profile_of, reached_by, thinned, trace_of

Make = Callable[..., Path]
STYLES = {"a": Style("#111111", "#EEEEEE", "-"), "b": Style("#222222", "#DDDDDD", "--")}


def test_ticks_are_round_and_inside() -> None:
    assert steps_scale(40_320).ticks == (0, 10_000, 20_000, 30_000, 40_000)
    scale = scale_of([np.array([0.0, 1.0, np.nan])])
    assert scale.low < 0 < 1 < scale.high
    np.testing.assert_allclose(scale.ticks, [0, 0.2, 0.4, 0.6, 0.8, 1.0])
    np.testing.assert_allclose(scale([scale.low, scale.high]), [0, 1])
    flat = scale_of([np.array([5.0, 5.0])])
    assert flat.low < 5 < flat.high and 5 in flat.ticks
    assert scale_of([np.array([np.nan])]).ticks


def test_a_logarithmic_scale_has_decades_and_cuts_zero_off() -> None:
    scale = scale_of([np.array([0.0, 1e-4, 1.0])], logarithmic=True)
    np.testing.assert_allclose(scale.ticks, [1e-4, 1e-3, 1e-2, 0.1, 1])
    low, middle = scale([0.0, 1e-2])
    assert low == 0 and 0.45 < middle < 0.55


@pytest.mark.parametrize(
    ("value", "words"),
    [(40_000, "40k"), (1.5e6, "1.5M"), (0.25, "0.25"), (-100, "−100"), (0, "0"), (2e-5, "2e−5"), (5e-4, "5e−4")],
)
def test_tick_labels_are_short(value: float, words: str) -> None:
    assert compact(value) == words


@pytest.mark.parametrize("offset", [0.0, 123_456.0, -5e6, 1e9])
@pytest.mark.parametrize("range_", [0.3, 1.0, 7.0, 1e4])
def test_no_two_ticks_read_alike(offset: float, range_: float) -> None:
    scale = scale_of([np.array([offset, offset + range_])])
    words = [word for _, word in scale.words()]
    assert len(set(words)) == len(words) > 2, words
    assert all(len(word) < 16 for word in words), words


def test_ticks_are_as_short_as_they_can_be() -> None:
    assert [word for _, word in scale_of([np.array([123_450.0, 123_460.0])]).words()][:2] == ["123.45k", "123.452k"]
    assert [word for _, word in scale_of([np.array([0.0, 0.9])]).words()][:3] == ["0", "0.2", "0.4"]


def test_long_curves_are_thinned_without_losing_their_mean() -> None:
    steps, values = np.arange(10_001), np.vstack([np.arange(10_001.0), np.full(10_001, np.nan)])
    values[0, 50] = np.nan
    thin_steps, thin = thinned(steps, values)
    assert thin_steps.size <= POINTS and thin.shape == (2, thin_steps.size)
    np.testing.assert_allclose(thin[0], thin_steps)
    assert np.isnan(thin[1]).all()


def test_a_smoothed_trace_ends_at_the_final_score(make_run: Make) -> None:
    (line,) = lines_of(load_all([make_run("a", curves=[[0.0] * 55 + [1, 2, 3, 4, 5]])]))
    trace = trace_of(line, line.curves["returns"], True, 0)
    assert trace.mean[-1] == line.scores()["final_return"][0] == 3


def test_a_profile_is_the_share_of_runs_at_or_above() -> None:
    scores = np.array([1.0, 2.0, 2.0, 5.0])
    grid = grid_of([scores])
    assert (grid[0], grid[-1], grid.size) == (1, 5, 101)
    trace = profile_of("a", [scores], np.array([1.0, 1.5, 2.0, 5.0]), 0)
    np.testing.assert_allclose(trace.mean, [1, 0.75, 0.75, 0.25])
    assert (trace.low <= trace.mean).all() and (trace.mean <= trace.high).all()
    # Every environment counts alike, however many seeds it has.
    both = profile_of("a", [np.array([0.0, 0.0, 0.0]), np.array([1.0])], np.array([0.5]), 0)
    assert both.mean.tolist() == [0.5]
    assert grid_of([np.array([3.0, 3.0])]).size == 0


def test_a_seed_that_never_arrives_is_never_counted(make_run: Make) -> None:
    (line,) = lines_of(load_all([make_run("a", curves=[(0, 1, 1), (0, 0, 0)])]))
    trace = reached_by(line, 0.9, 0)
    assert trace.mean.tolist() == [0, 0.5, 0.5]
    (line,) = lines_of(load_all([make_run("b", curves=[(0, 0, 1), (0, 1, 0)])]))
    assert reached_by(line, 1.0, 0).mean.tolist() == [0, 0.5, 1], "one at the very last evaluation, one that fell back"


def test_the_table_of_a_curve_says_nothing_where_a_run_was_not_yet(make_run: Make) -> None:
    folders = [make_run("long", "dqn", [(0, 1, 2, 3)]), make_run("short", "c51", [(0, 9)], finished=False)]
    lines = lines_of(load_all(folders))
    traces = [trace_of(line, line.curves["returns"], False, 0) for line in lines]
    drawn = charts.curves(Chart("Return", "", "Return"), traces, styles_of(lines))
    rows = re.findall(r"<td>(.*?)</td>", drawn.partition("<tbody>")[2])
    assert rows == ["0.00", "0.00", "1.00", "9.00", "2.00", "", "3.00", ""]


def test_twins_share_a_colour_and_keep_it(make_run: Make) -> None:
    agents = ["dqn", "dqn+sadq", "double", "double+sadq", "c51"]
    lines = lines_of(load_all([make_run(agent, agent) for agent in agents]))
    styles = styles_of(lines)
    assert styles["dqn"].colour == styles["dqn+sadq"].colour != styles["double"].colour
    assert [styles[agent].dashes for agent in agents] == ["--", "-", "--", "-", "-"]
    alone = styles_of(lines[:2])
    assert alone["dqn"][:2] == GREY != alone["dqn+sadq"][:2]


def test_more_agents_than_colours_still_differ(make_run: Make) -> None:
    agents = [f"agent{index}" for index in range(2 * len(COLOURS))]
    lines = lines_of(load_all([make_run(agent, agent) for agent in agents]))
    assert len(set(styles_of(lines).values())) == len(agents)


def test_all_twelve_pairs_and_two_sweeps_are_told_apart(make_run: Make) -> None:
    agents = [f"agent{index}{twin}" for index in range(12) for twin in ("", "+sadq")]
    pairs = styles_of(lines_of(load_all([make_run(agent, agent) for agent in agents])))
    assert len(set(pairs.values())) == 24
    alphas = [0, 0.2, 0.5, 1]
    runs = [make_run(f"s-{one}", f"{one}+sadq", [(0, 1)] * 4, seeds=[0] * 4, alphas=alphas) for one in ("dqn", "c51")]
    sweeps = styles_of(lines_of(load_all([*runs, make_run("s-base", "c51", [(0, 1)])])))
    assert len(set(sweeps.values())) == 9
    assert sweeps["dqn+sadq, α = 0.5"].colour == sweeps["c51+sadq, α = 0.5"].colour


def test_a_sweep_runs_along_a_scale(make_run: Make) -> None:
    lines = lines_of(load_all([make_run("a", "dqn+sadq", [(0, 1)] * 5, seeds=[0] * 5, alphas=[0, 0.2, 0.5, 0.8, 1])]))
    styles = styles_of(lines)
    assert len({style.colour for style in styles.values()}) == len({style.dark for style in styles.values()}) == 5


def test_lines_are_told_apart_on_both_backgrounds() -> None:
    def luminance(colour: str) -> float:
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for light, dark in (*COLOURS, GREY):
        assert 1.05 / (luminance(light) + 0.05) >= 3  # on white
        assert (luminance(dark) + 0.05) / (luminance("#191F28") + 0.05) >= 3
    rules = sheet(STYLES)
    assert ".line-1{--line:#222222;--dashes:7 4}" in rules and "dark){.line-0{--line:#EEEEEE}" in rules


@pytest.mark.filterwarnings("error")
def test_odd_data_draws_without_a_warning(make_run: Make) -> None:
    gap = float("nan")
    lines = lines_of(load_all([make_run("a", "a", [(0, gap, 1), (gap, gap, gap)]), make_run("b", "b", [(1,)])]))
    traces = [trace_of(line, line.curves["returns"], False, 0) for line in lines]
    for logarithmic in (False, True):
        drawn = charts.curves(Chart("t", "c", "y", logarithmic=logarithmic, mark=0.5), traces, STYLES)
        assert "nan" not in drawn and drawn.count('class="mean"') == 4  # two lines and their keys
    assert charts.curves(Chart("t", "c", "y"), [], STYLES) == charts.strip(Chart("t", "c", ""), [], STYLES) == ""


def test_of_many_lines_the_bands_stand_back(make_run: Make) -> None:
    """As thick as those of a pair they would bury the means."""
    lines = lines_of(load_all([make_run(f"run-{index}", f"agent{index}") for index in range(5)]))
    traces = [trace_of(line, line.curves["returns"], False, 0) for line in lines]
    drawn = [charts.curves(Chart("t", "c", "y"), some, styles_of(lines)) for some in (traces[:4], traces)]
    assert ["crowded" in each.partition(">")[0] for each in drawn] == [False, True]


def test_long_ticks_get_the_room_that_they_need(make_run: Make) -> None:
    lines = lines_of(load_all([make_run("run", "dqn", [(-0.0085, -0.0105), (-0.0091, -0.0102)])]))
    traces = [trace_of(line, line.curves["returns"], False, 0) for line in lines]
    drawn = charts.curves(Chart("t", "c", "y"), traces, styles_of(lines))
    ticks = re.findall(r"%\">([^<]+)</span>", drawn.partition('class="y-ticks"')[2].partition("</div>")[0])
    assert f'style="--letters:{max(map(len, ticks))}"' in drawn and "\N{MINUS SIGN}0.0105" in ticks


def test_a_strip_has_a_dot_per_seed_and_its_interval() -> None:
    rows = [
        ("a", np.array([1.0, np.nan, 3.0]), Estimate(2.0, 1.0, 3.0, 2)),
        ("b", np.array([2.0]), Estimate(2.0, None, None, 1)),
    ]
    drawn = charts.strip(Chart("t", "c", "", "Return"), rows, STYLES)
    assert drawn.count('class="seed"') == 3 and drawn.count('class="bar"') == 1
    assert "2.00 [1.00, 3.00]" in drawn
    low, high = re.search(r'class="bar" d="M([\d.]+) 50H([\d.]+)"', drawn).groups()  # type: ignore[union-attr]
    seeds = re.findall(r'class="seed" d="M([\d.]+) ', drawn)
    assert [low, high] == seeds[:2]
