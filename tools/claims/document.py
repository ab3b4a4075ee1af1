"""RESULTS.md from result files: the paper's claims in one table, then each artefact with its arms, figure and origins."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from claims import atari, never_loses, plugged_in, tables, training
from claims.judging import LATER, VERDICTS, Claim, Finding
from claims.records import Record, Results
from sadq.studies.artefacts import find

ORDER = (
    "theory",
    "motivation",
    "conventional",
    "model-frequency",
    "real-world",
    "controlled",
    "cartpole",
    "atari100k",
    "alpha",
    "runtime",
)
MAY_WAIT = ("cityflow", "lunarlander")
"""Presets, beside Atari, whose rows may say that they are not yet run."""
FIGURES = "results/figures"

HEAD = """# The paper's claims, measured

Made by `python tools/results.py` from the files in `results/`; a test makes it again and compares. How to make those files:
[docs/reproduce.md](docs/reproduce.md).

A verdict is computed, by the rules in `tools/claims/`: from 95% intervals, or from p-values after Holm's correction
over all arms and measures of an environment. **Holds**: all of the interval lies on the claim's side. **Does not
hold**: all of it lies on the other, or a part of the claim is refuted. **Not distinguishable**: neither. An arrow
goes from the base agent to the same with SADQ. Scores are interquartile means over seeds with bootstrap intervals;
paired differences are means over shared seeds, with all shifts that an exact sign-flip test does not reject as their
interval (with five seeds it holds 94%). Arms of an artefact may have different numbers of seeds, all of them from 0 on:
*seeds* counts those that a row's numbers are of, and what is paired is paired over the seeds that both arms, or all
arms of a mean, have. *Threshold*: 80% of the way from untrained agents to the best arm. *Area*:
time average of all greedy evaluations. *Final return*: mean of the last five. *Fluctuation*: root mean square change
from one evaluation to the next over √2, in the second half of a run. *Gain*: from the evaluation at step 0 to the best
mean of five evaluations in a row.
"""


TIMED = """Minutes of training, evaluations and compilation included, as run folders have them, summed over fleets. Members
of an arm train together, as one fleet. Fleets shared the GPU, up to 16 processes side by side (`benchmarks/fleets.py`), so
each took longer than it would alone, and the sum is more than passed on the clock: the 63 fleets of commit da2270c, those of
the rule above among them, sum to 219 minutes and were done in about 16. LunarLander was trained on one core of a CPU, where
its evaluations and other work were too.
"""


@dataclass(frozen=True)
class Row:
    """A claim with what became of it."""

    claim: Claim
    finding: Finding

    def cells(self, number: int) -> list[str]:
        claim, finding = self.claim, self.finding
        seeds = (
            " to ".join(str(count) for count in sorted({min(finding.seeds), max(finding.seeds)}))
            if finding.seeds
            else ""
        )
        if finding.source is None:
            made = f"`sadq reproduce {claim.artefact}`"
        else:
            made = f"`{self._command(finding.source.command)}`, {', '.join(finding.source.commits)}"
        verdict = f"**{finding.verdict}**"
        return [str(number), claim.where, claim.says, finding.measured or "–", seeds or "–", verdict, made]

    def _command(self, said: str) -> str:
        """What makes the row from nothing: arms that were judged with the seeds that they had were trained with so many."""
        seeds = max(self.finding.seeds, default=0)
        judged = said.startswith("sadq reproduce") and "--seeds" not in said
        return f"{said} --seeds {seeds}" if judged and seeds not in (0, len(find(self.claim.artefact).seeds)) else said

    @property
    def may_wait(self) -> bool:
        """Whether it may say that it is not yet run although its artefact has a file."""
        return self.claim.preset is None or self.claim.preset in MAY_WAIT or self.claim.preset.startswith("atari/")


def all_claims() -> list[Claim]:
    """By artefact, and within one in the order of its module."""
    found = [*training.claims(), *plugged_in.claims(), *atari.claims()]
    return sorted(found, key=lambda claim: ORDER.index(claim.artefact))


def rows_of(results: Results) -> list[Row]:
    return [Row(claim, claim.rule(results)) for claim in all_claims()]


def rule_section(evidence: never_loses.Evidence) -> list[str]:
    """A rule of ours beside the paper's form."""
    return [
        "\n## The gain without the loss\n",
        f"`{never_loses.RULE}` beside the paper's form, seeds that chose nothing (20, on LunarLander five),"
        f"\n{len(never_loses.AGENTS)} agents together ({', '.join(f'`{agent}`' for agent in never_loses.AGENTS)}). The rest,"
        "\nwhat is known of CityFlow, and what follows: [docs/rule.md](docs/rule.md).\n",
        *never_loses.kept_table(evidence),
        "",
        *never_loses.floor_table(evidence),
        "",
        *never_loses.cut_line(evidence),
        *tables.origins(evidence.data["origins"]),
    ]


def document(results: Results, findings: str, figures: Sequence[str], rule: Sequence[str] = ()) -> str:
    """The whole page; `figures` names the artefacts that have one, `rule` is the section on a rule of ours."""
    rows = rows_of(results)
    parts = [
        HEAD,
        "## In numbers\n",
        *_tally(rows),
        "\n## Every claim\n",
        *tables.markdown(
            ["#", "where", "the paper says", "measured here", "seeds", "verdict", "made by"],
            [row.cells(number) for number, row in enumerate(rows, start=1)],
        ),
        "\n## Findings\n",
        findings.strip() or "None are written down yet.",
        *rule,
        "\n## Time of the vector suite\n",
        TIMED,
        *tables.times(results, ORDER),
        *_artefacts(results, figures),
        *(["\n## Games so far\n", *tables.games_table(results)] if results.games else []),
    ]
    return "\n".join(parts) + "\n"


def _tally(rows: Sequence[Row]) -> list[str]:
    names = dict.fromkeys(row.claim.artefact for row in rows)
    counted = {
        name: [
            sum(row.claim.artefact == name and row.finding.verdict == verdict for row in rows) for verdict in VERDICTS
        ]
        for name in names
    }
    cells = [[f"`{name}`", *map(_count, counts)] for name, counts in counted.items()]
    totals = [sum(counts[index] for counts in counted.values()) for index in range(len(VERDICTS))]
    return tables.markdown(["artefact", *VERDICTS], [*cells, ["**all**", *map(_count, totals)]])


def _count(value: int) -> str:
    return str(value) if value else "–"


def _artefacts(results: Results, figures: Sequence[str]) -> Iterator[str]:
    for name in ORDER:
        record = results.records.get(name)
        if record is None:
            continue
        yield f"\n## {name}\n\n{record.data['shows']}.\n"
        if name in figures:
            yield f"![{name}]({FIGURES}/{name}.png)\n"
        for place in record.places.values():
            yield f"### {name} on {tables.place_name(place.preset)}\n"
            yield from tables.arms_table(place)
            yield from tables.measures_table(place)
            yield from (f"\n{note}" for note in place.data["notes"])
            yield ""
        yield from tables.origins(record.origins)
        yield from tables.unfinished(record.missing)


def waiting(rows: Sequence[Row], results: Results) -> list[Row]:
    """Rows that say that they are not yet run, but may not: their artefact has a file, which names nothing as missing."""

    def named(record: Record, preset: str | None) -> bool:
        return bool(record.missing if preset is None else record.missing.get(preset))

    return [
        row
        for row in rows
        if row.finding.verdict == LATER
        and not row.may_wait
        and (record := results.records.get(row.claim.artefact)) is not None
        and not named(record, row.claim.preset)
    ]
