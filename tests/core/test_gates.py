"""Gates: hand-computed weights, the limits of a perfect and of a useless model, and masks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sadq.core import (
    BatchReliability,
    Choice,
    Fixed,
    SampleReliability,
    double,
    greedy,
    value_gap,
    within_allowance,
)
from sadq.core.gates import GATES
from sadq.errors import SadqError

ALPHA = jnp.float32(0.2)
TARGET_Q = jnp.array([[0.0, 4.0, 1.0], [2.0, 2.0, 4.0]])  # gaps 4 and 2, mean 3; greedy actions 1 and 2
SCORES = jnp.array([[3.0, 1.0, 0.0], [0.5, 0.0, 0.0]])  # preferred action 0 twice, by 2 and by 0.5
MASK = jnp.array([[True, False, True], [True, True, False]])  # greedy actions 2 and 0; gaps 1 and 0
fixed, batch_reliability, sample_reliability = Fixed(), BatchReliability(), SampleReliability()


def chosen(target_q: jax.Array = TARGET_Q, mask: jax.Array | None = None) -> Choice:
    """What a greedy base chooses."""
    return jax.vmap(greedy)(target_q, target_q, mask)


def test_value_gap():
    assert value_gap(TARGET_Q[0]) == 4
    assert value_gap(jnp.array([1.0, 9.0, -9.0, 3.0]), jnp.array([True, False, False, True])) == 2
    assert value_gap(jnp.array([1.0, jnp.nan, -jnp.inf]), jnp.array([True, False, False])) == 0


def test_the_axis_knows_all_three_by_name_and_which_need_the_error():
    made = {name: GATES.choice(name) for name in ("fixed", "batch", "sample")}
    assert made == {"fixed": fixed, "batch": batch_reliability, "sample": sample_reliability}
    assert [gate.uses_error for gate in made.values()] == [False, True, True]


def test_fixed_is_the_same_for_every_sample():
    assert fixed(ALPHA, chosen(), TARGET_Q, SCORES, jnp.full(2, 1e9)).tolist() == [ALPHA, ALPHA]


def test_batch_reliability_by_hand():
    """A mean error of 1.5 against a mean gap of 3 leaves half of the model's weight: 1 - 0.8 / 2."""
    weights = batch_reliability(ALPHA, chosen(), TARGET_Q, SCORES, jnp.array([1.0, 2.0]))
    np.testing.assert_allclose(weights, [0.6, 0.6], rtol=1e-6)
    assert weights.shape == (2,), "one for each sample, although they are all the same"


def test_batch_reliability_counts_legal_actions_only():
    """The legal gaps are 1 and 0, mean 0.5: an error of 0.25 is half of it."""
    poisoned = jnp.where(MASK, TARGET_Q, jnp.nan)
    weights = batch_reliability(ALPHA, chosen(poisoned, MASK), poisoned, SCORES, jnp.array([0.5, 0.0]), MASK)
    np.testing.assert_allclose(weights, [0.6, 0.6], rtol=1e-6)


def test_batch_reliability_counts_errors_of_either_sign():
    weights = batch_reliability(ALPHA, chosen(), TARGET_Q, SCORES, jnp.array([-1.0, 2.0]))
    np.testing.assert_allclose(weights, [0.6, 0.6], rtol=1e-6)


@pytest.mark.parametrize(("slope", "expected"), [(1.0, 0.6), (1.5, 0.4), (2.0, 0.2), (9.0, 0.2)])
def test_a_steeper_batch_reliability_trusts_the_model_sooner_but_never_more_than_alpha_says(slope, expected):
    """Half of the gap is wrong: times the slope, at most all of the model's weight 0.8."""
    steep = BatchReliability(slope=slope)
    weights = steep(ALPHA, chosen(), TARGET_Q, SCORES, jnp.array([1.0, 2.0]))
    np.testing.assert_allclose(weights, [expected] * 2, rtol=1e-6)
    beyond = steep(ALPHA, chosen(), TARGET_Q, SCORES, jnp.array([4.0, 2.0]))
    assert beyond.tolist() == [1.0, 1.0], "an error as large as the gap is never trusted"


