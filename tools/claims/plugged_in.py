"""Claims on what SADQ adds to an agent: controlled comparisons, its model's updates, and Theorem 1."""

from collections.abc import Callable, Iterator

import numpy as np

from claims.judging import (
    FAILS,
    HOLDS,
    LATER,
    NOT_RUN,
    OPEN,
    Claim,
    Finding,
    above,
    all_of,
    below,
    mean_of,
    paired,
    signed,
    trend,
)
from claims.records import BySeed, Place, Results
from claims.training import NAMES, VECTORS, rule, seeds_of
from sadq.report.stats import interval, number

BASES = {"dqn": "6", "double": "7", "dueling": "8", "sunrise": "9"}
TITLES = {"dqn": "DQN", "double": "Double DQN", "dueling": "Dueling DQN", "sunrise": "SUNRISE"}
OUTCOMES = {"better": HOLDS, "worse": FAILS, "mixed": FAILS}
"""Of an arm against its base over all three measures; what is better by one and worse by another is no improvement."""
MEASURES = {"steps_to_threshold": "steps to the threshold", "area_under_curve": "area", "final_return": "final return"}
FREQUENCIES = tuple(f"dueling+sadq:guidance.updates_per_collect={count}" for count in (1, 5, 10, 20))
TWINS = tuple(label for base in BASES for label in (base, f"{base}+sadq"))


def claims() -> Iterator[Claim]:
    yield from _frequency()
    for base, figure in BASES.items():
        for preset, panel in zip(VECTORS, "abc", strict=True):
            yield Claim(
                f"{base}, {NAMES[preset]}",
                f"Fig. {figure}({panel}), App. D",
                f"SADQ improves {TITLES[base]} ({NAMES[preset]})",
                rule("controlled", preset, (base, f"{base}+sadq"), _improved(base)),
                "controlled",
                preset,
            )
    yield Claim(
        "consistent", "Sec. 6.1, App. D, Sec. 8", "SADQ consistently improves all baselines", _consistent, "controlled"
    )
    for preset in VECTORS:
        for key, where, says, judge in (
            ("overestimation", "Abstract, Sec. 5.5", "SADQ reduces bootstrap-induced overestimation", _overestimates),
            ("steadier twins", "Abstract, Sec. 8", "SADQ improves training stability", _steadier),
        ):
            decide, name = rule("controlled", preset, TWINS, judge, together=True), NAMES[preset]
            yield Claim(f"{key}, {name}", where, f"{says} ({name})", decide, "controlled", preset)
    yield from _theory()


def _improved(base: str) -> Callable[[Place], tuple[str, str]]:
    def judge(place: Place) -> tuple[str, str]:
        contrast = place.contrasts[f"{base}+sadq"]
        ends = [interval(place.arms[label].middle("final_return")) for label in (base, f"{base}+sadq")]
        area = signed(contrast.difference("area_under_curve"))
        told = [
            f"{title} {contrast.outcome(name)}"
            for name, title in MEASURES.items()
            if contrast.outcome(name) in ("better", "worse")
        ]
        return OUTCOMES.get(contrast.outcome(), OPEN), (
            f"final return {ends[0]} → {ends[1]}, paired {signed(contrast.difference('final_return'))}; area {area}; "
            f"{', '.join(told) or 'no measure is distinguishable'}"
        )

    return judge


def _consistent(results: Results) -> Finding:
    """Over every base and preset; a single loss refutes it, and what is not run leaves it open."""
    found: dict[str, str] = {}
    seeds: set[int] = set()
    for preset in VECTORS:
        for base in BASES:
            place = results.place("controlled", preset, (base, f"{base}+sadq"))
            found[f"{base} on {NAMES[preset]}"] = (
                LATER if place is None else OUTCOMES.get(place.contrasts[f"{base}+sadq"].outcome(), OPEN)
            )
            seeds |= set(seeds_of(place, (base,))) if place else set()
    if set(found.values()) == {LATER}:
        return NOT_RUN
    words = {HOLDS: "better", FAILS: "worse or mixed", OPEN: "not distinguishable", LATER: "not yet run"}
    told = []
    for verdict, title in words.items():
        which = [name for name, one in found.items() if one == verdict]
        named = f" ({', '.join(which)})" if verdict == FAILS else ""
        told += [f"{len(which)} {title}{named}"] if which else []
    measured = f"of {len(found)} pairs {', '.join(told)}"
    return Finding(all_of(found.values()), measured, tuple(sorted(seeds)), results.records["controlled"].source)


def _pooled(place: Place, name: str) -> tuple[BySeed, BySeed]:
    """(base, guided): a number of each seed that all arms have, averaged over the four bases."""
    base = mean_of([place.arms[base].by_seed(name) for base in BASES])
    guided = mean_of([place.arms[f"{base}+sadq"].by_seed(name) for base in BASES])
    shared = base.keys() & guided.keys()
    return {seed: base[seed] for seed in sorted(shared)}, {seed: guided[seed] for seed in sorted(shared)}


def _overestimates(place: Place) -> tuple[str, str]:
    base, guided = _pooled(place, "overestimation")
    found = paired(base, guided, place.preset, "overestimation")
    means = [number(np.nanmean([*values.values()])) for values in (base, guided)]
    return below(found, 0.0), (
        f"predicted minus achieved return at the end, mean over the four bases: {means[0]} → {means[1]}, paired "
        f"{signed(found)}"
    )


