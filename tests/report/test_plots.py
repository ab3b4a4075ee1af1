"""Figures: what they show, in which colours, and that odd data draws too."""

import io
from collections.abc import Callable
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from matplotlib.figure import Figure

from sadq.report import plots
from sadq.report.lines import Line, lines_of
from sadq.report.runs import load_all
from sadq.report.styles import styles_of

Make = Callable[..., Path]


def draw(name: str, lines: list[Line], environment: str = "BitFlip") -> Figure:
    figure = plots.draw(name, environment, lines, styles_of(lines))
    assert figure is not None
    return figure


def test_images_are_png_at_150_dpi(make_run: Make) -> None:
    lines = lines_of(load_all([make_run("a", "dqn+sadq", [(0, 1), (0, 2)])]))
    for name in ("learning", "model-loss"):
        image = plots.saved(draw(name, lines), "png")
        height, width, _ = matplotlib.image.imread(io.BytesIO(image)).shape
        assert height == 645 and width == {"learning": 1080, "model-loss": 1500}[name]


def test_what_an_environment_measures_has_a_figure(make_run: Make) -> None:
    lines = lines_of(load_all([make_run("a", measures={"throughput": 7.0})]))
    (axes,) = draw("throughput", lines).axes
    assert axes.get_ylabel() == "Throughput" and axes.lines[-1].get_ydata().tolist() == [7, 14]


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


def test_a_sweep_runs_along_a_scale(make_run: Make) -> None:
    alphas = [0.0, 0.2, 0.5, 0.8, 1.0]
    lines = lines_of(load_all([make_run("a", "dqn+sadq", [(0, 1)] * 5, seeds=[0] * 5, alphas=alphas)]))
    assert len(draw("learning", lines).legends[0].get_texts()) == 5


def test_figures_without_data_are_left_out(make_run: Make) -> None:
    lines = lines_of(load_all([make_run("a", "dqn")]))
    assert plots.draw("model-loss", "BitFlip", lines, styles_of(lines)) is None
    folder = make_run("b", "dqn+sadq")
    for name in ("evaluations.jsonl", "metrics.jsonl"):
        (folder / name).unlink()
    lines = lines_of(load_all([folder]))
    assert not any(plots.draw(name, "BitFlip", lines, styles_of(lines)) for name in plots.FIGURES)


@pytest.mark.filterwarnings("error")
def test_odd_data_draws_without_a_warning(make_run: Make) -> None:
    gap = float("nan")
    folders = [
        make_run("a", "dqn+sadq", [(0, gap, 1), (gap, gap, gap)]),
        make_run("b", "$x_1$ + _", [(1,)]),
        make_run("c", "_hidden", [(5, 5, 5)]),
        make_run("d", "漢字", [(5, 5, 5)]),
    ]
    lines = lines_of(load_all(folders))
    for name in plots.FIGURES:
        if figure := plots.draw(name, "cost $\\frac$", lines, styles_of(lines)):
            plots.saved(figure, "png")
