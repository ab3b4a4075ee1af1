"""Drawings of an episode: what they show, and the files that they make."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cluster_oracle import small
from PIL import Image

from sadq import keys
from sadq.envs.ocloud.drawing import draw, history_of
from sadq.errors import SadqError


@pytest.fixture(scope="module")
def episode():
    environment = small(max_steps=8)

    def step(state, number):
        reached, _, _ = environment.transition(state, number % 3, None)
        return reached, state

    _, states = jax.jit(lambda: jax.lax.scan(step, environment.initial(keys.member_key(0)), jnp.arange(8)))()
    return environment, states


def test_a_history_is_what_was_observed(episode):
    environment, states = episode
    history = history_of(environment, states)
    seen = np.asarray(jax.vmap(environment.observe)(states))
    np.testing.assert_allclose(history.cpu, seen[:, 3:6], rtol=1e-6)
    np.testing.assert_allclose(history.memory, seen[:, 6:9], rtol=1e-6)
    np.testing.assert_array_equal(history.waiting, seen[:, 9:12])
    listed = history_of(environment, [jax.tree.map(lambda leaf, i=i: leaf[i], states) for i in range(8)])
    np.testing.assert_array_equal(listed.power, history.power)
    assert history.now[0] == 0 and (np.diff(history.now) >= 0).all()


def test_a_picture_and_an_animation_are_made(episode, tmp_path):
    environment, states = episode
    with Image.open(draw(environment, states, tmp_path / "new" / "episode.png")) as picture:
        assert picture.format == "PNG" and len(picture.convert("RGB").getcolors(10**6)) > 50
    with Image.open(environment.draw(states, tmp_path / "episode.gif")) as animation:
        assert animation.format == "GIF" and animation.n_frames > 1


def test_what_cannot_be_drawn_is_told(episode, tmp_path):
    environment, states = episode
    with pytest.raises(SadqError, match="ends in .png or .gif"):
        draw(environment, states, tmp_path / "episode.mp4")
    with pytest.raises(SadqError, match="no state to draw"):
        draw(environment, [], tmp_path / "episode.png")
