"""RESULTS.md: every row follows from the files, and the rules that decide a claim decide it as they say."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(Path(__file__).parent)]

import results as tool  # noqa: E402
from claims import document, figures, never_loses, records  # noqa: E402
from claims.judging import FAILS, HOLDS, LATER, OPEN  # noqa: E402
from claims.training import BASELINES, SADQ  # noqa: E402
from synthetic_fleets import Course, write_artefact  # noqa: E402

from sadq.errors import SadqError  # noqa: E402
from sadq.studies import reproduce  # noqa: E402
from sadq.studies.artefacts import FREQUENCIES  # noqa: E402


def test_the_page_is_what_the_files_say():
    """Every row of it, to the letter."""
    shown = (ROOT / "RESULTS.md").read_text()
    assert shown == tool.page(ROOT), "run python tools/results.py"
    found = records.load(ROOT / "results")
    rows = document.rows_of(found)
    for number, row in enumerate(rows, start=1):
        assert "| " + " | ".join(row.cells(number)) + " |" in shown.splitlines()
    assert all(path.stat().st_size < 300_000 for path in (ROOT / "results").glob("*.json"))
    for name, record in found.records.items():
        if name in figures.DRAWN and record.places:
            assert (ROOT / document.FIGURES / f"{name}.png").stat().st_size < 300_000


def test_the_readme_counts_the_claims_as_the_page_does():
    found = [row.finding.verdict for row in document.rows_of(records.load(ROOT / "results"))]
    measured = len(found) - found.count(LATER)
    decided = f"{found.count(HOLDS)} hold, {found.count(FAILS)} do not, and {found.count(OPEN)} cannot be told"
    told = f"{measured} of {len(found)} are measured so far, of which {decided}"
    assert told in " ".join((ROOT / "README.md").read_text().split())


def test_the_tables_of_the_rule_are_what_its_file_says():
    shown = (ROOT / tool.RULE_PAGE).read_text()
    assert shown == tool.rule_page(ROOT), "run python tools/results.py"
    for name in never_loses.RULES:
        assert all(shown.count(mark) == 1 for mark in tool.marks(name))
    assert (ROOT / document.FIGURES / "rule.png").stat().st_size < 300_000


def test_only_some_rows_may_wait():
    found = records.load(ROOT / "results")
    assert document.waiting(document.rows_of(found), found) == []


THEORY = {
    "format": 2,
    "artefact": "theory",
    "shows": "Theorem 1",
    "quick": False,
    "missing": {},
    "seconds": {"wall_seconds": 30.0},
    "judged": {"command": "sadq reproduce theory --out FOLDER", "commit": "abc1234"},
    "origins": [{"command": "sadq reproduce theory", "commit": "abc1234", "device": "cpu", "versions": {"jax": "1"}}],
    "claims": [
        {"claim": "x", "quantity": "largest excess", "found": found, "holds": found < 1e-8, "mdps": 1000}
        for found in (0.0, 1e-12, 1e-12, 0.14, 9.0)
    ],
}


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """What a repository holds once the native presets and O-Cloud are there; CityFlow and LunarLander are not."""
    place = tmp_path_factory.mktemp("results")
    pool = place / "pool"
    weak, strong = Course(level=80), Course(level=120)
    bad = Course(level=60, noise=2.0, overestimates=3.0)
    plain = {
        base: Course(level=90, noise=2.0, overestimates=3.0, falls=0.3 * (base in BASELINES[:6])) for base in BASELINES
    }
    # On Acrobot SADQ is ahead of all and steadier, most baselines degrade, and it overestimates less.
    write_artefact(pool, "conventional", "acrobot", {SADQ: strong, **plain})
    write_artefact(pool, "controlled", "acrobot", {f"{base}+sadq": strong for base in ("dqn", "double", "sunrise")})
    # On BitFlip it is behind C51, DQN loses by it, and its model only ever gets worse.
    slow = Course(pace=0.4, loss=(0.01, 1.0))
    write_artefact(pool, "conventional", "bitflip", {"c51": strong, SADQ: slow})
    write_artefact(pool, "controlled", "bitflip", {"dqn+sadq": weak, "double+sadq": strong})
    # On CartPole it is below every baseline; with more updates of its model it is sooner and higher.
    write_artefact(pool, "cartpole", "cartpole", {SADQ: bad})
    by_k = {
        label: Course(
            level=60 + 10 * rank, pace=0.3 / (1 + rank), loss=(1.0, 10.0 ** -(1 + rank)), noise=1 / (1 + rank)
        )
        for rank, label in enumerate(FREQUENCIES)
    }
    write_artefact(pool, "model-frequency", "cartpole", by_k)
    write_artefact(pool, "real-world", "ocloud", {SADQ: strong, "rainbow": Course(level=119.9)})
    (place / "results").mkdir()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(reproduce, "write_report", lambda *_, **__: Path("page"))
        patched.setattr(
            "sys.argv", ["sadq", "reproduce", "x", "--partial", "--pool", "p", "--seeds", "12", "--out", "o"]
        )
        for name in ("motivation", "conventional", "model-frequency", "cartpole", "real-world", "controlled"):
            found = reproduce.reproduce(name, out=place / name, pool=pool, partial=True, quiet=True)
            (place / "results" / f"{name}.json").write_bytes(found.path.read_bytes())
    (place / "results" / "theory.json").write_text(json.dumps(THEORY))
    return place


@pytest.fixture(scope="module")
def rows(root) -> dict[str, document.Row]:
    return {row.claim.name: row for row in document.rows_of(records.load(root / "results"))}


@pytest.mark.parametrize(
    ("name", "verdict", "words"),
    [
        ("rapid improvement, Acrobot", HOLDS, "of 960,000 steps"),
        ("stable phase, Acrobot", FAILS, "of its gain below its best"),
        ("stable phase, CartPole", HOLDS, ""),
        ("peak of ΔQ, Acrobot", HOLDS, "of the run after"),
        ("contraction of ΔQ, CartPole", HOLDS, "ends at 43% [43, 43] of it"),
        ("competitive, Acrobot", HOLDS, "distinguishably above it: none; below it: `dqn`"),
        ("competitive, BitFlip", FAILS, "distinguishably above it:"),
        ("steadier, Acrobot", HOLDS, "fluctuate by"),
        ("degradation, Acrobot", HOLDS, "6 of 10 baselines"),
        ("degradation, BitFlip", FAILS, "0 of 10 baselines"),
        ("model converges, Acrobot", HOLDS, "of 10,000 updates"),
        ("model converges, BitFlip", FAILS, "did not fall in 12 of 12 seeds"),
        ("k: sooner", HOLDS, "k = 1, 5, 10, 20: "),
        ("k: higher", HOLDS, ""),
        ("k: fastest", HOLDS, "the fewest of the four"),
        ("k: model", HOLDS, "0.1, 0.01, 0.001, 0.0001"),
        ("k: stability", HOLDS, ""),
        ("highest return, O-Cloud", OPEN, "distinguishably below SADQ: `dueling`, `bdqn`"),
        ("highest return, CityFlow", LATER, ""),
        ("stability, O-Cloud", OPEN, ""),
        ("fails on CartPole", HOLDS, "distinguishably above it: `dqn`, `double`"),
        ("below DQN on CartPole", HOLDS, ""),
        ("baselines are quick", HOLDS, "within 500 updates"),
        ("too few updates", FAILS, "of 2,000 updates"),
        ("dqn, Acrobot", HOLDS, "final return better"),
        ("dqn, BitFlip", FAILS, "final return worse"),
        ("dueling, LunarLander", LATER, ""),
        ("consistent", FAILS, "worse or mixed (dqn on BitFlip"),
        ("overestimation, Acrobot", HOLDS, "paired −"),
        ("steadier twins, Acrobot", HOLDS, "paired −"),
        ("never above the greedy target", HOLDS, "1,000 random MDPs"),
        ("line of the proof", FAILS, "largest excess 9"),
        ("qrdqn, wins", LATER, ""),
        ("runtime, 10M, 40%", LATER, ""),
    ],
)
def test_a_claim_is_decided_by_its_rule(name, verdict, words, rows):
    row = rows[name]
    assert row.finding.verdict == verdict, row.finding
    assert words in row.finding.measured, row.finding.measured


def test_too_few_seeds_hold_up_no_claim_that_nothing_is_above(root):
    found = records.load(root / "results")
    contrast = found.records["conventional"].places["acrobot"].contrasts["dqn"]
    assert contrast.can_settle("final_return")
    contrast.data["measures"]["final_return"]["difference"]["count"] = 5
    row = next(row for row in document.rows_of(found) if row.claim.name == "competitive, Acrobot")
    assert row.finding.verdict == OPEN


def test_the_rows_that_are_not_run_are_those_that_may_wait(rows, root):
    found = records.load(root / "results")
    later = {row.claim.preset or row.claim.artefact for row in rows.values() if row.finding.verdict == LATER}
    assert later == {"lunarlander", "cityflow", "atari100k", "alpha", "runtime"} | {
        f"atari/{game}" for game in ("Alien", "Breakout", "Qbert")
    }
    assert document.waiting(list(rows.values()), found) == []
    del found.records["conventional"].places["acrobot"].arms["teg"]
    waits = {row.claim.name for row in document.waiting(document.rows_of(found), found)}
    assert waits == {"competitive, Acrobot", "steadier, Acrobot", "degradation, Acrobot"}


def test_the_page_has_tables_origins_times_and_findings(root, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["results.py", "--root", str(root)])
    tool.main()
    page = (root / "RESULTS.md").read_text()
    for words in (
        "None are written down yet.",
        "## controlled",
        "![controlled](results/figures/controlled.png)",
        "commit abc1234, gpu: H200 x1",
        "| arm | latency |",
        "Not yet run on LunarLander:",
        "`sadq reproduce x --seeds 12`, abc1234",
        "**all, shared fleets once**",
    ):
        assert words in page, words
    drawn = {path.stem for path in (root / "results" / "figures").iterdir()}
    assert drawn == set(figures.DRAWN)
    # Fleets of the pool: 11 + 3, 11 + 3, 11 + 4 and 4, a minute each.
    total = next(line for line in page.splitlines() if "shared fleets once" in line)
    assert total.split(" | ")[1:3] == ["47", "564"] and total.split(" | ")[4] == "47.0"
    monkeypatch.setattr(sys, "argv", ["results.py", "--root", str(root), "--check"])
    with pytest.raises(SystemExit) as ended:
        tool.main()
    assert ended.value.code == 0
    (root / "results" / "findings.md").write_text("### Why\n\nBecause.\n")
    with pytest.raises(SystemExit, match="RESULTS.md is stale"):
        tool.main()
    assert "## Findings\n\n### Why\n\nBecause.\n" in tool.page(root)


def test_figures_are_the_same_twice(root):
    record = records.load(root / "results").records["motivation"]
    assert figures.figure_of(record) == figures.figure_of(record)
    assert figures.figure_of(records.load(root / "results").records["theory"]) is None


def test_records_are_compact(root):
    """33 fleets of 20 seeds and 101 evaluations must fit into 300 kB; here 22 have 12 seeds and 21 evaluations."""
    assert (root / "results" / "conventional.json").stat().st_size < 120_000


def test_presets_may_be_reproduced_apart(root, tmp_path):
    """Each row says what made it, and the page what neither record has."""
    whole = json.loads((root / "results" / "controlled.json").read_text())
    made = [one | {"commit": "def5678"} for one in whole["origins"]]
    acrobot, bitflip = whole["environments"]
    others = whole["missing"] | {"bitflip": [one["arm"] for one in bitflip["arms"]]}
    pieces = {
        "controlled": whole | {"environments": [acrobot], "missing": others},
        "controlled-later": whole | {"environments": [bitflip], "missing": {}, "origins": made},
    }
    for name, piece in pieces.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(piece))
    found = records.load(tmp_path)
    record = found.records["controlled"]
    assert list(record.places) == ["acrobot", "bitflip"] and list(record.missing) == ["lunarlander"]
    rows = {row.claim.name: row for row in document.rows_of(found)}
    expected = {row.claim.name: row for row in document.rows_of(records.load(root / "results"))}
    for name, commit in (("steadier twins, Acrobot", "abc1234"), ("steadier twins, BitFlip", "def5678")):
        assert rows[name].finding.source.commits == (commit,)
        assert rows[name].finding.measured == expected[name].finding.measured
    assert record.source.commits == ("abc1234", "def5678")
    (tmp_path / "controlled-again.json").write_text(json.dumps(pieces["controlled-later"]))
    with pytest.raises(SadqError, match="has bitflip, which another record of controlled has too"):
        records.load(tmp_path)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"format": 2, "artefact": "cartpole", "quick": True}, "is of a quick run"),
        ({"format": 1, "artefact": "cartpole"}, "is no record of cartpole"),
        ({"format": 2, "artefact": "alpha", "quick": False}, "is no record of cartpole"),
        (None, "cannot be read"),
    ],
)
def test_what_is_no_full_record_is_refused(content, sentence, tmp_path):
    (tmp_path / "cartpole.json").write_text("{" if content is None else json.dumps(content))
    with pytest.raises(SadqError, match=sentence):
        records.load(tmp_path)
