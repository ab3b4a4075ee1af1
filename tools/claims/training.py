"""Claims on how training goes: the motivation, the ten baselines, CartPole and the real-world scenarios."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from claims.judging import (
    FAILS,
    HOLDS,
    NOT_RUN,
    OPEN,
    Claim,
    Finding,
    above,
    all_of,
    below,
    combined,
    counts,
    listed,
    mean_of,
    middle,
    paired,
    percent,
    signed,
    within,
)
from claims.records import Arm, BySeed, Place, Results
from sadq.report.stats import interval, number

SADQ = "dueling+sadq"
BASELINES = ("dqn", "double", "dueling", "bdqn", "sunrise", "c51", "rainbow", "qrdqn", "fqf", "teg")
REAL_WORLD = ("dueling", "bdqn", "rainbow")
NAMES = {
    "acrobot": "Acrobot",
    "bitflip": "BitFlip",
    "cartpole": "CartPole",
    "cityflow": "CityFlow",
    "lunarlander": "LunarLander",
    "ocloud": "O-Cloud",
}
VECTORS = ("acrobot", "bitflip", "lunarlander")

EARLY = 0.5  # of a run: what has happened by then happened rapidly
NEAR = 0.1  # of a run: two moments no further apart are near to each other
DEGRADED = 0.1  # of what was gained: a loss of more counts as degradation
LEARNED = 0.2  # of the best arm's gain: what gained less learned nothing that it could lose
CONTRACTED = 0.95  # of its peak: a spread of values that ends below has contracted
LEADING = 0.9  # of the evaluations: who has the highest mean so often is ahead throughout
FEW_HUNDRED = 500  # iterations

Judge = Callable[[Place], tuple[str, str]]


def rule(
    artefact: str, preset: str, needed: Sequence[str], judge: Judge, together: bool = False
) -> Callable[[Results], Finding]:
    """A rule on one preset of an artefact: not run until the arms that it needs are there.

    `together`: it looks only at seeds that all of these arms have.
    """

    def decide(results: Results) -> Finding:
        place = results.place(artefact, preset, needed)
        if place is None:
            return NOT_RUN
        verdict, measured = judge(place)
        return Finding(verdict, measured, seeds_of(place, needed, together), place.source)

    return decide


def seeds_of(place: Place, labels: Sequence[str], together: bool = False) -> tuple[int, ...]:
    """How many seeds each of the arms has, or all of them together."""
    own = [set(place.arms[label].seeds) for label in labels]
    return (len(set.intersection(*own)),) if together else tuple(sorted({len(seeds) for seeds in own}))


def claims() -> Iterator[Claim]:
    """In the paper's order."""
    for preset, panel in (("acrobot", "1(a)"), ("cartpole", "1(b)")):
        yield from _motivation(preset, f"Fig. {panel}, Sec. 4")
    for preset, panel in zip(VECTORS, "abc", strict=True):
        yield from _conventional(preset, f"Fig. 2({panel}), Sec. 6.1")
    yield from _real_world()
    yield from _cartpole()


def _motivation(preset: str, where: str) -> Iterator[Claim]:
    name = NAMES[preset]

    def claim(key: str, says: str, judge: Callable[[Arm], tuple[str, str]]) -> Claim:
        decide = rule("motivation", preset, ("dqn",), lambda place: judge(place.arms["dqn"]))
        return Claim(f"{key}, {name}", where, f"{says} ({name})", decide, "motivation", preset)

    def rapid(arm: Arm) -> tuple[str, str]:
        steps = middle(arm.by_seed("settled_step"), preset, "settled")
        told = f"five evaluations in a row make 90% of the way after {interval(steps)} of {arm.steps:,} steps"
        return below(steps, EARLY * arm.steps), told

    def stable(arm: Arm) -> tuple[str, str]:
        lost = middle(degradation(arm), preset, "lost")
        return below(lost, DEGRADED), f"ends {percent(lost)} of its gain below its best five evaluations"

    def peaks(arm: Arm) -> tuple[str, str]:
        settled, peak = arm.by_seed("settled_step"), arm.by_seed("delta_q_peak_step")
        late = middle(combined(lambda at, to: (at - to) / arm.steps, peak, settled), preset, "peak")
        return within(late, NEAR), (
            f"it first peaks after {interval(middle(peak, preset, 'peak step'))} steps, {percent(late)} of the run after "
            "90% of the way is made"
        )

    def contracts(arm: Arm) -> tuple[str, str]:
        peak = arm.by_seed("delta_q_peak")
        dip, last = (
            middle(combined(lambda one, top: one / top, arm.by_seed(name), peak), preset, name)
            for name in ("delta_q_dip", "delta_q_last")
        )
        return below(
            last, CONTRACTED
        ), f"ΔQ falls to {percent(dip)} of its first peak and ends at {percent(last)} of it"

    yield claim("rapid improvement", "DQN improves rapidly", rapid)
    yield claim("stable phase", "DQN then stays on a stable level", stable)
    yield claim("peak of ΔQ", "ΔQ = max Q − min Q peaks near the transition between the two phases", peaks)
    yield claim("contraction of ΔQ", "ΔQ then decreases to a stable level", contracts)