def _steadier(place: Place) -> tuple[str, str]:
    base, guided = _pooled(place, "late_fluctuation")
    found = paired(base, guided, place.preset, "stability")
    means = [number(np.nanmean([*values.values()])) for values in (base, guided)]
    return below(found, 0.0), (
        f"fluctuation of late evaluations, mean over the four bases: {means[0]} → {means[1]}, paired {signed(found)}"
    )


def _frequency() -> Iterator[Claim]:
    def claim(key: str, where: str, says: str, judge: Callable[[Place], tuple[str, str]]) -> Claim:
        decide = rule("model-frequency", "cartpole", FREQUENCIES, judge)
        return Claim(key, where, says, decide, "model-frequency", "cartpole")

    def row(place: Place, name: str) -> str:
        shown = [interval(place.arms[label].middle(name)) for label in FREQUENCIES]
        return f"k = 1, 5, 10, 20: {'; '.join(shown)}"

    def faster(place: Place) -> tuple[str, str]:
        slope = trend([place.arms[label].by_seed("steps_to_threshold") for label in FREQUENCIES], "steps")
        told = f"steps to the threshold at {row(place, 'steps_to_threshold')}; {signed(slope)} for each next k"
        return below(slope, 0.0), told

    def higher(place: Place) -> tuple[str, str]:
        slope = trend([place.arms[label].by_seed("final_return") for label in FREQUENCIES], "final")
        return above(slope, 0.0), f"final return at {row(place, 'final_return')}; {signed(slope)} for each next k"

    def fastest(place: Place) -> tuple[str, str]:
        steps = {label: place.arms[label].middle("steps_to_threshold").value for label in FREQUENCIES}
        contrast = place.contrasts[FREQUENCIES[-1]]
        least = min(steps, key=lambda label: steps[label]) == FREQUENCIES[-1]
        settled = {"better": HOLDS, "worse": FAILS}.get(contrast.outcome("steps_to_threshold"), OPEN)
        verdict = all_of((settled, HOLDS if least else OPEN))
        words = "the fewest of the four" if least else "not the fewest of the four"
        return verdict, (
            f"k = 20 takes {number(steps[FREQUENCIES[-1]])} steps, {words}; against k = 1 paired "
            f"{signed(contrast.difference('steps_to_threshold'))}"
        )

    def learned(place: Place) -> tuple[str, str]:
        if not all(place.arms[label].has("model_loss_log10") for label in FREQUENCIES):
            return OPEN, "the model's loss was not recorded"
        losses = [place.arms[label].by_seed("model_loss_log10") for label in FREQUENCIES]
        slope = trend(losses, "losses")
        ends = [np.mean([*place.arms[label].by_seed("model_loss_last").values()]) for label in FREQUENCIES]
        return below(slope, 0.0), (
            f"loss at the end for k = 1, 5, 10, 20: {', '.join(f'{one:.2g}' for one in ends)}; its logarithm (base 10), "
            f"mean over the run, {signed(slope)} for each next k"
        )

    def steady(place: Place) -> tuple[str, str]:
        own = [place.arms[label].by_seed("late_fluctuation") for label in FREQUENCIES]
        slope = trend(own, "stability")
        means = ", ".join(number(np.mean([*one.values()])) for one in own)
        return below(slope, 0.0), (
            f"late evaluations fluctuate by {means} at k = 1, 5, 10, 20; {signed(slope)} for each next k"
        )

    yield claim("k: sooner", "Fig. 3(a), Sec. 6.1", "More model updates k accelerate convergence (CartPole)", faster)
    yield claim("k: higher", "Fig. 3(a), Sec. 6.1", "More model updates k improve final performance (CartPole)", higher)
    yield claim("k: fastest", "Fig. 3(a), Sec. 6.1", "k = 20 achieves the fastest learning (CartPole)", fastest)
    yield claim("k: model", "Fig. 3(b), Sec. 6.1", "The model converges faster as k increases (CartPole)", learned)
    yield claim(
        "k: stability",
        "Sec. 6.1",
        "More accurate successor prediction (a larger k) leads to improved stability (CartPole)",
        steady,
    )


def _theory() -> Iterator[Claim]:
    rows = (
        ("`T_mix Q ≤ T_std Q` pointwise, for any bounded Q", "Theorem 1 (I)", "never above the greedy target"),
        ("With a perfect model `T_mix Q* = T* Q*`: by the expected score", "Theorem 1 (II)", "fixed point, expected"),
        (
            "With a perfect model `T_mix Q* = T* Q*`: by one sampled successor, deterministic dynamics",
            "Theorem 1 (II), Eq. 14",
            "sampled, still",
        ),
        (
            "With a perfect model `T_mix Q* = T* Q*`: by one sampled successor, stochastic dynamics",
            "Theorem 1 (II), Eq. 14",
            "sampled, stochastic",
        ),
        ("With a perfect model `T_mix Q → T_std Q` for any Q", "App. A, proof of (II)", "line of the proof"),
    )
    for index, (says, where, key) in enumerate(rows):
        yield Claim(key, where, says, _tabular(index), "theory")


def _tabular(index: int) -> Callable[[Results], Finding]:
    def decide(results: Results) -> Finding:
        record = results.records.get("theory")
        if record is None:
            return NOT_RUN
        row = record.data["claims"][index]
        size = (
            f" on a value range of up to {number(row['largest_value_range'])}" if "largest_value_range" in row else ""
        )
        measured = f"{row['quantity']} {row['found']:.2g}{size}, {row['mdps']:,} random MDPs"
        return Finding(HOLDS if row["holds"] else FAILS, measured, (), record.source)

    return decide
