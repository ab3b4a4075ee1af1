"""Statistics against closed forms, scipy, rliable's numbers, and simulation."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng
from scipy import stats as oracle

from sadq.report import stats

REFERENCE = json.loads((Path(__file__).parents[1] / "data" / "rliable.json").read_text())
"""What rliable says of three pairs of score matrices; tools/rliable_reference.py made it."""

numbers = st.floats(-1e3, 1e3).map(lambda value: round(value, 3))


@given(st.lists(numbers, min_size=1, max_size=30))
@settings(max_examples=50, deadline=None)
def test_interquartile_mean_is_scipys_trimmed_mean(values: list[float]) -> None:
    found = stats.interquartile_mean(np.array(values))
    np.testing.assert_allclose(found, oracle.trim_mean(values, 0.25), rtol=1e-9, atol=1e-9)


def test_estimate_of_the_mean_matches_scipys_bootstrap() -> None:
    values = default_rng(0).gamma(2, size=20)
    found = stats.estimate(values, default_rng(1))
    expected = oracle.bootstrap((values,), np.mean, method="percentile", n_resamples=10_000, rng=2).confidence_interval
    assert found.value == pytest.approx(values.mean()) and found.count == 20
    assert found.low == pytest.approx(expected.low, rel=0.03) and found.high == pytest.approx(expected.high, rel=0.03)


def test_estimate_of_two_values_has_a_closed_form() -> None:
    # Redrawing {0, 1} gives 0, 1/2, 1 with chances 1/4, 1/2, 1/4, so both limits are the extremes.
    assert stats.estimate([0.0, 1.0], default_rng(0)) == stats.Estimate(0.5, 0.0, 1.0, 2)


def test_estimate_without_spread() -> None:
    assert stats.estimate([3.0], default_rng(0)) == stats.Estimate(3.0, None, None, 1)
    assert stats.estimate([3.0, np.nan], default_rng(0)) == stats.Estimate(3.0, None, None, 1)
    nothing = stats.estimate([], default_rng(0))
    assert np.isnan(nothing.value) and nothing.count == 0 and nothing.low is None
    assert stats.estimate([2.0] * 5, default_rng(0)) == stats.Estimate(2.0, 2.0, 2.0, 5)


@pytest.mark.parametrize("statistic", [np.mean, stats.interquartile_mean])
def test_the_bootstrap_uses_its_random_state(statistic: stats.Statistic) -> None:
    values = default_rng(0).normal(size=9)

    def interval(seed: int) -> tuple[float | None, float | None]:
        found = stats.estimate(values, default_rng(seed), statistic, resamples=500)
        return found.low, found.high

    assert interval(1) == interval(1)
    assert len({interval(seed) for seed in range(5)}) == 5
    shared = default_rng(3)
    assert stats.estimate(values, shared) != stats.estimate(values, shared)


def test_streams_differ_by_seed_and_name() -> None:
    keys = [(0, "a"), (1, "a"), (0, "b"), (0, "a", "b"), (0, "ab")]
    assert len({stats.generator_for(seed, *names).random() for seed, *names in keys}) == len(keys)
    assert stats.generator_for(0, "a").random() == stats.generator_for(0, "a").random()


@pytest.mark.parametrize("count", sorted(stats.COVERAGE))
def test_coverage_is_what_the_report_admits(count: int) -> None:
    generator, trials = default_rng(count), 1500
    hits = 0
    for values in generator.normal(size=(trials, count)):
        found = stats.estimate(values, generator, resamples=400)
        assert found.low is not None and found.high is not None
        hits += found.low <= 0 <= found.high
    assert hits / trials == pytest.approx(stats.COVERAGE[count], abs=0.03)


def test_coverage_nears_the_level_with_many_seeds() -> None:
    generator, trials, count = default_rng(0), 2500, 60
    found = [stats.estimate(values, generator, resamples=400) for values in generator.normal(size=(trials, count))]
    # A percentile interval spans 1.96 standard errors computed with n, where Student's has n - 1 and wider quantiles.
    expected = 1 - 2 * oracle.t.sf(1.96 * np.sqrt((count - 1) / count), df=count - 1)
    covered = np.mean([each.low <= 0 <= each.high for each in found])  # type: ignore[operator]
    assert covered == pytest.approx(expected, abs=0.02) and expected > 0.94


@given(st.lists(numbers, min_size=2, max_size=9))
@settings(max_examples=40, deadline=None)
def test_sign_flips_match_scipys_permutation_test(values: list[float]) -> None:
    differences = np.array(values)
    expected = oracle.permutation_test(
        (differences,), np.mean, permutation_type="samples", n_resamples=np.inf, alternative="two-sided"
    ).pvalue
    # scipy doubles the smaller tail, which for a symmetric distribution is the same, up to its cap at 1.
    found, exact = stats.sign_flip_test(differences, default_rng(0))
    assert exact and found == pytest.approx(min(expected, 1.0), abs=1e-12)


def test_sign_flips_by_hand() -> None:
    # Of the 8 sums of ±1 ±2 ±4, those of at least 5 in size are ±7 and ±5.
    assert stats.sign_flip_test(np.array([-1.0, 2, 4]), default_rng(0)) == (0.5, True)
    assert stats.sign_flip_test(np.zeros(4), default_rng(0)) == (1.0, True)
    # Sums of tenths in another order differ in the last bit; all 2 of 8 patterns must still be found.
    assert stats.sign_flip_test(np.array([0.1, 0.2, 0.3]), default_rng(0))[0] == 0.25


def test_sampled_sign_flips_approach_the_exact_value(monkeypatch: pytest.MonkeyPatch) -> None:
    differences = default_rng(5).normal(0.3, size=14)
    truth = stats.paired(np.zeros(14), differences, default_rng(0))
    monkeypatch.setattr(stats, "ENUMERATED_PAIRS", 12)
    sampled = stats.paired(np.zeros(14), differences, default_rng(0))
    assert truth.exact and not sampled.exact and sampled.p_value == pytest.approx(truth.p_value, abs=0.01)
    assert sampled.mean.low == pytest.approx(truth.mean.low, abs=0.02)
    assert sampled.mean.high == pytest.approx(truth.mean.high, abs=0.02)
    assert sampled.p_value != stats.sign_flip_test(differences, default_rng(1))[0]
    assert stats.sign_flip_test(np.ones(40), default_rng(0))[0] == 2 / stats.SAMPLED_FLIPS
    assert stats.paired(np.zeros(40), np.ones(40), default_rng(0)).smallest_p == 2 / stats.SAMPLED_FLIPS
    assert stats.paired(np.zeros(40), np.arange(40) < 3, default_rng(0)).smallest_p == 0.25, "most of them are tied"


def test_a_sampled_interval_never_contradicts_its_p_value() -> None:
    generator, near = default_rng(0), 0
    for trial in range(40):
        differences = generator.normal(size=25)
        # Just where the test turns: zero lies at a limit of the interval, but for the chance of a sample.
        found, _ = stats.sign_flip_interval(differences, default_rng(trial))
        assert found.low is not None
        result = stats.paired(np.zeros(25), differences - found.low, default_rng(1000 + trial))
        assert result.mean.low is not None and result.mean.high is not None
        assert (result.mean.low <= 0 <= result.mean.high) == (result.p_value > stats.SIGNIFICANCE)
        near += abs(result.p_value - stats.SIGNIFICANCE) < 0.005
    assert near == 40


@pytest.mark.parametrize("case", REFERENCE["cases"], ids=lambda case: case["name"])
def test_aggregates_are_rliables(case: dict[str, Any]) -> None:
    base, other = case["scores"]["base"], case["scores"]["other"]
    found = {
        "base": stats.aggregate(base, default_rng(0)),
        "other": stats.aggregate(other, default_rng(1)),
        "improvement": stats.probability_of_improvement(base, other, default_rng(2)),
    }
    for name, mine in found.items():
        theirs = case["rliable"][name]
        assert mine.value == pytest.approx(theirs["value"], rel=1e-12), name
        low, high = theirs["interval"]
        # The limits of two bootstraps of 10,000 differ by chance by a hundredth of the interval or two.
        assert [mine.low, mine.high] == pytest.approx([low, high], abs=0.04 * (high - low)), name


def test_the_bootstrap_redraws_every_stratum_apart() -> None:
    apart = [np.zeros(10), np.full(10, 100.0)]
    assert stats.aggregate(apart, default_rng(0), np.mean) == stats.Estimate(50.0, 50.0, 50.0, 20)
    together = stats.estimate(np.concatenate(apart), default_rng(0))
    assert together.low is not None and together.low < 40


def test_aggregates_without_spread_or_scores() -> None:
    assert stats.aggregate([[1.0], [3.0]], default_rng(0)) == stats.Estimate(2.0, None, None, 2)
    assert np.isnan(stats.aggregate([], default_rng(0)).value) and np.isnan(stats.aggregate([[]], default_rng(0)).value)
    alone = stats.probability_of_improvement([[1.0]], [[2.0]], default_rng(0))
    assert alone == stats.Estimate(1.0, None, None, 1)
    assert np.isnan(stats.probability_of_improvement([[np.nan]], [[2.0]], default_rng(0)).value)


def test_improvement_asks_about_independent_runs_and_wins_about_pairs() -> None:
    base, other = np.array([1.0, 2, 3, 4]), np.array([2.0, 3, 4, 5])
    assert stats.paired(base, other, default_rng(0)).win_share == 1.0
    # Of the 16 pairs 10 are ahead and 3 tied.
    assert stats.probability_of_improvement([base], [other], default_rng(0)).value == 11.5 / 16
    assert stats.probability_of_improvement([other], [base], default_rng(0)).value == 4.5 / 16


@given(st.lists(numbers, min_size=2, max_size=11), st.floats(-2, 2))
@settings(max_examples=60, deadline=None)
def test_the_interval_holds_the_shifts_that_the_test_does_not_reject(values: list[float], place: float) -> None:
    differences = np.array(values)
    found, level = stats.sign_flip_interval(differences, default_rng(0))
    assert found.low is not None and found.high is not None
    widest = 1 - 2.0 ** (1 - differences.size)
    assert stats.LEVEL <= level <= widest if widest >= stats.LEVEL else level == widest
    reach = found.high - found.low + 1.0
    shift = found.value + place * reach
    p_value, _ = stats.sign_flip_test(differences - shift, default_rng(0))
    near = min(abs(shift - found.low), abs(shift - found.high)) < 1e-6 * reach
    if len(values) >= 6 and not near:
        assert (found.low < shift < found.high) == (p_value > stats.SIGNIFICANCE)


@pytest.mark.parametrize(("count", "level"), [(5, 0.9375), (10, 0.951), (20, 0.95)])
def test_the_interval_of_a_paired_difference_covers_as_it_says(count: int, level: float) -> None:
    generator, trials = default_rng(count), 4000 // count
    hits = 0
    for values in generator.laplace(size=(trials, count)):
        found, said = stats.sign_flip_interval(values, generator)
        assert said == pytest.approx(level, abs=1e-3) and found.low is not None and found.high is not None
        hits += found.low <= 0 <= found.high
    assert hits / trials == pytest.approx(level, abs=0.04)


def test_holm_by_hand() -> None:
    assert stats.holm([0.01, 0.04, 0.03, 0.5]) == pytest.approx([0.04, 0.09, 0.09, 0.5])
    assert stats.holm([0.9, 0.6]) == [1.0, 1.0] and stats.holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
@settings(max_examples=40, deadline=None)
def test_holm_rejects_step_by_step(p_values: list[float]) -> None:
    corrected, rejected = stats.holm(p_values), set()
    for rank, index in enumerate(np.argsort(p_values, kind="stable")):
        if p_values[index] * (len(p_values) - rank) > 0.05:
            break
        rejected.add(int(index))
    assert {index for index, value in enumerate(corrected) if value <= 0.05} == rejected


@pytest.mark.parametrize(("effect", "comparisons"), [(1.0, 1), (0.7, 3)])
def test_so_many_seeds_settle_it_four_times_in_five(effect: float, comparisons: int) -> None:
    # Differences whose mean and deviation are exactly those of the population that is then drawn from.
    seen = [effect - np.sqrt(0.5), effect + np.sqrt(0.5)]
    needed = stats.seeds_to_settle(seen, comparisons)
    assert needed is not None
    generator, found = default_rng(0), 0
    for values in generator.normal(effect, size=(300, needed)):
        found += stats.sign_flip_test(values, generator)[0] <= stats.SIGNIFICANCE / comparisons
    assert found / 300 == pytest.approx(stats.POWER, abs=0.08)


@pytest.mark.parametrize(("ahead", "comparisons"), [(8, 1), (6, 1), (3, 1), (8, 3)])
def test_tied_seeds_are_no_signs_to_settle_it_with(ahead: int, comparisons: int) -> None:
    """As where seeds solve it or not: so many of ten are ahead by one, and the others tied."""
    needed = stats.seeds_to_settle([1.0] * ahead + [0.0] * (10 - ahead), comparisons)
    assert needed is not None
    generator, found = default_rng(0), 0
    for values in (generator.random(size=(400, needed)) < ahead / 10).astype(float):
        found += stats.sign_flip_test(values, generator)[0] <= stats.SIGNIFICANCE / comparisons
    assert 0.75 <= found / 400 <= 0.95


def test_seeds_that_nobody_would_run_are_not_counted() -> None:
    assert stats.seeds_to_settle([0.001, 1.0, -1.0]) is None
    assert stats.seeds_to_settle([1.0, -1.0]) is None and stats.seeds_to_settle([]) is None
    assert stats.seeds_to_settle([1.0] * 3) == 6, "fewer pairs never reach p = 0.05, however they agree"


def test_the_test_keeps_its_level() -> None:
    generator = default_rng(0)
    values = [stats.sign_flip_test(generator.normal(size=8), generator)[0] for _ in range(1000)]
    assert np.mean(np.array(values) <= 0.05) <= 0.05 + 0.02


def test_paired_numbers() -> None:
    found = stats.paired([1, 2, 3, 4, np.nan], [2, 2, 5, 3, 9], default_rng(0))
    assert found.differences == (1, 0, 2, -1)
    assert found.mean.value == 0.5 and found.mean.count == 4
    assert found.interquartile_mean.value == 0.5
    assert found.win_share == 0.625 and (found.wins, found.ties) == (2, 1)
    assert found.smallest_p == 0.25 and found.exact
    reordered = stats.paired([0.1 + 0.2], [0.3], default_rng(0))
    assert reordered.differences == (0.0,)


@pytest.mark.parametrize("count", range(2, 8))
def test_few_pairs_have_a_least_p_value(count: int) -> None:
    found = stats.paired(np.zeros(count), np.arange(1.0, count + 1), default_rng(0))
    assert found.p_value == found.smallest_p == 2.0 ** (1 - count)
    words = stats.conclusion(found)
    if count < 6:
        assert "not distinguishable" in words and f"cannot give a p-value below {Fraction(found.smallest_p)}" in words
        assert found.level == 1 - 2.0 ** (1 - count) < stats.LEVEL
        assert (found.mean.low, found.mean.high) == (1, count), "the whole range, which holds less than 95%"
    else:
        assert f"With {count} seeds this is distinguishable" in words and "little about its size" in words


def test_conclusions_in_words() -> None:
    def words(differences: list[float]) -> str:
        return stats.conclusion(stats.paired(np.zeros(len(differences)), differences, default_rng(0)))

    assert "nothing can be compared" in words([])
    assert "nothing can be concluded" in words([1.0])
    assert words([0.0] * 3).startswith("All 3 pairs are tied")
    assert "5 pairs cannot give a p-value below 1/16, even" in words([1.0, -1, 1, 1, -1])
    assert "5 pairs, 2 of them tied, cannot give a p-value below 1/4" in words([1.0, 0, 0, 1, -1])
    assert "only a large and consistent difference" in words([1.0, -1] * 4)
    many = words([1.0] * 20)
    assert "distinguishable from zero (exact two-sided sign-flip test: p < 0.001)." in many
    assert "not" not in many
    assert "sampled two-sided" in words([1.0] * (stats.ENUMERATED_PAIRS + 1))
    assert words([1.0, -1] * 10).endswith("p = 1).")


def test_curve_interval_matches_the_estimate_and_skips_what_is_missing() -> None:
    values = default_rng(0).normal(size=(30, 3))
    values[1:, 2] = np.nan
    values[0, 1] = np.nan
    mean, low, high = stats.curve_interval(values, default_rng(1), resamples=20_000)
    np.testing.assert_allclose(mean, [values[:, 0].mean(), values[1:, 1].mean(), values[0, 2]])
    whole = stats.estimate(values[:, 0], default_rng(2), resamples=20_000)
    np.testing.assert_allclose([low[0], high[0]], [whole.low, whole.high], atol=0.03)
    assert np.isfinite([low[1], high[1]]).all() and np.isnan([low[2], high[2]]).all()
    assert np.isnan(stats.curve_interval(np.full((2, 1), np.nan), default_rng(0))).all()


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.974, "0.97"), (-81.234, "−81.23"), (-500, "−500.0"), (12345.6, "12,346"), (0.0041, "0.0041"), (0, "0.00")]
    + [(999_999_999, "999,999,999"), (-1.5e9, "−1.500e+09"), (1e300, "1.000e+300")],
)
def test_numbers_are_readable(value: float, text: str) -> None:
    assert stats.number(value) == text


def test_intervals_share_their_digits() -> None:
    assert stats.interval(stats.Estimate(0.97, 0.929, 1.0, 5)) == "0.97 [0.93, 1.00]"
    assert stats.interval(stats.Estimate(0.052, -0.0071, 0.0861, 5), signed=True) == "+0.052 [−0.007, 0.086]"
    assert stats.interval(stats.Estimate(0.1, -0.0001, 0.2, 5)) == "0.10 [0.00, 0.20]"
    assert stats.interval(stats.Estimate(3.0, None, None, 1)) == "3.00"
    assert stats.interval(stats.Estimate(float("nan"), None, None, 0)) == "not known"
