"""The report as its reader meets it: the right figures, in words and tables; nothing silent, nothing executable."""

import ast
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from unittest import mock

import pytest

from sadq import report
from sadq.errors import SadqError
from sadq.report import page
from sadq.report.page import in_words, write_report

Make = Callable[..., Path]
BASE = [(0.0, value) for value in (1.0, 1.2, 1.4, 1.6, 1.8)]
GUIDED = [(0.0, value) for value in (1.2, 1.5, 1.5, 2.0, 2.0)]


class Reader(HTMLParser):
    """The page's text, its tags, and whether every tag that was opened was closed."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.text, self.tags, self.open = "", [], []
        self.feed(source)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data if self.open[-1:] != ["style"] else ""


def read(path: Path) -> Reader:
    reader = Reader(path.read_text(encoding="utf-8"))
    assert not reader.open
    return reader


@pytest.fixture
def pair(make_run: Make) -> list[Path]:
    return [make_run("base", "dueling", BASE), make_run("guided", "dueling+sadq", GUIDED)]


def test_a_pair_in_words_and_numbers(pair: list[Path], tmp_path: Path) -> None:
    path = write_report(pair, tmp_path / "out")
    assert path == tmp_path / "out" / "index.html"
    text = read(path).text
    # Final returns are half of the last evaluations, for there are two and the first is zero.
    words = (
        r"On BitFlip with 8 bits, over 5 paired seeds and 1,000 steps, dueling\+sadq \(α = 0\.2\) ends at "
        r"0\.82 \[0\.\d\d, 0\.\d\d\] against 0\.70 \[0\.\d\d, 0\.\d\d\] for dueling; the paired difference is "
        r"\+0\.12 \[0\.\d\d, 0\.\d\d\], and dueling\+sadq \(α = 0\.2\) is ahead in 5 of 5\. With 5 seeds this is not "
        r"distinguishable from zero \(exact two-sided sign-flip test: p = 0\.0625\)\. Little can be concluded: 5 pairs "
        r"cannot give a p-value below 1/16"
    )
    assert re.search(words, text)
    assert "How this was made" in text and "0.10.2" in text and "62 s" in text
    record = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    final = record["comparisons"][0]["measures"]["final_return"]
    assert final["difference"]["mean"]["value"] == pytest.approx(0.12)
    assert final["difference"]["p_value"] == 0.0625 and final["difference"]["improvement"] == 1
    assert [each["guided"] for each in final["by_seed"]] == pytest.approx([0.6, 0.75, 0.75, 1.0, 1.0])
    assert record["summaries"][0]["mean"]["area_under_curve"]["value"] == pytest.approx(0.7)
    assert {each["setting"] for each in record["config_differences"]} == {"agent", "members: alpha"}


def test_the_page_needs_only_its_figures(pair: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    reader = read(write_report(pair, out, title="Mine"))
    images = [attributes["src"] for tag, attributes in reader.tags if tag == "img"]
    assert images == [f"{name}-bitflip.png" for name in ("learning", "delta-q", "overestimation", "model-loss")]
    assert sorted(path.name for path in out.iterdir()) == sorted([*images, "index.html", "report.json"])
    source = (out / "index.html").read_text(encoding="utf-8")
    assert "://" not in source and "url(" not in source and "@import" not in source
    assert not {"script", "link", "iframe"} & {tag for tag, _ in reader.tags}
    assert "prefers-color-scheme: dark" in source and "<title>Mine</title>" in source


def test_the_same_runs_give_the_same_report(make_run: Make, tmp_path: Path) -> None:
    pair = [make_run("a", "dqn", [(0, index**1.5) for index in range(9)]), make_run("b", "dqn+sadq", GUIDED)]
    for name, seed in (("one", 0), ("two", 0), ("three", 1)):
        write_report(pair, tmp_path / name, seed=seed)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()
    one, three = (json.loads((tmp_path / name / "report.json").read_text()) for name in ("one", "three"))
    assert one["summaries"][0]["mean"] != three["summaries"][0]["mean"]


def test_one_member_has_no_interval_and_says_so(make_run: Make, tmp_path: Path) -> None:
    text = read(write_report([make_run("a", "dqn", [(0, 3)])], tmp_path / "out")).text
    assert "over 1 seed and 1,000 steps, dqn ends at 1.50." in text
    assert "one seed, which shows no spread, so no interval is given" in text
    pair = [make_run("b", "c51", [(0, 3)]), make_run("c", "c51+sadq", [(0, 4)])]
    text = read(write_report(pair, tmp_path / "out")).text
    assert "over 1 paired seed and" in text and "nothing can be concluded from a single pair" in text


def test_divergence_and_unfinished_runs_are_named(make_run: Make, tmp_path: Path) -> None:
    lost = make_run("lost", "dqn", [(0, 1), (0, 2)], seeds=[4, 5], diverged={1: 700})
    killed = make_run("killed", "dqn+sadq", [(0, 1)], seeds=[6], finished=False, config={"steps": 96000})
    empty = make_run("empty", "c51", [()], finished=False)
    text = read(write_report([lost, killed, empty], tmp_path / "out")).text
    assert "lost: seed 5 diverged at step 700" in text and "its evaluations are included" in text
    assert "killed is unfinished: its numbers are those of the first 1,000 of 96,000 steps" in text
    assert "1,000 of 96,000" in text and "unknown" in text
    assert "empty: it holds no complete evaluation yet." in text and "c51 ends at not known." in text
    assert "dqn+sadq (α = 0.2) and dqn cannot be compared. No seed has a score in both runs" in text
    json.loads((tmp_path / "out" / "report.json").read_text(), parse_constant=lambda name: pytest.fail(name))


def test_a_sweep_is_a_row_per_alpha(make_run: Make, tmp_path: Path) -> None:
    base = make_run("base", "dqn", BASE)
    sweep = make_run("sweep", "dqn+sadq", BASE + GUIDED, seeds=[*range(5)] * 2, alphas=[0.2] * 5 + [0.5] * 5)
    path = write_report([base, sweep], tmp_path / "out")
    text = read(path).text
    for alpha, difference in (("0.2", "0.00 [0.00, 0.00]"), ("0.5", "+0.12 [")):
        assert re.search(
            rf"dqn\+sadq \(α = {alpha}\) ends at .*? the paired difference is {re.escape(difference)}", text
        )
    assert "p-values of these 2 comparisons are not corrected" in text
    record = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [summary["label"] for summary in record["summaries"]] == ["dqn", "dqn+sadq, α = 0.2", "dqn+sadq, α = 0.5"]


def test_names_from_files_cannot_become_markup(make_run: Make, tmp_path: Path) -> None:
    evil = "<script>alert('1')</script>\"&"
    folder = make_run("a", f"{evil}+sadq", environment=f"../{evil}", config={evil: evil})
    other = make_run("b", evil, environment=f"../{evil}", config={evil: "x"})
    third = make_run("c", evil, environment=f"..!{evil}")
    out = tmp_path / "out"
    reader = read(write_report([folder, other, third], out, title=evil))
    assert "script" not in {tag for tag, _ in reader.tags} and evil in reader.text
    images = [str(attributes["src"]) for tag, attributes in reader.tags if tag == "img"]
    assert len(set(images)) == len(images) and all(re.fullmatch(r"[a-z0-9-]+\.png", name) for name in images)
    assert {path.name for path in out.iterdir()} == {*images, "index.html", "report.json"}


def test_a_failed_write_leaves_the_old_page(pair: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    before = write_report(pair, out, title="old").read_bytes()
    full = mock.patch.object(page.os, "replace", side_effect=OSError(28, "No space left on device"))
    with full, pytest.raises(SadqError, match="No space left on device"):
        write_report(pair, out, title="new")
    assert (out / "index.html").read_bytes() == before
    assert not [path for path in out.iterdir() if path.name.startswith(".")]


def test_errors_are_one_sentence(pair: list[Path], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SadqError, match="cannot be written"):
        write_report(pair, tmp_path / "file")
    with pytest.raises(SadqError, match="not a run"):
        write_report([tmp_path], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_environments_in_words() -> None:
    assert in_words("BitFlip") == "BitFlip with 8 bits" and in_words("BitFlip-12") == "BitFlip with 12 bits"
    assert in_words("Acrobot-v1") == "Acrobot-v1"


def test_the_report_imports_nothing_of_the_learner() -> None:
    for path in Path(str(report.__file__)).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            for name in names:
                assert name.split(".")[0] not in ("jax", "equinox", "optax", "scipy")
                allowed = ("sadq.errors", "sadq.experiment.scores")
                assert not name.startswith("sadq") or name in allowed or name.startswith("sadq.report")