def degradation(arm: Arm) -> BySeed:
    """The part of its gain that a seed has lost again by the end: best five evaluations in a row against the last five."""
    best, first, last = (arm.by_seed(name) for name in ("best_return", "first_return", "final_return"))
    return combined(lambda b, f, e: (b - e) / (b - f) if b > f else np.nan, best, first, last)


def gain(arm: Arm) -> float:
    """What it learned at its best, on average over its seeds."""
    best, first = arm.by_seed("best_return"), arm.by_seed("first_return")
    return float(np.mean([*combined(lambda b, f: b - f, best, first).values()]))


def _conventional(preset: str, where: str) -> Iterator[Claim]:
    name, needed = NAMES[preset], (SADQ, *BASELINES)

    def claim(
        key: str, where: str, says: str, judge: Judge, needed: Sequence[str] = needed, together: bool = False
    ) -> Claim:
        decide = rule("conventional", preset, needed, judge, together)
        return Claim(f"{key}, {name}", where, f"{says} ({name})", decide, "conventional", preset)

    yield claim("competitive", where, "SADQ attains the highest or competitive final returns", _competitive)
    yield claim("steadier", where, "SADQ trains more stably than representative DQN variants", _steadier, together=True)
    yield claim("degradation", where, "DQN variants often gain early and then degrade", _degrading)
    yield claim("model converges", "Fig. 2(d)", "SADQ's dynamics model converges", _model_converges, (SADQ,))


def _competitive(place: Place) -> tuple[str, str]:
    """Competitive: no baseline is distinguishably above it, although the seeds could tell."""
    ends = {label: place.contrasts[label].outcome("final_return") for label in BASELINES}
    arms = {label: place.arms[label].middle("final_return") for label in (SADQ, *BASELINES)}
    best = max(BASELINES, key=lambda label: arms[label].value)
    words = counts(ends, {"better": "distinguishably above it", "worse": "below it"})
    could_tell = all(place.contrasts[label].can_settle("final_return") for label in BASELINES)
    verdict = FAILS if "better" in ends.values() else HOLDS if could_tell else OPEN
    told = f"SADQ ends at {interval(arms[SADQ])}, the best baseline, `{best}`, at {interval(arms[best])}"
    return verdict, f"{told}; {words}"


def _steadier(place: Place) -> tuple[str, str]:
    """How a seed's evaluations fluctuate over the second half of its run, against the mean of the baselines'."""
    others = mean_of([place.arms[label].by_seed("late_fluctuation") for label in BASELINES])
    own = {seed: value for seed, value in place.arms[SADQ].by_seed("late_fluctuation").items() if seed in others}
    found = paired(others, own, place.preset, "steadier")
    means = [number(np.nanmean([*values.values()])) for values in (own, others)]
    return below(found, 0.0), (
        f"late evaluations fluctuate by {means[0]}, the baselines' by {means[1]} on average: {signed(found)}"
    )


def _degrading(place: Place) -> tuple[str, str]:
    """Often: more than half of the baselines that learned anything."""
    most = max(gain(place.arms[label]) for label in (SADQ, *BASELINES))
    learned = [label for label in BASELINES if gain(place.arms[label]) > LEARNED * most]
    lost = {label: middle(degradation(place.arms[label]), place.preset, label) for label in (*learned, SADQ)}
    falling = [label for label in learned if above(lost[label], DEGRADED) == HOLDS]
    verdict = HOLDS if len(falling) > len(learned) / 2 else FAILS
    shown = ", ".join(f"`{label}` {percent(lost[label])}" for label in falling) or "none"
    return verdict, (
        f"{len(falling)} of {len(learned)} baselines that learn lose more than {DEGRADED:.0%} of their gain again "
        f"({shown}); SADQ loses {percent(lost[SADQ])}"
    )


def _model_converges(place: Place) -> tuple[str, str]:
    """Before half of its updates, 95% of the fall of its loss is made."""
    arm = place.arms[SADQ]
    if not arm.has("model_updates_linear"):
        return OPEN, "its loss was not recorded"
    updates = arm.by_seed("model_updates_linear")
    found, total = middle(updates, place.preset, "model"), arm.data["updates"]["model"]
    first, last = (float(np.mean([*arm.by_seed(f"model_loss_{end}").values()])) for end in ("first", "last"))
    grown = int(np.isnan([*updates.values()]).sum())
    if grown > len(updates) / 2:
        return (
            FAILS,
            f"its loss goes from {first:.2g} to {last:.2g}, and did not fall in {grown} of {len(updates)} seeds",
        )
    return below(found, EARLY * total), (
        f"95% of the fall of its loss ({first:.2g} to {last:.2g}) is made after {interval(found)} of {total:,} updates; "
        f"90% on a logarithmic scale after {interval(middle(arm.by_seed('model_updates_log'), place.preset, 'log'))}"
    )


