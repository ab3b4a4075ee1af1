"""Whether the rule meant never to lose keeps the gain and is nowhere below its base: results/rule/*.json."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from claims.judging import percent, signed
from claims.tables import markdown, place_name
from sadq.errors import SadqError
from sadq.report import stats
from sadq.report.stats import LIMITS, RESAMPLES, Estimate, generator_for, number

FORMAT = 1
RULES = {"hearing": "guidance.allowance=2,guidance.agreement=0.1", "allowance": "guidance.allowance=2"}
"""File in results/rule/ -> what the paper's form goes on with; the rule first, then what it was without its second half."""
RULE = RULES["hearing"]
PRESETS = ("acrobot", "bitflip", "cartpole", "ocloud", "lunarlander")
AGENTS = ("dqn", "double", "dueling", "c51", "qrdqn")
MEASURES = {"area_under_curve": "area", "final_return": "final return"}
TAKEN = ("acrobot", "dueling")
"""Where a run began with the models of another."""
PHASES = {"first quarter": (0.0, 0.25), "second quarter": (0.25, 0.5), "second half": (0.5, 1.0)}
FEWEST = 6
"""Seeds with which sign flips can tell anything at the 5% level."""
KEPT = 0.95  # of the literal gain, what the rule is to keep
ALLOWED = 0.05  # of what a base has learned over random, what the rule may lose

BOTH = "bitflip"
"""Where the two rules do the same, so that the seeds of both count."""

HOLDS, BELOW, OPEN, NO_FLOOR = "holds", "does not hold", "not shown", "no floor: the base is below random"


def forms_of(rule: str) -> dict[str, str]:
    """What an agent's name goes on with: the base alone, the paper's form, and the rule."""
    return {"base": "", "literal": "+sadq", "rule": f"+sadq:{rule}"}


@dataclass(frozen=True)
class Evidence:
    """Scores of seeds: preset -> agent -> form -> measure -> value of each seed."""

    data: Mapping[str, Any]

    @property
    def presets(self) -> list[str]:
        """Those on which every agent was run plain and with the rule."""
        scores = self.data["scores"]
        return [
            preset
            for preset in PRESETS
            if preset in scores and all({"base", "rule"} <= scores[preset].get(agent, {}).keys() for agent in AGENTS)
        ]

    def values(self, preset: str, agent: str, form: str, measure: str) -> np.ndarray | None:
        """f[seeds], or None where that was not run."""
        scores = self.data["scores"][preset][agent].get(form)
        return None if scores is None else np.array(scores[measure])

    def gains(self, preset: str, form: str, measure: str) -> np.ndarray | None:
        """f[agents, seeds]: a form less its base; None where an agent lacks it."""
        rows = []
        for agent in AGENTS:
            pair = [self.values(preset, agent, one, measure) for one in ("base", form)]
            if pair[0] is None or pair[1] is None:
                return None
            rows.append(pair[1] - pair[0])
        return np.array(rows)

    def pooled(self, preset: str, form: str, measure: str) -> Estimate | None:
        """A form less its base, paired by seed: the mean over the agents of every seed, or with few seeds every agent's."""
        gains = self.gains(preset, form, measure)
        if gains is None:
            return None
        return difference(gains.mean(axis=0) if gains.shape[1] >= FEWEST else gains.ravel(), preset, form, measure)

    def kept(self, preset: str, measure: str) -> Estimate | None:
        """The rule's gain in the literal form's, both over all agents, with seeds resampled together."""
        literal, rule = (self.gains(preset, form, measure) for form in ("literal", "rule"))
        if literal is None or rule is None:
            return None
        pair = np.array([literal.mean(axis=0), rule.mean(axis=0)])
        drawn = generator_for(0, preset, measure, "kept").integers(pair.shape[1], size=(RESAMPLES, pair.shape[1]))
        several = pair[:, drawn].mean(axis=2)
        low, high = np.quantile(several[1] / several[0], LIMITS).tolist()
        return Estimate(float(pair[1].mean() / pair[0].mean()), low, high, pair.shape[1])

    def learned(self, preset: str, measure: str) -> float:
        """What the bases have over a random policy, on average."""
        base = [self.values(preset, agent, "base", measure) for agent in AGENTS]
        return float(np.mean([*filter(lambda one: one is not None, base)])) - self.random(preset)

    def random(self, preset: str) -> float:
        return self.data["random"][preset]["mean_return"]

    def with_seeds_of(self, other: "Evidence", preset: str) -> "Evidence":
        """One preset, with what was run for both: other seeds of the same forms."""

        def joined(agent: str, form: str) -> dict[str, list[float]]:
            pair = [one.data["scores"][preset][agent][form] for one in (self, other)]
            if set(pair[0]["seed"]) & set(pair[1]["seed"]):
                raise SadqError(f"Both rules were run on the same seeds of {preset}: these can't be added up.")
            return {name: [*pair[0][name], *pair[1][name]] for name in pair[0]}

        scores = {agent: {form: joined(agent, form) for form in forms_of(RULE)} for agent in AGENTS}
        return Evidence({"scores": {preset: scores}, "random": self.data["random"]})

    def verdict(self, preset: str, measure: str) -> str:
        """Whether the rule is shown to lose less than it may."""
        learned, found = self.learned(preset, measure), self.pooled(preset, "rule", measure)
        if learned <= 0:
            return NO_FLOOR
        if found is None or found.low is None or found.high is None:
            return OPEN
        floor = -ALLOWED * learned
        return HOLDS if found.low > floor else BELOW if found.high < floor else OPEN

    @property
    def gaining(self) -> list[tuple[str, str]]:
        """(preset, measure) where the literal form gains over its bases, beyond chance."""

        def gains(preset: str, measure: str) -> bool:
            found = self.pooled(preset, "literal", measure)
            return found is not None and found.low is not None and found.low > 0

        return [(preset, measure) for preset in self.presets for measure in MEASURES if gains(preset, measure)]


