"""Pages of runs that nobody has on purpose: odd names, long settings, evaluations with holes."""

from collections.abc import Callable
from pathlib import Path

from report.reader import read
from sadq.report.contents import RESERVED
from sadq.report.page import write_report

Make = Callable[..., Path]


def test_environments_take_no_place_of_the_page_itself(make_run: Make, tmp_path: Path) -> None:
    runs = [make_run(name, "dqn", environment=name) for name in RESERVED]
    reader = read(write_report(runs, tmp_path / "out"))  # which finds every id but once
    targets = {f"#{tag['id']}" for _, tag in reader.tags if "id" in tag}
    assert {link["href"] for link in reader.all("a")} <= targets
