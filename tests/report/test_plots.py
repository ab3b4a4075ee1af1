"""Figures: what they show, in which colours, and that odd data draws too."""

import io
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import matplotlib.image
import numpy as np
import pytest
from matplotlib.figure import Figure

from sadq.report import plots
from sadq.report.comparison import Line, lines_of
from sadq.report.runs import load_all

Make = Callable[..., Path]


def draw(name: str, lines: list[Line], environment: str = "BitFlip") -> Figure:
    """The figure itself, taken at the moment it is saved."""
    taken: list[Figure] = []
    save = Figure.savefig

    def keep(figure: Figure, *arguments: object, **options: object) -> None:
        taken.append(figure)
        save(figure, *arguments, **options)  # type: ignore[arg-type]

    with mock.patch.object(Figure, "savefig", keep):
        assert plots.draw(name, environment, lines, plots.styles_of(lines)) is not None
    return taken[0]


def test_images_are_png_at_150_dpi(make_run: Make) -> None:
    lines = lines_of(load_all([make_run("a", "dqn+sadq", [(0, 1), (0, 2)])]))
    for name in plots.FIGURES:
        image = plots.draw(name, "BitFlip", lines, plots.styles_of(lines))
        assert image is not None and image.startswith(b"\x89PNG")
        height, width, _ = matplotlib.image.imread(io.BytesIO(image)).shape
        assert height == 645 and width in (1080, 1500)


def test_learning_curve_shows_mean_band_and_seeds(make_run: Make) -> None:
    lines = lines_of(load_all([make_run("a", "dqn", [(0, 1, 2), (0, 3, 6)])]))
    figure = draw("learning", lines)
    (axes,) = figure.axes
    assert axes.get_title(loc="left") == "BitFlip: learning curve, 2 seeds"
    assert axes.get_ylabel() == "Return per evaluation episode" and axes.get_xlabel() == "Environment steps"
    thin, mean = axes.lines[:2], axes.lines[2]
    np.testing.assert_array_equal([line.get_ydata() for line in thin], [[0, 1, 2], [0, 3, 6]])
    np.testing.assert_array_equal(mean.get_ydata(), [0, 2, 4])
    band = axes.collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == 0 and band[:, 1].max() == 6


def test_long_evaluations_end_at_the_final_return(make_run: Make) -> None:
    curve = [0.0] * 55 + [1, 2, 3, 4, 5]
    lines = lines_of(load_all([make_run("a", "dqn", [curve])]))
    axes = draw("learning", lines).axes[0]
    assert axes.lines[-1].get_ydata()[-1] == lines[0].scores()["final_return"][0] == 3
    assert "mean of the last 5 evaluations" in axes.get_ylabel()


def test_twins_share_a_colour_and_keep_it(make_run: Make) -> None:
    agents = ["dqn", "dqn+sadq", "double", "double+sadq", "c51"]
    lines = lines_of(load_all([make_run(agent, agent) for agent in agents]))
    styles = plots.styles_of(lines)
    assert styles["dqn"].colour == styles["dqn+sadq"].colour != styles["double"].colour
    assert [styles[agent].dashes for agent in agents] == ["--", "-", "--", "-", "-"]
    alone = plots.styles_of(lines[:2])
    assert alone["dqn"].colour == plots.GREY != alone["dqn+sadq"].colour


def test_more_agents_than_colours_still_differ(make_run: Make) -> None:
    agents = [f"agent{index}" for index in range(2 * len(plots.COLOURS))]
    lines = lines_of(load_all([make_run(agent, agent) for agent in agents]))
    assert len(set(plots.styles_of(lines).values())) == len(agents)


def test_a_sweep_runs_along_a_scale(make_run: Make) -> None:
    alphas = [0.0, 0.2, 0.5, 0.8, 1.0]
    lines = lines_of(load_all([make_run("a", "dqn+sadq", [(0, 1)] * 5, seeds=[0] * 5, alphas=alphas)]))
    assert len({style.colour for style in plots.styles_of(lines).values()}) == 5
    assert len(draw("learning", lines).legends[0].get_texts()) == 5


def test_figures_without_data_are_left_out(make_run: Make) -> None:
    lines = lines_of(load_all([make_run("a", "dqn")]))
    assert plots.draw("model-loss", "BitFlip", lines, plots.styles_of(lines)) is None
    folder = make_run("b", "dqn+sadq")
    for name in ("evaluations.jsonl", "metrics.jsonl"):
        (folder / name).unlink()
    lines = lines_of(load_all([folder]))
    assert not any(plots.draw(name, "BitFlip", lines, plots.styles_of(lines)) for name in plots.FIGURES)


@pytest.mark.filterwarnings("error")
def test_odd_data_draws_without_a_warning(make_run: Make) -> None:
    gap = float("nan")
    folders = [
        make_run("a", "dqn+sadq", [(0, gap, 1), (gap, gap, gap)]),
        make_run("b", "$x_1$ + _", [(1,)]),
        make_run("c", "_hidden", [(5, 5, 5)]),
    ]
    lines = lines_of(load_all(folders))
    for name in plots.FIGURES:
        draw(name, lines, environment="cost $\\frac$")


def test_long_metrics_are_thinned_without_losing_their_mean() -> None:
    steps, values = np.arange(10_001), np.vstack([np.arange(10_001.0), np.full(10_001, np.nan)])
    values[0, 50] = np.nan
    thin_steps, thin = plots._thinned(steps, values)
    assert thin_steps.size <= plots.POINTS and thin.shape == (2, thin_steps.size)
    np.testing.assert_allclose(thin[0], thin_steps)
    assert np.isnan(thin[1]).all()
