"""Pages of runs that nobody has on purpose: odd names, long settings, evaluations with holes."""

import html
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from report.reader import read
from sadq.report import markup
from sadq.report.contents import RESERVED
from sadq.report.page import write_report

Make = Callable[..., Path]


def test_environments_take_no_place_of_the_page_itself(make_run: Make, tmp_path: Path) -> None:
    runs = [make_run(name, "dqn", environment=name) for name in RESERVED]
    reader = read(write_report(runs, tmp_path / "out"))  # which finds every id but once
    targets = {f"#{tag['id']}" for _, tag in reader.tags if "id" in tag}
    assert {link["href"] for link in reader.all("a")} <= targets


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("ends at 0.97 [0.93, 1.00].", "0.97 [0.93, 1.00]"),
        ("more: +332,392,666 [241,597,590, 459,092,728].", "+332,392,666 [241,597,590, 459,092,728]"),
        ("dqn, hidden = [256, 256]", "= [256, 256]"),
        (f"dqn, hidden = {[256] * 20}", None),
    ],
)
def test_no_line_ends_in_an_interval_but_a_long_list_may_break(text: str, whole: str | None) -> None:
    marked = markup.unbroken(text)
    assert marked == (text if whole is None else text.replace(whole, f'<span class="whole">{whole}</span>'))


def test_a_smoothed_curve_may_have_too_many_holes(make_run: Make, tmp_path: Path) -> None:
    """No five evaluations in a row are whole here, so there is nothing that a running mean of them could show."""
    holes = [[math.nan if index % 4 == 0 else 1.0 for index in range(60)]] * 2
    whole = [[float(index) for index in range(60)]] * 2
    runs = [make_run("holes", "dqn", holes), make_run("whole", "c51", whole)]
    learning = read(write_report(runs, tmp_path / "both", figures=["png"])).source.partition('data-chart="')[2]
    assert '"label":"c51"' in html.unescape(learning.partition('"')[0])
    alone = read(write_report(runs[:1], tmp_path / "alone", figures=["png"]))
    assert "Learning curve" not in alone.text and "seed 0 lacks an evaluation" in alone.text