def difference(values: np.ndarray, *names: str) -> Estimate:
    """A mean over seeds, with the interval of all shifts that sign flips do not reject."""
    return stats.paired(np.zeros(values.size), values, generator_for(0, *names)).mean


def load(path: Path) -> Evidence:
    data = json.loads(path.read_text())
    if data.get("format") != FORMAT or data.get("rule") not in RULES.values():
        known = " or ".join(RULES.values())
        raise SadqError(f"{path} is not of the rule {known} (format {FORMAT}): make it anew with python tools/rule.py.")
    return Evidence(data)


def kept_table(evidence: Evidence) -> list[str]:
    """Where the literal form gains: how much of that is kept."""
    rows = []
    for preset, measure in evidence.gaining:
        literal, rule = (evidence.pooled(preset, form, measure) for form in ("literal", "rule"))
        share = evidence.kept(preset, measure)
        assert literal is not None and rule is not None and share is not None  # what gains was run
        enough = "**yes**" if share.value >= KEPT else "**no**"
        rows.append([place_name(preset), MEASURES[measure], signed(literal), signed(rule), percent(share), enough])
    return markdown(["preset", "", "the paper's form − base", "the rule − base", "kept", f"at least {KEPT:.0%}"], rows)


def floor_table(evidence: Evidence) -> list[str]:
    """The rule against its bases, all agents together."""
    rows = []
    for preset in evidence.presets:
        for measure, title in MEASURES.items():
            learned, found = evidence.learned(preset, measure), evidence.pooled(preset, "rule", measure)
            assert found is not None  # every agent was run with the rule
            literal = evidence.pooled(preset, "literal", measure)
            floor = number(-ALLOWED * learned, signed=True) if learned > 0 else "–"
            rows.append(
                [
                    place_name(preset),
                    title,
                    number(evidence.random(preset)),
                    number(evidence.random(preset) + learned),
                    floor,
                    "–" if literal is None else signed(literal),
                    signed(found),
                    f"**{evidence.verdict(preset, measure)}**",
                ]
            )
    titles = ["preset", "", "random", "bases", "floor", "the paper's form − base", "the rule − base", "above the floor"]
    return markdown(titles, rows)


def agents_table(evidence: Evidence) -> list[str]:
    """Every agent: base, literal form and rule, and the rule's paired difference."""
    rows = []
    for preset in evidence.presets:
        for agent in AGENTS:
            cells = [place_name(preset), f"`{agent}`"]
            for measure in MEASURES:
                values = [evidence.values(preset, agent, form, measure) for form in forms_of(RULE)]
                means = [None if one is None else float(one.mean()) for one in values]
                scale = max(abs(one) for one in means if one is not None)
                cells.append(" / ".join("–" if one is None else number(one, scale=scale) for one in means))
                base, rule = values[0], values[2]
                paired = base is not None and rule is not None
                cells.append(signed(difference(rule - base, preset, agent, measure)) if paired else "–")
            rows.append(cells)
    return markdown(["preset", "agent", "area", "rule − base", "final return", "rule − base"], rows)