def test_a_centred_batch_reliability_leaves_out_what_all_samples_err_by():
    """5 and 8 are 6.5 with 1.5 to either side, which is half of the gap of 3."""
    weights = BatchReliability(centred=True)(ALPHA, chosen(), TARGET_Q, SCORES, jnp.array([5.0, 8.0]))
    np.testing.assert_allclose(weights, [0.6, 0.6], rtol=1e-6)


@pytest.mark.parametrize(("margin", "expected"), [(0.2, [ALPHA, ALPHA]), (0.4, [ALPHA, 1.0]), (0.6, [1.0, 1.0])])
def test_a_margin_closes_a_batch_reliability_where_the_model_prefers_its_action_by_less(margin, expected):
    """Values prefer the base by 4 and by 2, which hearing the model costs; scores prefer the model's by 2 and by 0.5."""
    weights = BatchReliability(slope=4.0, margin=margin)(ALPHA, chosen(), TARGET_Q, SCORES, jnp.zeros(2))
    np.testing.assert_allclose(weights, expected, rtol=1e-6)


def test_a_margin_lets_through_no_more_than_the_batch_is_trusted_with():
    """Half of the gap is wrong; the first sample alone exceeds its margin."""
    weights = BatchReliability(margin=0.4)(ALPHA, chosen(), TARGET_Q, SCORES, jnp.array([1.0, 2.0]))
    np.testing.assert_allclose(weights, [0.6, 1.0], rtol=1e-6)


def test_a_margin_looks_at_legal_actions_only():
    """Legally the base takes 2 and 0, valued 1 and 2; the scores prefer 0 to the first's by 3, and agree in the second."""
    poisoned_q, poisoned_scores = jnp.where(MASK, TARGET_Q, jnp.nan), jnp.where(MASK, SCORES, jnp.nan)
    told = (ALPHA, chosen(poisoned_q, MASK), poisoned_q, poisoned_scores, jnp.zeros(2), MASK)
    for margin, expected in ((2.9, ALPHA), (3.1, 1.0)):
        np.testing.assert_allclose(BatchReliability(margin=margin)(*told), [expected, 1.0], rtol=1e-6)


@pytest.mark.parametrize("gate", [sample_reliability, BatchReliability(slope=4.0, margin=0.4)])
def test_a_base_whose_own_action_was_not_rolled_out_is_left_alone(gate):
    """Of the first sample that is action 1, as where another network prefers what this one thinks little of."""
    few = jnp.array([[3.0, -jnp.inf, 0.0], [3.0, -jnp.inf, 0.0]])
    base = Choice(jnp.array([[1], [2]]), jnp.ones((2, 1)))
    np.testing.assert_allclose(gate(ALPHA, base, TARGET_Q, few, jnp.zeros(2)), [1.0, ALPHA])


def test_what_hearing_the_model_costs_a_base_of_several_counts_all_of_its_actions():
    """Half of 4 and half of 0 at the first sample, 2 at the second; the model's is worth 0 and 2: 2 and nothing."""
    base = Choice(jnp.array([[1, 0], [0, 1]]), jnp.full((2, 2), 0.5))
    for margin, expected in ((0.4, ALPHA), (0.6, 1.0)):  # of 2, against a preference of 3 - 2 at the first
        weights = BatchReliability(margin=margin)(ALPHA, base, TARGET_Q, SCORES, jnp.zeros(2))
        np.testing.assert_allclose(weights, [expected, ALPHA], rtol=1e-6)
    # Targets fall by (0.8 * 2 + 0) / 2 * gamma = 0.4, over all 0.8; a tenth of the mean gap 3 is 0.3.
    allowed = within_allowance(jnp.full(2, ALPHA), base, TARGET_Q, SCORES, jnp.full(2, 0.5), 0.1)
    np.testing.assert_allclose(allowed, [1 - 0.8 * 0.3 / 0.8] * 2, rtol=1e-6)


def test_an_action_without_weight_does_not_matter_to_a_base_of_several():
    """Both are worth 0.75 * 3 + 0.25 * 0, by which the model's falls behind by no more than 0.75."""
    base = Choice(jnp.array([[0, 2, 1]] * 2), jnp.array([[0.75, 0.25, 0.0]] * 2))
    few = jnp.array([[3.0, -jnp.inf, 0.0]] * 2)
    for error, expected in ((0.7, ALPHA), (0.8, 1.0)):
        np.testing.assert_allclose(sample_reliability(ALPHA, base, TARGET_Q, few, jnp.full(2, error)), [expected] * 2)


