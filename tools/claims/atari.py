"""Claims on Atari-100K: the table of games, the weight alpha, the image model, and what it costs."""

from collections.abc import Callable, Iterator

import numpy as np

from claims.judging import (
    FAILS,
    HOLDS,
    LATER,
    NOT_RUN,
    Claim,
    Finding,
    above,
    all_of,
    below,
    middle,
    paired,
    signed,
)
from claims.records import Arm, BySeed, Place, Results
from claims.training import rule
from sadq.report.paper import ATARI, ATARI_AGENTS
from sadq.report.stats import LIMITS, RESAMPLES, Estimate, generator_for, interval, number

AGENTS = {"qrdqn": "QR-DQN", "iqn": "IQN", "coact": "CoAct"}
MEANS = {"qrdqn": (6.31, 7.05), "iqn": (2.90, 4.69), "coact": (5.89, 6.63)}
"""The table's row of means, as it is printed."""
GAMES_OF_ALPHA = {"Alien": "a", "Breakout": "b", "Qbert": "c"}
ALPHAS = tuple(f"qrdqn+sadq@{alpha}" for alpha in ("0.8", "0.5", "0.2", "0"))
PLAIN = "qrdqn+sadq@1"
ITERATIONS = 2_000
PARAMETERS = 34e6
TOLERANCE = 1.1
"""A cost, in the base's time, at most so many times the paper's is the paper's; a size too, either way."""


def claims() -> Iterator[Claim]:
    for agent, title in AGENTS.items():
        medians = [float(np.median(_column(name))) for name in (agent, f"{agent}+sadq")]
        wins = _wins(agent)
        for key, words, statistic in (
            ("mean", "mean: {:.2f} → {:.2f}".format(*MEANS[agent]), np.mean),
            ("median", "median: {:.2f} → {:.2f} of its 24 games".format(*medians), np.median),
        ):
            says = f"SADQ improves {title}'s {words}"
            yield Claim(f"{agent}, {key}", "Table 1, Sec. 6.3", says, _aggregated(agent, statistic), "atari100k")
        says = f"SADQ improves {title} on {wins} of 24 games"
        yield Claim(f"{agent}, wins", "Table 1, Sec. 6.3", says, _won(agent, wins), "atari100k")
    for game, panel in GAMES_OF_ALPHA.items():
        needed = (PLAIN, *ALPHAS)
        for key, says, judge in (
            ("variance", "SADQ reduces variance for every α", _varies_less),
            ("smoothness", "SADQ gives smoother learning for every α", _smoother),
        ):
            decide = rule("alpha", f"atari/{game}", needed, judge)
            where = f"Fig. 5({panel}), Sec. 6.3"
            yield Claim(f"α, {key}, {game}", where, f"{says} ({game})", decide, "alpha", f"atari/{game}")
    says = "The one-step RSSM converges within about 2,000 iterations"
    yield Claim("image model converges", "Fig. 5(d), Sec. 6.3", says, _converges, "alpha")
    yield from _runtime()


def _column(agent: str) -> list[float]:
    return [row[ATARI_AGENTS.index(agent)] for row in ATARI.values()]


def _wins(agent: str) -> int:
    return sum(other > base for base, other in zip(_column(agent), _column(f"{agent}+sadq"), strict=True))


def final_scores(results: Results, game: str, agent: str) -> BySeed | None:
    """The signed score of a life that every seed ends at, as far as the game was played."""
    if (game, agent) in results.games:
        members = results.games[game, agent]["members"]
        return {member["seed"]: member["signed"][-1] for member in members}
    place = results.place("atari100k", f"atari/{game}", (agent,))
    return place.arms[agent].by_seed("final_return") if place else None