def course_table(evidence: Evidence, preset: str, agent: str) -> list[str]:
    """A run in tenths: the return of each form, and what the gate and the model did."""
    course = evidence.data["course"][preset][agent]
    lines = {f"return, {form}": course[form]["return"] for form in course}
    lines |= {
        "α of the rule": course["rule"]["alpha"],
        "value, base": course["base"]["q"],
        "value, rule": course["rule"]["q"],
        "disagreement, rule": course["rule"]["disagreement"],
    }
    titles = ["tenth of the run", *(str(tenth + 1) for tenth in range(len(course["rule"]["return"])))]
    return markdown(titles, [[name, *_scaled(values)] for name, values in lines.items()])


def taken_table(evidence: Evidence) -> list[str]:
    """What a model that is right from the beginning changes: differences with the base."""
    phases = evidence.data["taken"]["phases"]
    names = {"literal": "the paper's form", "taken": "the same, with the model of another run", "rule": "the rule"}
    rows = []
    for form, title in names.items():
        cells = [
            signed(difference(np.array(phases[form][name]) - np.array(phases["base"][name]), "taken", form, name))
            for name in (*PHASES, *MEASURES)
        ]
        rows.append([title, *cells])
    return markdown(["less plain `dueling`", *PHASES, "whole area", "final return"], rows)


def model_gain(evidence: Evidence) -> dict[str, Estimate]:
    """Phase -> the run that took its model from another, less the one that learned its own."""
    phases = evidence.data["taken"]["phases"]
    return {
        name: difference(np.array(phases["taken"][name]) - np.array(phases["literal"][name]), "model", name)
        for name in (*PHASES, *MEASURES)
    }


def cut_line(evidence: Evidence) -> list[str]:
    """Which runs of the rule did not reach their end, and how far they got."""
    cut = evidence.data.get("cut", {})
    if not cut:
        return []
    told = ", ".join(f"`{name}` at {share:.0%}" for name, share in cut.items())
    return [f"Cut off before the end of the run, and judged by what there is: {told}.\n"]


def _scaled(values: Sequence[float]) -> list[str]:
    scale = max(map(abs, values))
    return [number(value, scale=scale) for value in values]


def together_line(evidence: Evidence, earlier: Evidence) -> list[str]:
    """What is kept where both rules do the same, by the seeds of both."""
    both = evidence.with_seeds_of(earlier, BOTH)
    shares = {title: both.kept(BOTH, measure) for measure, title in MEASURES.items()}
    told = " and ".join(f"{percent(one)} of the {title}" for title, one in shares.items() if one is not None)
    seeds = next(one.count for one in shares.values() if one is not None)
    return [f"{place_name(BOTH)}, with the seeds of the allowance alone as well, {seeds} in all: {told} is kept.\n"]


def block(evidence: Evidence, earlier: Evidence | None = None) -> str:
    """All tables, as docs/rule.md has them; with the seeds of an `earlier` rule where that did the same."""
    parts = [
        "**How much of the gain it keeps**, five agents together, where the paper's form gains at all:\n",
        *kept_table(evidence),
        "",
        *(together_line(evidence, earlier) if earlier else []),
        "**Whether it is below its base**, five agents together:\n",
        *floor_table(evidence),
        "",
        *cut_line(evidence),
        "**Agent by agent** (means of base / the paper's form / the rule):\n",
        *agents_table(evidence),
        f"\n**When**, `{TAKEN[1]}` on {place_name(TAKEN[0])}:\n",
        *course_table(evidence, *TAKEN),
    ]
    if "taken" in evidence.data:
        gained = model_gain(evidence)
        told = ", ".join(f"{signed(one)} in the {name}" for name, one in gained.items() if name in PHASES)
        parts += [
            f"\n**A model that is right from the beginning**, `{TAKEN[1]}` on {place_name(TAKEN[0])}:\n",
            *taken_table(evidence),
            f"\nThe taken model changes the paper's form by {told}.",
        ]
    return "\n".join(parts)