WRONG = [
    "batch.slope=0",
    "batch.slope=-1",
    "batch.margin=-1",
    "sample.share=-0.1",
]


@pytest.mark.parametrize("gate", WRONG)
def test_settings_of_gates_are_checked(gate):
    name, _, setting = gate.partition(".")
    field, _, value = setting.partition("=")
    with pytest.raises(SadqError, match=field):
        type(GATES.choice(name))(**{field: float(value)})


def test_sample_reliability_by_hand():
    """With a mean error of 1, a preference by 2 is heard and one by 0.5 is not."""
    weights = sample_reliability(ALPHA, chosen(), TARGET_Q, SCORES, jnp.array([0.0, 2.0]))
    assert weights.tolist() == [ALPHA, 1.0]


def test_sample_reliability_may_ask_for_a_share_of_the_error():
    """Preferences by 2 and 0.5 against half of an error of 1.5, of either sign."""
    weights = SampleReliability(share=0.5)(ALPHA, chosen(), TARGET_Q, SCORES, jnp.array([-1.5, 1.5]))
    assert weights.tolist() == [ALPHA, 1.0]
    weights = SampleReliability(share=0.25)(ALPHA, chosen(), TARGET_Q, SCORES, jnp.array([-1.5, 1.5]))
    assert weights.tolist() == [ALPHA, ALPHA]


def test_sample_reliability_wants_more_than_the_error():
    """The preferences are 2 and 0.5: an error of 2 is not below either, one of 0.5 is below the first alone."""
    for error, expected in ((2.0, [1.0, 1.0]), (0.5, [ALPHA, 1.0]), (0.25, [ALPHA, ALPHA])):
        assert sample_reliability(ALPHA, chosen(), TARGET_Q, SCORES, jnp.full(2, error)).tolist() == expected


def test_sample_reliability_compares_with_the_base_s_own_action():
    """Double's base action is the online network's, 0, over which the model prefers 1 by 5; over the target's by nothing."""
    online, target, scores = jnp.array([[10.0, 0.0]]), jnp.array([[0.0, 10.0]]), jnp.array([[0.0, 5.0]])
    for base, expected in ((double, ALPHA), (greedy, 1.0)):
        choice = jax.vmap(base)(online, target)
        assert sample_reliability(ALPHA, choice, target, scores, jnp.ones(1)).tolist() == [expected]


def test_sample_reliability_weighs_a_base_of_several_actions():
    """Scores 0 and 4 at three quarters and one: the base is worth 1, the preferred action 3 more."""
    choice = Choice(jnp.array([[0, 1]]), jnp.array([[0.75, 0.25]]))
    scores = jnp.array([[0.0, 4.0]])
    for error, expected in ((2.9, ALPHA), (3.1, 1.0)):
        assert sample_reliability(ALPHA, choice, scores, scores, jnp.array([error])).tolist() == [expected]


def test_sample_reliability_compares_legal_actions_only():
    """Legally the first sample's score prefers 0 over 2 by 3, the second's 0 over itself by nothing."""
    poisoned_q, poisoned_scores = jnp.where(MASK, TARGET_Q, jnp.inf), jnp.where(MASK, SCORES, jnp.nan)
    choice = chosen(poisoned_q, MASK)
    weights = sample_reliability(ALPHA, choice, poisoned_q, poisoned_scores, jnp.array([2.5, 2.5]), MASK)
    assert weights.tolist() == [ALPHA, 1.0]


@pytest.mark.parametrize("name", ["batch", "sample"])
@pytest.mark.parametrize("mask", [None, jnp.ones((2, 3), bool)])
def test_limits(name: str, mask):
    gate = GATES.choice(name)
    perfect = gate(ALPHA, chosen(), TARGET_Q, SCORES, jnp.zeros(2), mask)
    useless = gate(ALPHA, chosen(), TARGET_Q, SCORES, jnp.full(2, 1e6), mask)
    np.testing.assert_allclose(perfect, [0.2, 0.2], rtol=1e-6)
    np.testing.assert_array_equal(useless, [1.0, 1.0])


