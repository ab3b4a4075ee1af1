"""Verdicts: which way a difference points, what is corrected for, and what is said in words."""

import dataclasses

import numpy as np
import pytest

from sadq.report import stats, verdicts
from sadq.report.verdicts import AREA_UNDER_CURVE, FINAL_RETURN, MEASURES, STEPS_TO_THRESHOLD, Contrast, contrast

SPREAD = np.random.default_rng(0).normal(size=10).round(3).tolist()


def arms(effect: float, seeds: int = 10, measure: verdicts.Measure = FINAL_RETURN) -> Contrast:
    """A base whose seeds differ, and another arm that is `effect` better on each of them, give or take."""
    base = {seed: 100 + 10 * SPREAD[seed] for seed in range(seeds)}
    return contrast(measure, base, {seed: value + effect + SPREAD[-1 - seed] for seed, value in base.items()})


def test_numbers_of_a_contrast() -> None:
    found = contrast(FINAL_RETURN, {0: 1.0, 1: 2.0, 2: 3.0, 7: 4.0}, {2: 9.0, 1: 2.0, 0: 0.0, 8: 5.0})
    assert found.difference.differences == (-1.0, 0.0, 6.0), "on the seeds that both have"
    assert (found.base.value, found.other.value) == (2.5, 3.5), "interquartile means over all seeds of each"
    assert found.improvement.value == 9.5 / 16 and found.win_share == 0.5
    assert found.outcome == "undecided" and not found.can_settle


@pytest.mark.parametrize(
    ("effect", "measure", "outcome"),
    [
        (5.0, FINAL_RETURN, "better"),
        (-5.0, FINAL_RETURN, "worse"),
        (-5.0, STEPS_TO_THRESHOLD, "better"),
        (5.0, STEPS_TO_THRESHOLD, "worse"),
        (0.0, FINAL_RETURN, "undecided"),
    ],
)
def test_the_outcome_knows_which_way_is_better(effect: float, measure: verdicts.Measure, outcome: str) -> None:
    found = arms(effect, measure=measure)
    assert found.outcome == outcome
    if outcome != "undecided":
        assert (found.improvement.value > 0.5) == (found.win_share > 0.5) == (outcome == "better")


def test_numbers_are_the_same_twice_and_follow_the_seed_of_the_bootstrap() -> None:
    base, other = {seed: SPREAD[seed] for seed in range(10)}, {seed: SPREAD[-1 - seed] for seed in range(10)}
    assert contrast(FINAL_RETURN, base, other, 0, "a") == contrast(FINAL_RETURN, base, other, 0, "a")
    assert contrast(FINAL_RETURN, base, other, 0, "a").base != contrast(FINAL_RETURN, base, other, 1, "a").base


def test_several_comparisons_are_corrected_together() -> None:
    alone = [arms(5.0), arms(0.55), arms(0.0)]
    together = verdicts.corrected(alone)
    assert [one.corrected_p for one in together] == stats.holm([one.difference.p_value for one in alone])
    assert {one.comparisons for one in together} == {3}
    assert alone[1].outcome == "better" and together[1].outcome == "undecided"
    nothing = contrast(FINAL_RETURN, {0: 1.0}, {1: 2.0})
    with_nothing = verdicts.corrected([*alone, nothing])
    assert with_nothing[:3] == together, "what cannot be compared is not counted"
    assert with_nothing[3].outcome == "unknown" and with_nothing[3].comparisons == 1


def test_more_seeds_never_settle_what_is_settled() -> None:
    assert arms(5.0).as_dict()["more_seeds"] == 0
    few = arms(5.0, seeds=4)
    assert few.as_dict()["more_seeds"] == 2 and few.seeds_to_settle == 6


@pytest.mark.parametrize(
    ("outcomes", "word"),
    [
        ((5.0, 0.0), "better"),
        ((-5.0, 0.0), "worse"),
        ((5.0, -5.0), "mixed"),
        ((0.0, 0.1), "undecided"),
    ],
)
def test_overall(outcomes: tuple[float, ...], word: str) -> None:
    assert verdicts.overall(verdicts.corrected([arms(effect) for effect in outcomes])) == word


def words(*found: Contrast) -> str:
    return verdicts.verdict("dqn+sadq", "dqn", verdicts.corrected(found))


def test_a_verdict_in_words() -> None:
    said = words(arms(-5.0, measure=STEPS_TO_THRESHOLD), arms(0.0, measure=FINAL_RETURN))
    assert said.startswith("dqn+sadq is better than dqn at 10 seeds: steps to the threshold")
    assert "paired difference −4.92 [−5.49, −4.35]" in said and "after Holm's correction for 2" in said
    assert "No difference is detectable in final return" in said
    assert "more seeds would settle a difference in final return" in said


