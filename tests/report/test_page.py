"""The report as its reader meets it: the right figures, in words, charts and tables; nothing silent, nothing executable."""

import ast
import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from report.reader import read
from sadq import report
from sadq.errors import SadqError
from sadq.report import page, verdicts
from sadq.report.comparison import comparisons_of
from sadq.report.lines import lines_of
from sadq.report.names import in_words
from sadq.report.page import write_report
from sadq.report.runs import load_all
from sadq.report.stats import interval, number

Make = Callable[..., Path]
BASE = [(0.0, 0.2, 1 + 0.1 * seed) for seed in range(9)]
GUIDED = [(0.0, 1.02 + 0.1 * seed, 1.5 + 0.1 * seed) for seed in range(9)]
ONLY_FOR_PRESETS = ("sadq.experiment.presets", "sadq.experiment.records")


@pytest.fixture
def pair(make_run: Make) -> list[Path]:
    return [make_run("base", "dueling", BASE), make_run("guided", "dueling+sadq", GUIDED)]


def test_the_headline_leads_with_time_and_has_the_statistics(pair: list[Path], tmp_path: Path) -> None:
    path = write_report(pair, tmp_path / "out")
    assert path == tmp_path / "out" / "index.html"
    reader = read(path)
    (comparison,) = comparisons_of(lines_of(load_all(pair)))
    time, area, final = comparison.contrasts
    assert [one.outcome for one in comparison.contrasts] == ["better"] * 3 and comparison.threshold is not None
    factor = time.base.value / time.other.value
    first = (
        f"On BitFlip with 8 bits, dueling+sadq (α = 0.2) reaches a return of {number(comparison.threshold)} after "
        f"{time.other.value:,.0f} steps, {factor:.1f} times sooner than dueling"
    )
    assert first in reader.text
    assert verdicts.verdict("dueling+sadq (α = 0.2)", "dueling", comparison.contrasts) in reader.text
    for one in (time, area, final):
        assert interval(one.difference.mean, signed=True) in reader.text and interval(one.improvement) in reader.text
    assert "How this was made" in reader.text and "0.10.2" in reader.text and "62 s" in reader.text
    record = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    (told,) = record["comparisons"]
    assert told["outcome"] == "better" and told["threshold"] == comparison.threshold
    assert told["measures"]["final_return"]["difference"]["value"] == pytest.approx(final.difference.mean.value)
    assert [each["other"] for each in told["measures"]["final_return"]["by_seed"]] == [
        *comparison.values["final_return"][1].values()
    ]
    assert {each["setting"] for each in record["config_differences"]} == {"agent", "members: alpha"}


def test_an_arm_that_never_gets_there_is_not_said_to(make_run: Make, tmp_path: Path) -> None:
    rises = [(0.0, 0.9 + 0.01 * seed, 1.0, 1.0) for seed in range(10)]
    stays = [(0.0, 0.1, 0.2, 0.3 + 0.01 * seed) for seed in range(10)]
    some = [*rises[:3], *stays[3:]]

    def headline(name: str, base: list[tuple[float, ...]], other: list[tuple[float, ...]]) -> str:
        folders = [make_run(f"{name}-dqn", "dqn", base), make_run(f"{name}-c51", "c51", other)]
        return read(write_report(folders, tmp_path / name, threshold=0.8)).text

    assert "The threshold was given: 0.80. Steps to it" in headline("given", stays, rises)
    worse = "c51 reaches a return of 0.80 in no seed within 3,000 steps, at least 3.5 times later than dqn"
    assert worse in headline("worse", rises, stays)
    better = "c51 reaches a return of 0.80 after 847 steps, at least 3.5 times sooner than dqn"
    assert better in headline("better", stays, rises)
    assert "c51 reaches a return of 0.80 in 3 of 10 seeds, after " in headline("some", rises, some)