@pytest.mark.parametrize("gate", [batch_reliability, sample_reliability, BatchReliability(margin=0.5)])
@pytest.mark.parametrize("broken", [jnp.nan, jnp.inf])
def test_a_model_that_has_diverged_is_not_heard(gate, broken: float):
    """Neither if the error alone tells so, nor if the scores are no numbers either."""
    for scores in (SCORES, SCORES.at[1].set(jnp.nan)):
        weights = gate(ALPHA, chosen(), TARGET_Q, scores, jnp.array([0.0, broken]))
        np.testing.assert_array_equal(weights, [1.0, 1.0])


@pytest.mark.parametrize("gate", [*map(GATES.choice, GATES), BatchReliability(margin=0.5)])
def test_a_base_agent_stays_one_bit_for_bit(gate):
    weights = gate(jnp.float32(1), chosen(), TARGET_Q, SCORES, jnp.array([0.1, 0.3]))
    np.testing.assert_array_equal(weights, [1.0, 1.0])


def test_batch_reliability_without_any_gap_falls_back_to_the_base_unless_the_model_is_perfect():
    level, choice = jnp.ones((2, 3)), chosen(jnp.ones((2, 3)))
    np.testing.assert_array_equal(batch_reliability(ALPHA, choice, level, SCORES, jnp.array([0.1, 0.1])), [1.0, 1.0])
    np.testing.assert_allclose(batch_reliability(ALPHA, choice, level, SCORES, jnp.zeros(2)), [0.2, 0.2], rtol=1e-6)


def within(allowance: float, discount: float, alpha: float = 0.2, mask: jax.Array | None = None) -> np.ndarray:
    """What an allowance leaves of `alpha` where hearing the model costs 4 and 2, of a mean gap of 3."""
    weights, discounts = jnp.full(2, alpha), jnp.full(2, discount)
    return within_allowance(weights, chosen(TARGET_Q, mask), TARGET_Q, SCORES, discounts, allowance, mask)


def test_an_allowance_counts_what_the_lowering_adds_up_to():
    """0.8 of a mean lowering of 3 at a discount of 0.5 is 1.2 a target, and 2.4 in all; a gap of 3 allows for it."""
    np.testing.assert_allclose(within(1.0, 0.5), [0.2, 0.2], rtol=1e-6)
    # Half of the gap is 1.5 of those 2.4.
    np.testing.assert_allclose(within(0.5, 0.5), [0.5, 0.5], rtol=1e-6)
    # At a discount of 0.9 it is 21.6 in all, of which 3 are allowed.
    np.testing.assert_allclose(within(1.0, 0.9), [1 - 0.8 * 3 / 21.6] * 2, rtol=1e-5)


def test_an_allowance_looks_at_each_sample_s_discount_and_weight():
    """The second sample ends its episode: 0.9 * 0.8 * 4 / 2 = 1.44 a target, at a mean discount of 0.45."""
    alpha, discount = jnp.array([0.2, 0.6]), jnp.array([0.9, 0.0])
    weights = within_allowance(alpha, chosen(), TARGET_Q, SCORES, discount, 0.1)
    left = 0.1 * 3 / (1.44 / 0.55)
    np.testing.assert_allclose(weights, [1 - 0.8 * left, 1 - 0.4 * left], rtol=1e-5)


def test_an_allowance_counts_legal_actions_only():
    """Legally the base has 1 and 2 and the model's choice 0 and the same 2; the gaps are 1 and 0."""
    np.testing.assert_allclose(within(0.5, 0.5, mask=MASK), [1 - 0.8 * 0.25 / 0.4] * 2, rtol=1e-5)


def test_an_allowance_never_moves_a_weight_of_one_nor_what_costs_nothing():
    assert within(0.1, 0.99, alpha=1.0).tolist() == [1.0, 1.0]
    for discount in (0.99, 1.0):
        agreeing = within_allowance(jnp.full(2, 0.2), chosen(), TARGET_Q, TARGET_Q, jnp.full(2, discount), 0.1)
        np.testing.assert_allclose(agreeing, [0.2, 0.2], rtol=1e-6)


def test_without_a_discount_what_adds_up_is_more_than_any_allowance():
    np.testing.assert_allclose(within(100.0, 1.0), [1.0, 1.0], atol=1e-6)
