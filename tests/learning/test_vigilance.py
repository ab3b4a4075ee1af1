"""The model is trusted less while what the agent achieves falls, and more again when it does not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sadq.learning.vigilance import GROWING, LASTING, RECENT, SHRINKING, Standing, Tally, Vigilance
from sadq.types import Transition

SHARE = 0.001
watched = jax.jit(Vigilance.watched, static_argnums=0)


def collected(*rows: tuple[float, bool]) -> Transition:
    """Steps of one lane: rewards, and whether an episode ends there."""
    reward, ended = (np.array(column)[:, None] for column in zip(*rows, strict=True))
    nothing = np.zeros((len(rows), 1))
    return Transition(nothing, nothing, np.float32(reward), nothing, ended, np.zeros_like(ended))


def after(standing: Standing, returns: list[float], tolerance: float = 0.05) -> Standing:
    """With an episode of one step for each of these, a collect each."""
    for value in returns:
        standing = watched(Vigilance(tolerance), standing, collected((value, True)), jnp.float32(SHARE))
    return standing


def test_an_episode_counts_when_it_ends_with_all_that_it_brought():
    vigilance = Vigilance(0.1)
    begun = vigilance.watched(vigilance.init(1), collected((1.0, False), (2.0, False)), jnp.float32(SHARE))
    assert begun.recent.number == 0 and begun.running[0] == 3
    assert begun.best == -jnp.inf and begun.trust == 1
    ended = vigilance.watched(begun, collected((4.0, True), (5.0, False)), jnp.float32(SHARE))
    assert ended.recent.number == 1 and ended.recent.mean == 7 and ended.running[0] == 5
    assert ended.best == ended.worst == 7


def test_an_episode_that_is_cut_off_counts_too():
    cut = collected((1.0, False))._replace(truncated=np.array([[True]]))
    assert Vigilance(0.1).watched(Vigilance(0.1).init(1), cut, jnp.float32(SHARE)).recent.number == 1


def test_older_episodes_weigh_less_the_shorter_the_memory():
    standing = after(Vigilance(0.1).init(1), [0.0, 10.0])
    for tally, memory in ((standing.recent, RECENT), (standing.lasting, LASTING)):
        kept = np.exp(-SHARE / memory)
        np.testing.assert_allclose(tally.number, 1 + kept, rtol=1e-6)
        np.testing.assert_allclose(tally.mean, 10 / (1 + kept), rtol=1e-6)


def test_the_error_is_that_of_a_mean():
    tally = Tally.of_nothing().with_more(jnp.float32(1), jnp.array([[True], [True]]), jnp.array([[1.0], [5.0]]))
    np.testing.assert_allclose(tally.error, 2 / np.sqrt(2), rtol=1e-6)  # a deviation of 2, two episodes


def test_what_rises_or_stays_is_trusted():
    assert after(Vigilance(0.05).init(1), [*np.linspace(0, 100, 50), *[100.0] * 50]).trust == 1


def test_what_falls_is_trusted_less_and_then_more_again():
    risen = after(Vigilance(0.05).init(1), [*[0.0] * 20, *[100.0] * 200])
    assert risen.trust == 1
    fallen = after(risen, [50.0] * 30)
    assert fallen.trust < 0.1
    once = after(fallen, [50.0])
    np.testing.assert_allclose(once.trust, fallen.trust * np.exp(-SHARE / SHRINKING), rtol=1e-5)
    back = after(fallen, [100.0] * 60)
    again = after(back, [100.0])
    np.testing.assert_allclose(again.trust - back.trust, SHARE / GROWING, rtol=1e-3)
    assert back.trust > fallen.trust and after(back, [100.0] * 300).trust == 1


@pytest.mark.parametrize(("tolerance", "trusted"), [(0.3, True), (0.1, False)])
def test_how_far_is_a_share_of_what_was_learned(tolerance, trusted):
    """From 0 to 100, then down to 80 in the long run."""
    standing = after(Vigilance(tolerance).init(1), [*[0.0] * 20, *[100.0] * 200, *[80.0] * 60], tolerance)
    assert bool(standing.trust == 1) is trusted


def test_chance_is_no_fall():
    """Returns of 0 and 100 by turns: the mean of the recent ones swings, within its error."""
    assert after(Vigilance(1e-6).init(1), [0.0, 100.0, 100.0, 0.0] * 30, 1e-6).trust > 0.9


@pytest.mark.parametrize(
    ("alpha", "trust", "left"), [(0.2, 1.0, 0.2), (0.2, 0.0, 1.0), (0.2, 0.5, 0.6), (1.0, 0.3, 1.0)]
)
def test_trust_is_the_models_part_of_its_weight(alpha, trust, left):
    standing = Vigilance(0.05).init(1)._replace(trust=jnp.float32(trust))
    np.testing.assert_allclose(standing.alpha(jnp.float32(alpha)), left, rtol=1e-6)