def _resampled(results: Results, agent: str) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]] | str:
    """(mean score[2, games], the same of resampled seeds[2, games, resamples], seeds); or which games are missing."""
    rows, drawn, seeds, missing = [], [], set(), []
    for game in ATARI:
        pair = [final_scores(results, game, name) for name in (agent, f"{agent}+sadq")]
        if None in pair:
            missing.append(game)
            continue
        generator = generator_for(0, game, agent)
        values = [np.array([*one.values()]) for one in pair if one is not None]
        rows.append([one.mean() for one in values])
        drawn.append([one[generator.integers(one.size, size=(RESAMPLES, one.size))].mean(axis=1) for one in values])
        seeds |= {one.size for one in values}
    if missing:
        return f"{len(ATARI) - len(missing)} of the paper's {len(ATARI)} games played with both arms"
    return np.array(rows).T, np.array(drawn).transpose(1, 0, 2), tuple(sorted(seeds))


def _later(results: Results, told: str) -> Finding:
    return Finding(LATER, told if results.games or "atari100k" in results.records else "")


def _aggregated(agent: str, statistic: Callable[..., np.ndarray]) -> Callable[[Results], Finding]:
    def decide(results: Results) -> Finding:
        found = _resampled(results, agent)
        if isinstance(found, str):
            return _later(results, found)
        scores, drawn, seeds = found
        base, other = (float(statistic(row)) for row in scores)
        low, high = np.quantile(statistic(drawn[1], axis=0) - statistic(drawn[0], axis=0), LIMITS).tolist()
        gain = Estimate(other - base, low, high, len(ATARI))
        return Finding(above(gain, 0.0), f"{number(base)} → {number(other)}, {signed(gain)}", seeds, results.atari)

    return decide


def _won(agent: str, wins: int) -> Callable[[Results], Finding]:
    """At least as many, as far as the seeds tell."""

    def decide(results: Results) -> Finding:
        found = _resampled(results, agent)
        if isinstance(found, str):
            return _later(results, found)
        scores, drawn, seeds = found
        low, high = np.quantile((drawn[1] > drawn[0]).sum(axis=0), LIMITS).tolist()
        verdict = HOLDS if high >= wins else FAILS
        told = f"{int((scores[1] > scores[0]).sum())} [{low:.0f}, {high:.0f}] of {len(ATARI)}"
        return Finding(verdict, told, seeds, results.atari)

    return decide


def _varies_less(place: Place) -> tuple[str, str]:
    """The deviation of final returns over the seeds, against that of α = 1, seeds resampled together."""
    ratios = {label: _ratio(place.arms[PLAIN], place.arms[label]) for label in ALPHAS}
    told = ", ".join(f"α = {label.partition('@')[2]}: {interval(one)}" for label, one in ratios.items())
    return all_of(below(one, 1.0) for one in ratios.values()), f"deviation over the seeds in that of α = 1: {told}"


def _ratio(base: Arm, other: Arm) -> Estimate:
    pair = [np.array([*arm.by_seed("final_return").values()]) for arm in (base, other)]
    generator = generator_for(0, base.label, other.label)
    picks = generator.integers(min(map(len, pair)), size=(RESAMPLES, min(map(len, pair))))
    drawn = [values[picks].std(axis=1) for values in pair]
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = np.nanquantile(drawn[1] / drawn[0], LIMITS).tolist()
        return Estimate(float(pair[1].std() / pair[0].std()), low, high, len(pair[0]))


def _smoother(place: Place) -> tuple[str, str]:
    base = place.arms[PLAIN].by_seed("late_fluctuation")
    found = {
        label: paired(base, place.arms[label].by_seed("late_fluctuation"), place.preset, label) for label in ALPHAS
    }
    told = ", ".join(f"α = {label.partition('@')[2]}: {signed(one)}" for label, one in found.items())
    return all_of(below(one, 0.0) for one in found.values()), (
        f"fluctuation of a seed's late evaluations, against α = 1: {told}"
    )


