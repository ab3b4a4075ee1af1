"""The headline: what the pictures show, in words, with the measure first that tells the arms apart."""

from collections.abc import Iterator, Sequence
from html import escape

from sadq.report.comparison import Comparison, Summary
from sadq.report.markup import unbroken
from sadq.report.names import in_words
from sadq.report.stats import interval, number
from sadq.report.verdicts import Contrast, pairs_in

BADGES = {
    "better": "better",
    "worse": "worse",
    "mixed": "better and worse",
    "undecided": "no difference detectable",
    "equal": "equal",
    "unknown": "cannot be compared",
    "unlike": "not alike",
}
CLEAR = 1.05  # times sooner or later: less would be written as 1.0 times
WITH_DETAILS = 8  # comparisons; of more, a headline would be a book


def headlines(comparisons: Sequence[Comparison], summaries: Sequence[Summary]) -> Iterator[str]:
    """A card for every comparison, and a sentence for every line that is in none."""
    for each in comparisons:
        yield card(each, detailed=len(comparisons) <= WITH_DETAILS)
    compared = {line for each in comparisons for line in (each.base, each.other)}
    for summary in (summary for summary in summaries if summary.line not in compared):
        line, seeds = summary.line, len(summary.line.indices)
        where, final = in_words(line.environment), summary.mean["final_return"]
        words = (
            f"On {where}, over {seeds} seed{'s' * (seeds > 1)} and {line.run.last_step:,} steps, {line.spoken} ends at "
            f"{interval(final)}."
            if final.count
            else f"On {where}, {line.spoken} has no final return: evaluations are missing."
        )
        yield f'<p class="plain">{unbroken(words)}</p>'


def card(each: Comparison, detailed: bool) -> str:
    """One comparison: its outcome in a word, the finding in a line, the measures, and the whole verdict."""
    outcome = each.outcome
    numbers = "".join(_number(one) for one in each.contrasts) if each.alike and each.seeds else ""
    said = " ".join([each.verdict()] * detailed + [_until(each)] * bool(numbers)).strip()
    body = f"<p>{unbroken(said)}</p>" if said else ""
    return (
        f'<article class="card {outcome}"><p class="badge">{escape(BADGES[outcome])}</p>'
        f"<h2>{unbroken(finding(each))}</h2>{f'<dl>{numbers}</dl>' if numbers else ''}{body}</article>"
    )


def finding(each: Comparison) -> str:
    """The first line: what is seen of the measure that tells the two apart, time to a threshold before area and end."""
    where, other, base = in_words(each.environment), each.other.spoken, each.base.spoken
    if each.outcome == "unlike":
        return f"{other} and {base} on {where} were trained with unlike settings"
    if each.outcome == "unknown":
        return f"{other} and {base} on {where} cannot be compared"
    if each.outcome == "equal":
        return f"{other} and {base} score the same on {where}, seed by seed"
    if each.outcome == "undecided":
        return f"No difference between {other} and {base} is detectable on {where} at {pairs_in(each.contrasts)} seeds"
    first, *rest = [one for one in each.contrasts if one.outcome in ("better", "worse")]
    against = [f", but {_told(each, one)}" for one in rest if one.outcome != first.outcome]
    return f"On {where}, {other} {_told(each, first)} than {base}{''.join(against[:1])}"


def _told(each: Comparison, one: Contrast) -> str:
    better = one.outcome == "better"
    if one.measure.name == "steps_to_threshold":
        arms = [(each.other, one.other.value), (each.base, one.base.value)]
        (early, fast), (late, slow) = arms if better else arms[::-1]
        # A seed that never gets there counts by the last step.
        least = each.reached(early) == len(early.indices) and each.reached(late) < len(late.indices)
        factor = slow / fast if fast > 0 else 0.0
        times = f"{'at least ' * least}{factor:.1f} times " if factor >= CLEAR else ""
        return f"reaches a return of {_when(each, one)}, {times}{'sooner' if better else 'later'}"
    if one.measure.name == "area_under_curve":
        return f"earns {'more' if better else 'less'} over the whole run"
    return f"ends {'higher' if better else 'lower'}"


def _when(each: Comparison, one: Contrast) -> str:
    """Which return after how many steps, and in how many seeds where it is not in all of them."""
    threshold, reached, seeds = number(each.threshold or 0.0), each.reached(each.other), len(each.other.indices)
    if reached == 0:
        return f"{threshold} in no seed within {each.until:,} steps"
    return f"{threshold}{f' in {reached} of {seeds} seeds,' * (reached < seeds)} after {one.other.value:,.0f} steps"


def _until(each: Comparison) -> str:
    """Where a card's numbers end, if one of the two goes on from there and has other ones in the table."""
    if each.until == max(each.base.run.last_step, each.other.run.last_step):
        return ""
    return f"All of this is over the first {each.until:,} steps, as far as both have come."


def _number(one: Contrast) -> str:
    """A measure of both arms, and their paired difference."""
    return (
        f'<div class="{one.outcome}"><dt>{escape(one.measure.title.capitalize())}</dt>'
        f"<dd><b>{escape(number(one.other.value))}</b> against {escape(number(one.base.value))}"
        f"<small>{unbroken(one.difference_in_words)}</small></dd></div>"
    )