def _real_world() -> Iterator[Claim]:
    needed = (SADQ, *REAL_WORLD)
    for preset, panel in (("cityflow", "a"), ("ocloud", "b")):
        where = f"Fig. 4({panel}), Sec. 6.2"

        def claim(key: str, says: str, judge: Judge, preset: str = preset, where: str = where) -> Claim:
            decide = rule("real-world", preset, needed, judge)
            return Claim(f"{key}, {NAMES[preset]}", where, f"{says} ({NAMES[preset]})", decide, "real-world", preset)

        yield claim("highest return", "SADQ ends above Dueling DQN, BDQN and Rainbow", _highest)
        yield claim("throughout", "SADQ has the highest return throughout training", _throughout)
        yield claim("stability", "SADQ improves training stability", _steadier_than_twin)


def _above_all(place: Place, name: str) -> tuple[str, dict[str, str]]:
    """Whether SADQ is distinguishably above all three; contrasts are of the others with it."""
    found = {label: place.contrasts[label].outcome(name) for label in REAL_WORLD}
    verdicts = {"worse": HOLDS, "better": FAILS}
    return all_of(verdicts.get(one, OPEN) for one in found.values()), found


def _highest(place: Place) -> tuple[str, str]:
    verdict, found = _above_all(place, "final_return")
    arms = ", ".join(f"`{label}` {interval(place.arms[label].middle('final_return'))}" for label in (SADQ, *REAL_WORLD))
    return verdict, f"{arms}; {counts(found, {'worse': 'distinguishably below SADQ', 'better': 'above it'})}"


def _throughout(place: Place) -> tuple[str, str]:
    verdict, found = _above_all(place, "area_under_curve")
    means = np.array([place.arms[label].curve[1] for label in (SADQ, *REAL_WORLD)], np.float64)
    leads = float((means[0, 1:] >= means[:, 1:].max(axis=0)).mean())
    words = counts(found, {"worse": "below it in area", "better": "above it"})
    ahead = HOLDS if leads >= LEADING else FAILS if leads < EARLY else OPEN
    return all_of((verdict, ahead)), f"SADQ has the highest mean at {leads:.0%} of the evaluations; {words}"


def _steadier_than_twin(place: Place) -> tuple[str, str]:
    base, own = (place.arms[label].by_seed("late_fluctuation") for label in ("dueling", SADQ))
    found = paired(base, own, place.preset, "stability")
    return below(found, 0.0), (
        f"late evaluations fluctuate by {number(np.nanmean([*own.values()]))}, `dueling`'s by "
        f"{number(np.nanmean([*base.values()]))}: {signed(found)}"
    )


def _cartpole() -> Iterator[Claim]:
    where, needed = "Fig. 10, App. E", (SADQ, *BASELINES)

    def claim(key: str, where: str, says: str, judge: Judge, needed: Sequence[str] = needed) -> Claim:
        return Claim(key, where, says, rule("cartpole", "cartpole", needed, judge), "cartpole", "cartpole")

    def underperforms(place: Place) -> tuple[str, str]:
        ends = {label: place.contrasts[label].outcome("final_return") for label in BASELINES}
        verdict = all_of({"better": HOLDS, "worse": FAILS}.get(one, OPEN) for one in ends.values())
        words = counts(ends, {"better": "distinguishably above it", "worse": "below it"})
        return verdict, f"SADQ ends at {interval(place.arms[SADQ].middle('final_return'))}; {words}"

    def simplest(place: Place) -> tuple[str, str]:
        contrast = place.contrasts["dqn"]
        verdict = {"better": HOLDS, "worse": FAILS}.get(contrast.outcome("final_return"), OPEN)
        return verdict, f"DQN minus SADQ in final return: {signed(contrast.difference('final_return'))}"

    def soon(place: Place) -> tuple[str, str]:
        updates = {label: place.arms[label].data["updates"]["value"] / place.arms[label].steps for label in BASELINES}
        steps = {label: place.arms[label].middle("steps_to_threshold") for label in BASELINES}
        fast = [label for label in BASELINES if below(steps[label], FEW_HUNDRED / updates[label]) == HOLDS]
        verdict = HOLDS if len(fast) > len(BASELINES) / 2 else FAILS
        best = min(BASELINES, key=lambda label: steps[label].value)
        return verdict, (
            f"80% of the way to the best arm within {FEW_HUNDRED} updates: {listed(fast)}; soonest is `{best}` after "
            f"{number(steps[best].value * updates[best])} updates"
        )

    def too_short(place: Place) -> tuple[str, str]:
        verdict, measured = _model_converges(place)
        return {HOLDS: FAILS, FAILS: HOLDS}.get(verdict, verdict), measured

    yield claim("fails on CartPole", where, "SADQ significantly underperforms all baselines on CartPole", underperforms)
    yield claim(
        "below DQN on CartPole",
        f"{where}, Sec. 7",
        "SADQ fails to match even the simplest algorithm on CartPole",
        simplest,
    )
    yield claim(
        "baselines are quick", where, "Most baselines converge within a few hundred iterations on CartPole", soon
    )
    yield claim(
        "too few updates", where, "The model has too few iterations to converge on CartPole", too_short, (SADQ,)
    )
