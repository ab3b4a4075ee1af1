"""Drawings of an episode: what they show, and the files that they make."""

import jax
import numpy as np
import pytest
from PIL import Image
from small_traffic import environment, episode

from sadq.envs.cityflow.drawing import draw, history_of, positions
from sadq.errors import SadqError


@pytest.fixture(scope="module")
def history():
    return history_of(environment(), episode()[0], every=1)


def test_a_history_fills_in_the_seconds_between_decisions(history):
    states, _ = episode()
    np.testing.assert_array_equal(history.time, np.arange(121))
    network = environment().network
    for decision in range(7):
        moment = 20 * decision
        counted = np.bincount(history.drivable[moment], minlength=network.lane_count + 1)[: network.lane_count]
        np.testing.assert_array_equal(counted, states.vehicles[decision])
        np.testing.assert_array_equal(history.finished[moment], states.traffic.finished[decision])
    # Greens 0 and 0, then action 1 = (0, 1): the second signal clears for five seconds.
    assert history.phase[[0, 1, 5, 6]].tolist() == [[0, 0], [0, 1], [0, 1], [0, 2]]


def test_travel_times_add_up_over_the_seconds(history):
    states, _ = episode()
    measured = environment().measures(jax.tree.map(lambda leaf: leaf[-1], states))["average_travel_time"]
    created = np.searchsorted(environment().departures.created, np.arange(121), side="right")
    # A vehicle is under way in every second from its creation to the one in which it arrives.
    under_way = sum(created[second] - history.finished[second + 1] for second in range(120))
    assert float(measured) == pytest.approx(under_way / created[119], rel=1e-5)


def test_vehicles_are_drawn_on_their_roads(history):
    place, speed, on_lane = positions(environment().network, history, 120)
    assert len(place) == len(speed) > 50 and 0 < on_lane.sum() <= len(place)
    assert (np.abs(place[:, 1]) <= 100.001).all() and (place[:, 0] >= -200.001).all() and (place[:, 0] <= 500.001).all()
    near_row = np.abs(place[:, 1]) <= 24  # six lanes of 4 m to either side
    near_column = np.minimum(np.abs(place[:, 0]), np.abs(place[:, 0] - 300)) <= 30
    assert (near_row | near_column).all()


def test_a_picture_and_an_animation_are_made(tmp_path):
    states = episode()[0]
    with Image.open(environment().draw(states, tmp_path / "new" / "episode.png")) as picture:
        assert picture.format == "PNG" and len(picture.convert("RGB").getcolors(10**6)) > 20
    listed = [jax.tree.map(lambda leaf, i=i: leaf[i], states) for i in range(7)]
    with Image.open(draw(environment(), listed, tmp_path / "episode.gif")) as animation:
        assert animation.format == "GIF" and animation.n_frames == 25


def test_what_cannot_be_drawn_is_told(tmp_path):
    with pytest.raises(SadqError, match="ends in .png or .gif"):
        draw(environment(), episode()[0], tmp_path / "episode.mp4")
    with pytest.raises(SadqError, match="no state to draw"):
        draw(environment(), [], tmp_path / "episode.png")