def test_no_difference_is_a_verdict_with_what_would_settle_it() -> None:
    said = words(arms(0.3), arms(0.3, measure=AREA_UNDER_CURVE))
    assert said.startswith("No difference between dqn+sadq and dqn is detectable at 10 seeds: final return")
    needed = verdicts.corrected([arms(0.3)] * 2)[0].seeds_to_settle
    assert needed is not None and f"About {needed - 10} more seeds would settle" in said


def test_few_seeds_say_so() -> None:
    said = words(*[dataclasses.replace(arms(5.0, seeds=5), measure=measure) for measure in MEASURES.values()])
    assert "5 seeds cannot settle it even if all of them agree: that takes at least 7" in said
    assert "] at 94% (p = " in said
    assert "though so few seeds say little about by how much" in words(arms(5.0, seeds=8))


def test_a_measure_that_fewer_seeds_have_says_so() -> None:
    base = {seed: float(seed) for seed in range(9)}
    ahead = {seed: value + 1 + SPREAD[seed] / 10 for seed, value in base.items()}
    said = words(contrast(AREA_UNDER_CURVE, base, ahead), contrast(FINAL_RETURN, base, ahead | {2: np.nan}))
    assert "is better than dqn at 9 seeds" in said and "; final return over 8 seeds 5" in said
    assert "area under the curve 5" in said


def test_what_cannot_be_compared_is_said() -> None:
    assert "no seed has a score in both" in words(contrast(FINAL_RETURN, {0: 1.0}, {1: 2.0}))
    assert "one seed shows no spread" in words(contrast(FINAL_RETURN, {0: 1.0}, {0: 2.0}))
    same = dict.fromkeys(range(4), 1.0)
    assert words(contrast(FINAL_RETURN, same, same)) == "dqn+sadq and dqn have the same scores on each of 4 seeds."


def test_the_threshold_lies_between_untrained_agents_and_the_best_arm() -> None:
    assert verdicts.common_threshold([0.0, 20.0], [[100.0] * 4, [110.0] * 4]) == pytest.approx(10 + 0.8 * 100)
    assert verdicts.common_threshold([-500.0], [[-80.0] * 3]) == pytest.approx(-500 + 0.8 * 420)
    assert verdicts.common_threshold([1.0], [[1.0] * 3, [0.5] * 3]) is None, "nothing was learned"
    lost = [1.0, np.nan, np.nan, 1.0]
    for final in ([lost, [2.0] * 4], [[2.0] * 4, lost], [[2.0] * 4, [np.nan]]):
        assert verdicts.common_threshold([np.nan, 0.0], final) == pytest.approx(1.6), "whichever arm lacks a score"
    assert verdicts.common_threshold([0.0], [[np.nan]]) is None is verdicts.common_threshold([np.nan], [[1.0]])


def test_curves_that_are_evaluated_at_other_steps_end_at_one_step() -> None:
    coarse, fine = np.array([0, 40, 80, 120]), np.array([0, 50, 100])
    rising = [np.array([steps / 100, 0 * steps]) for steps in (coarse, fine)]
    one, other = (verdicts.measured(*each, 0.9, 100) for each in zip((coarse, fine), rising, strict=True))
    np.testing.assert_allclose(one["steps_to_threshold"], [90, 100])
    np.testing.assert_allclose(other["steps_to_threshold"], [90, 100])
    np.testing.assert_allclose(one["area_under_curve"], other["area_under_curve"])
    np.testing.assert_allclose(one["final_return"], [0.4, 0], err_msg="of evaluations, not of what lies between them")
    whole = verdicts.measured(coarse, rising[0], None)
    np.testing.assert_allclose(whole["area_under_curve"], [0.6, 0])
    assert np.isnan(whole["steps_to_threshold"]).all()
    assert np.isnan(verdicts.measured(coarse[:0], np.zeros((2, 0)), 1.0, 0)["area_under_curve"]).all()


def test_one_tied_seed_is_tied_and_several_are() -> None:
    base = dict.fromkeys(range(2), 1.0)
    said = verdicts.verdict("b", "a", [contrast(FINAL_RETURN, base, base | {0: 2.0})])
    assert "2 seeds, of which 1 is tied, cannot settle it" in said


def test_tied_seeds_settle_nothing() -> None:
    base = dict.fromkeys(range(10), 1.0)
    tied = contrast(FINAL_RETURN, base, base | {0: 2.0, 1: 2.0})
    said = verdicts.verdict("b", "a", [tied])
    assert (
        "10 seeds, of which 8 are tied, cannot settle it even if the others agree: that takes at least 6 others."
        in said
    )