def test_the_page_is_one_file_without_references(pair: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    reader = read(write_report(pair, out, title="Mine"))
    assert sorted(path.name for path in out.iterdir()) == ["index.html", "report.json"]
    assert not re.search(r"://|url\(|@import|\bsrc=", reader.source)
    links = [str(attributes["href"]) for attributes in reader.all("a")]
    names = [attributes["id"] for _, attributes in reader.tags if "id" in attributes]
    assert len(set(names)) == len(names) and {link.removeprefix("#") for link in links} <= set(names)
    assert not {"link", "iframe", "img", "object"} & {tag for tag, _ in reader.tags}
    assert "prefers-color-scheme: dark" in reader.source and "@media print" in reader.source
    assert "<title>Mine</title>" in reader.source
    alone = write_report(pair, tmp_path / "alone" / "mine.html")
    assert [path.name for path in alone.parent.iterdir()] == ["mine.html"]


def test_everything_that_moves_is_reachable_and_named(pair: list[Path], tmp_path: Path) -> None:
    reader = read(write_report(pair, tmp_path / "out"))
    sliders = [attributes for _, attributes in reader.tags if attributes.get("role") == "slider"]
    assert len(sliders) == len(reader.of_class("plot")) >= 6
    for slider in sliders:
        assert slider["tabindex"] == "0" and slider["aria-label"] and slider["aria-valuetext"]
        assert slider["aria-valuenow"] == slider["aria-valuemax"]
    assert all(svg.get("aria-hidden") == "true" for svg in reader.all("svg"))  # what it shows is said beside it
    regions = reader.of_class("scroll")
    assert regions and all(one["tabindex"] == "0" and one["aria-label"] for one in regions)
    assert len(reader.all("caption")) == len(reader.all("table"))
    assert [button["aria-pressed"] for button in reader.all("button")] == ["true", "true"]


def test_charts_carry_the_values_that_they_draw(pair: list[Path], tmp_path: Path) -> None:
    reader = read(write_report(pair, tmp_path / "out"))
    data = [json.loads(str(one["data-chart"])) for one in reader.of_class("chart") if "data-chart" in one]
    learning = data[0]
    assert [line["label"] for line in learning["lines"]] == ["dueling", "dueling+sadq"]
    assert learning["lines"][0]["at"] == ["0 steps", "1,000 steps", "2,000 steps"]
    said = learning["lines"][1]["says"]
    assert said[0] == "0.00 [0.00, 0.00]" and said[2].startswith("1.90 [")
    titles = re.findall(r"<figcaption><strong>(.*?)</strong>", reader.source)
    assert titles == [
        "Learning curve",
        "Area under the curve",
        "Final return",
        "Seeds at the threshold",
        "ΔQ",
        "Overestimation",
        "Model: error of the next state",
        "Model: error of the reward",
        "Performance profile",
    ]


def test_what_the_environment_measures_is_shown(make_run: Make, tmp_path: Path) -> None:
    folders = [
        make_run(agent, agent, BASE, environment="CityFlow", measures={"average_travel_time": 80.0, "odd_thing": 1.0})
        for agent in ("dqn", "c51")
    ]
    reader = read(write_report(folders, tmp_path / "out"))
    assert "<strong>Average travel time</strong>" in reader.source and "<strong>Odd thing</strong>" in reader.source
    assert "160.0 [160.0, 160.0]" in reader.text  # the mean over evaluations of 80, 160 and 240
    assert "The paper says:" in reader.text and "above Dueling, BDQN and Rainbow" in reader.text


def test_unlike_runs_are_named_and_not_judged(make_run: Make, tmp_path: Path) -> None:
    folders = [
        make_run("base", "dqn", BASE, config={"n_step": 3}),
        make_run("guided", "dqn+sadq", GUIDED, config={"n_step": 1}),
    ]
    reader = read(write_report(folders, tmp_path / "out"))
    assert "dqn+sadq (α = 0.2) and dqn on BitFlip with 8 bits were trained with unlike settings" in reader.text
    assert reader.text.count("n-step (3 against 1)") == 3  # under the headline, among the notes, above the table
    assert " is better than " not in reader.text and "not alike" in reader.text


def test_several_environments_are_aggregated(make_run: Make, tmp_path: Path) -> None:
    folders = [
        make_run(f"{agent}-{environment}", agent, curves, environment=environment)
        for environment in ("BitFlip", "Acrobot-v1")
        for agent, curves in (("dqn", BASE), ("dqn+sadq", GUIDED))
    ]
    reader = read(write_report(folders, tmp_path / "out"))
    record = json.loads((tmp_path / "out" / "report.json").read_text())
    found = record["over_environments"]
    assert found["environments"] == ["BitFlip", "Acrobot-v1"]
    assert found["interquartile_mean"]["dqn+sadq"]["value"] == pytest.approx(1.0, abs=0.02)
    (chance,) = found["probability_of_improvement"]
    assert (chance["base"], chance["other"]) == ("dqn", "dqn+sadq") and chance["estimate"]["value"] > 0.9
    assert "Final return, interquartile mean over environments" in reader.text


def test_every_pair_of_several_arms(make_run: Make, tmp_path: Path) -> None:
    folders = [make_run(agent, agent, curves) for agent, curves in (("dqn", BASE), ("c51", GUIDED), ("iqn", BASE))]
    reader = read(write_report(folders, tmp_path / "out"))
    table = reader.source.partition("<h3>Every pair</h3>")[2].partition("</table>")[0]
    cells = [re.findall(r"<td>(.*?)</td>", row) for row in table.split("<tr>")[2:]]
    lines = lines_of(load_all(folders))
    areas = [line.scores()["area_under_curve"] for line in lines]
    gain = number(float(np.mean(areas[1] - areas[0])), signed=True)
    loss = gain.replace("+", "\N{MINUS SIGN}")
    assert cells == [["", f"{loss} *", "0.00"], [f"{gain} *", "", f"{gain} *"], ["0.00", f"{loss} *", ""]]


def test_the_same_runs_give_the_same_report(make_run: Make, tmp_path: Path) -> None:
    pair = [make_run("a", "dqn", [(0, index**1.5) for index in range(9)]), make_run("b", "dqn+sadq", [(0, 1)] * 9)]
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
    assert "Nothing can be said of c51+sadq (α = 0.2) against c51: one seed shows no spread." in text


def test_divergence_and_unfinished_runs_are_named(make_run: Make, tmp_path: Path) -> None:
    lost = make_run("lost", "dqn", [(0, 1), (0, 2)], seeds=[4, 5], diverged={1: 700}, config={"steps": 96000})
    killed = make_run("killed", "dqn+sadq", [(0, 1)], seeds=[6], finished=False, config={"steps": 96000})
    empty = make_run("empty", "c51", [()], finished=False, config={"steps": 96000})
    text = read(write_report([lost, killed, empty], tmp_path / "out")).text
    assert "lost: seed 5 diverged at step 700" in text and "its evaluations are included" in text
    assert "killed is unfinished: its numbers are those of the first 1,000 of 96,000 steps" in text
    assert "1,000 of 96,000" in text and "unknown" in text
    assert (
        "empty: it holds no complete evaluation yet." in text
        and "c51 and dqn on BitFlip with 8 bits cannot be compared" in text
    )
    assert "dqn+sadq (α = 0.2) and dqn on BitFlip with 8 bits cannot be compared" in text
    assert "no seed has a score in both" in text
    json.loads((tmp_path / "out" / "report.json").read_text(), parse_constant=lambda name: pytest.fail(name))


def test_a_model_that_diverged_is_named(make_run: Make, tmp_path: Path) -> None:
    run = make_run("a", "dqn+sadq", [(0, 1), (0, 2)], seeds=[4, 5])
    result = json.loads((run / "result.json").read_text())
    result["members"][1]["model_diverged_at"] = 700
    (run / "result.json").write_text(json.dumps(result))
    text = read(write_report([run], tmp_path / "out")).text
    assert "a: the model of seed 5 diverged at step 700 and kept its last finite parameters" in text
    assert text.count("diverged at step") == 1, "its values did not"


def test_names_from_files_cannot_become_markup(make_run: Make, tmp_path: Path) -> None:
    evil = "<script>alert('1')</script>\"&"
    folder = make_run("a", f"{evil}+sadq", environment=f"../{evil}", config={evil: evil})
    other = make_run("b", evil, environment=f"../{evil}", config={evil: "x"})
    third = make_run("c", evil, environment=f"..!{evil}", measures={evil: 1.0})
    out = tmp_path / "out"
    reader = read(write_report([folder, other, third], out, title=evil, figures=["png"]))
    assert len(reader.all("script")) == 1 and evil in reader.text and html.escape(evil) in reader.source
    assert all(re.fullmatch(r"[a-z0-9-]+\.png|index\.html|report\.json", path.name) for path in out.iterdir())


def test_figures_are_written_on_request(pair: list[Path], tmp_path: Path) -> None:
    write_report(pair, tmp_path / "out", figures=["png", "pdf"])
    found = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    for name in ("learning", "delta-q", "overestimation", "model-loss"):
        assert found[f"{name}-bitflip.png"].startswith(b"\x89PNG") and found[f"{name}-bitflip.pdf"].startswith(b"%PDF")
    with pytest.raises(SadqError, match="written as 'gif': expected png or pdf"):
        write_report(pair, tmp_path / "out", figures=["gif"])


def test_a_folder_of_runs_stands_for_them(pair: list[Path], tmp_path: Path) -> None:
    together = json.loads((write_report([pair[0].parent], tmp_path / "all").parent / "report.json").read_text())
    apart = json.loads((write_report(pair, tmp_path / "each").parent / "report.json").read_text())
    assert together == apart


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
        write_report([tmp_path / "runs" / "base" / "nothing"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_environments_in_words() -> None:
    assert in_words("BitFlip") == "BitFlip with 8 bits" and in_words("BitFlip-12") == "BitFlip with 12 bits"
    assert in_words("BitFlip-6, max_steps=20") == "BitFlip with 6 bits, max_steps=20"
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
                allowed = ("sadq.errors", "sadq.registry", "sadq.experiment.scores", *ONLY_FOR_PRESETS)
                assert not name.startswith("sadq") or name in allowed or name.startswith("sadq.report")