def _converges(results: Results) -> Finding:
    record = results.records.get("alpha")
    arms = [arm for place in (record.places if record else {}).values() for arm in place.arms.values()]
    arms = [arm for arm in arms if arm.has("model_updates_log")]
    if record is None or not arms:
        return NOT_RUN
    together = dict(enumerate(value for arm in arms for value in arm.by_seed("model_updates_log").values()))
    found = middle(together, "image model")
    told = f"90% of the fall of its loss, on a logarithmic scale, is made after {interval(found)} updates"
    return Finding(below(found, ITERATIONS), told, tuple(sorted({len(arm.seeds) for arm in arms})), record.source)


def _runtime() -> Iterator[Claim]:
    arms = {"40%": "qrdqn+sadq:pacing.fraction=0.4", "20%": "qrdqn+sadq:pacing.fraction=0.2"}
    for steps, key in (("100K", "100k"), ("10M", "10m")):
        for share, label in arms.items():
            yield Claim(
                f"runtime, {steps}, {share}",
                "Table 2",
                f"{steps} steps take QR-DQN {_paper_minutes(key, 'qrdqn')} min, with SADQ at t_f = {share} "
                f"{_paper_minutes(key, label)} min",
                _costs(key, label),
                "runtime",
            )
    says = "The one-step model has about 34M parameters (a full RSSM: 62M)"
    yield Claim("parameters", "Sec. 6.3", says, _parameters, "runtime")
    says = "The adaptive schedule substantially reduces the overhead: t_f = 20% is faster than 40%"
    yield Claim("runtime, schedule", "Table 2, Sec. 6.3", says, _scheduled(arms), "runtime")


PAPER_MINUTES = {
    "100k": {"qrdqn": 4, "qrdqn+sadq:pacing.fraction=0.4": 6, "qrdqn+sadq:pacing.fraction=0.2": 5},
    "10m": {"qrdqn": 434, "qrdqn+sadq:pacing.fraction=0.4": 598, "qrdqn+sadq:pacing.fraction=0.2": 522},
}


def _paper_minutes(steps: str, label: str) -> int:
    return PAPER_MINUTES[steps][label]


def _minutes(results: Results, steps: str) -> dict[str, float] | None:
    record = results.records.get("runtime")
    if record is None:
        return None
    return {row["arm"]: row[f"minutes_{steps}"] for row in record.data["arms"]}


def _costs(steps: str, label: str) -> Callable[[Results], Finding]:
    """The cost in QR-DQN's time, at most the paper's."""

    def decide(results: Results) -> Finding:
        minutes = _minutes(results, steps)
        if minutes is None or not {"qrdqn", label} <= minutes.keys():
            return NOT_RUN
        paper = _paper_minutes(steps, label) / _paper_minutes(steps, "qrdqn")
        ratio = minutes[label] / minutes["qrdqn"]
        told = f"{number(minutes['qrdqn'])} and {number(minutes[label])} min: {ratio:.2f} times (paper: {paper:.2f})"
        extrapolated = " extrapolated from a steady rate" if steps == "10m" else ""
        verdict = HOLDS if ratio <= TOLERANCE * paper else FAILS
        return Finding(verdict, told + extrapolated, (1,), results.records["runtime"].source)

    return decide


def _parameters(results: Results) -> Finding:
    record = results.records.get("runtime")
    counted = [row["model_parameters"] for row in record.data["arms"]] if record else []
    known = [one for one in counted if one is not None]
    if record is None or not known:
        return NOT_RUN
    near = abs(known[0] / PARAMETERS - 1) < TOLERANCE - 1
    return Finding(HOLDS if near else FAILS, f"{known[0] / 1e6:.1f}M", (), record.source)


def _scheduled(arms: dict[str, str]) -> Callable[[Results], Finding]:
    def decide(results: Results) -> Finding:
        minutes = _minutes(results, "10m")
        if minutes is None or not set(arms.values()) <= minutes.keys():
            return NOT_RUN
        often, seldom = (minutes[label] for label in arms.values())
        told = f"10M steps: {number(often)} min at 40%, {number(seldom)} min at 20%"
        return Finding(HOLDS if seldom < often else FAILS, told, (1,), results.records["runtime"].source)

    return decide
