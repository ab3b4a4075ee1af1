"""Every intersection an actor: what each sees, gets and may do, on like and unlike signals, and that a fleet plays them."""

import functools
import json

import jax
import jax.numpy as jnp
import nets
import numpy as np
import pytest

from sadq import keys
from sadq.envs import registry
from sadq.envs.cityflow.grid import Grid
from sadq.envs.cityflow.intersections import CityFlowGrid, make
from sadq.envs.cityflow.signal_rules import RULES
from sadq.envs.shapes import check_shapes
from sadq.errors import SadqError
from sadq.experiment.build import environment_of
from sadq.experiment.presets import preset

KEY = keys.member_key(1)


@functools.cache
def small(neighbours: bool = False) -> CityFlowGrid:
    """Three signals in a row, four decisions of 15 s, with traffic enough to see."""
    return make(rows=1, columns=3, seconds=60, demand=1.0, capacity=400, neighbours=neighbours)


@functools.cache
def transition():
    return jax.jit(lambda state, action: small().transition(state, action, KEY))


@functools.cache
def played():
    """The states of an episode, [5] on every leaf, and its rewards [4, 3]."""
    state, states, rewards = small().initial(KEY), [], []
    for actions in ([1, 0, 2], [0, 0, 0], [3, 1, 0], [2, 2, 2]):
        states.append(state)
        state, reward, terminated = transition()(state, jnp.int32(actions))
        assert not terminated
        rewards.append(np.asarray(reward))
    return [*states, state], np.stack(rewards)


def test_the_default_is_the_grid_of_sixteen():
    made = make()
    assert (made.actors, made.action_count, made.observation_size) == (16, 4, 4 + 2 * 12)
    assert made.max_steps == 240 and made.steps == (5, 15) and not made.has_masks and made.fixed_length
    assert make(neighbours=True).observation_size == 28 * 5
    assert registry.make("CityFlowGrid", settings={"rows": 2, "columns": 5}).actors == 10


def test_an_actor_sees_its_green_and_its_lanes():
    states, _ = played()
    control, state = small().control, states[3]
    seen = small().observe(state)
    assert seen.shape == (3, 28) and seen.dtype == jnp.float32
    np.testing.assert_array_equal(state.green, [3, 1, 0])
    np.testing.assert_array_equal(seen[:, :4], np.eye(4)[[3, 1, 0]])
    for signal in range(3):
        lanes = control.incoming[signal]
        np.testing.assert_array_equal(seen[signal, 4:16], np.asarray(state.vehicles)[lanes])
        np.testing.assert_array_equal(seen[signal, 16:], np.asarray(state.waiting)[lanes])
    assert np.asarray(seen[:, 4:16]).sum() > 20


def test_neighbours_are_seen_by_the_order_of_roads():
    states, _ = played()
    own, seen = small().observe(states[3]), small(True).observe(states[3])
    assert small(True).views.neighbours.tolist() == [[1, 3], [0, 2], [1, 3]]  # 3: there is none
    np.testing.assert_array_equal(seen[:, :28], own)
    np.testing.assert_array_equal(seen[1, 28:], np.concatenate([own[0], own[2]]))
    np.testing.assert_array_equal(seen[0, 28:], np.concatenate([own[1], np.zeros(28)]))


def test_rewards_are_an_actor_s_own():
    states, rewards = played()
    control = small().control
    for number in range(4):
        vehicles, waiting = np.asarray(states[number + 1].vehicles), np.asarray(states[number + 1].waiting)
        for signal in range(3):
            coming, gone = vehicles[control.incoming[signal]].sum(), vehicles[control.outgoing[signal]].sum()
            assert rewards[number, signal] == pytest.approx(-abs(coming - gone) / 12)
            queue = make(rows=1, columns=3, seconds=60, demand=1.0, capacity=400, reward="queue")
            expected = -waiting[control.incoming[signal]].sum() / 12
            assert queue.rewards(states[number + 1])[signal] == pytest.approx(expected)
    assert len(np.unique(rewards[-1])) == 3


def test_who_is_under_way_counts_for_every_actor():
    states, _ = played()
    timed = make(rows=1, columns=3, seconds=60, demand=1.0, capacity=400, reward="under_way")
    count = int(timed.under_way(states[3]))
    assert count > int(np.asarray(states[3].vehicles).sum())  # some wait before the net
    np.testing.assert_allclose(timed.rewards(states[3]), np.full(3, -count / 36), rtol=1e-6)


def test_the_paper_s_grid_is_that_of_the_joint_environment():
    light, joint = (environment_of(preset(name)) for name in ("cityflow-light-grid", "cityflow-light"))
    assert light.scenario == joint.scenario and light.departures is joint.departures
    assert (light.max_steps, light.steps) == (joint.max_steps, joint.steps) == (29, (5, 35))
    assert (light.actors, light.action_count, light.observation_size) == (4, 4, 3 * 44)


def test_a_fault_is_every_actor_s():
    states, _ = played()
    state = states[0]._replace(traffic=states[0].traffic._replace(fault=jnp.int32(1)))
    _, reward, _ = transition()(state, jnp.zeros(3, jnp.int32))
    assert reward.shape == (3,) and np.isnan(reward).all()


@pytest.mark.parametrize("neighbours", [False, True])
def test_an_only_signal_is_an_environment_of_one_actor(neighbours, tmp_path):
    nets.write_random(tmp_path, 11, 1, 1)
    files = {name: tmp_path / f"{name}.json" for name in ("roadnet", "flow")}
    for settings in ({"rows": 1, "columns": 1}, files):
        made = make(**settings, seconds=60, capacity=100, neighbours=neighbours)
        check_shapes(made)
        state = made.initial(KEY)
        for policy in made.policies().values():
            assert policy(state, made.observe(state), jnp.int32(0), KEY).shape == ()


def test_rules_choose_for_each_signal():
    states, _ = played()
    control, state = small().control, states[3]
    scores = RULES["max_pressure"](control, 0, state.vehicles, state.waiting)
    chosen = small().policies()["max_pressure"](state, small().observe(state), jnp.int32(0), KEY)
    np.testing.assert_array_equal(chosen, np.asarray(scores).argmax(1))
    random = small().policies()["random"](state, small().observe(state), jnp.int32(0), KEY)
    assert random.shape == (3,)


@pytest.fixture(scope="module")
def unlike(tmp_path_factory):
    """A random net of the user's own, whose signals have unlike lanes and, one of them, fewer greens."""
    folder = tmp_path_factory.mktemp("net")
    nets.write_random(folder, 11, 2, 2)
    net = json.loads((folder / "roadnet.json").read_text())
    signal = next(one for one in net["intersections"] if not one["virtual"])
    signal["trafficLight"]["lightphases"] = signal["trafficLight"]["lightphases"][:1]
    (folder / "roadnet.json").write_text(json.dumps(net))
    return make(roadnet=folder / "roadnet.json", flow=folder / "flow.json", seconds=60, green_seconds=10)


def test_unlike_signals_are_padded_and_masked(unlike):
    greens = unlike.control.greens
    assert greens.min() == 1 and greens.max() >= 3 and unlike.has_masks
    state = unlike.initial(KEY)
    seen = unlike.observe(state)
    assert seen.shape == (4, 2 * greens.max() + 2 * unlike.views.incoming.shape[1])
    legal = np.stack([unlike.legal(row) for row in seen])
    np.testing.assert_array_equal(legal, np.arange(greens.max()) < greens[:, None])
    for policy in ("random", "max_pressure"):
        chosen = np.asarray(unlike.policies()[policy](state, seen, jnp.int32(0), KEY))
        assert (chosen < greens).all()
    widths = {len(lanes) for lanes in unlike.control.incoming}
    assert len(widths) > 1 and unlike.views.incoming.shape[1] == max(widths)
    recorded = json.loads(json.dumps(unlike.provenance))
    assert set(recorded["sha256"]) == {"roadnet", "flow"} and recorded["source"].endswith("roadnet.json")


def test_files_of_every_kind_make_the_same_net(tmp_path):
    config = Grid(rows=1).write(tmp_path)
    by_config = make(config=config)
    by_files = make(roadnet=tmp_path / "roadnet.json", flow=tmp_path / "flow.json")
    assert by_config.network.length.tolist() == by_files.network.length.tolist()
    assert by_files == make(roadnet=tmp_path / "roadnet.json", flow=tmp_path / "flow.json")


@pytest.mark.parametrize(
    "settings,sentence",
    [
        ({"reward": "waiting"}, "reward = 'waiting' must be one of pressure, queue, under_way"),
        ({"neighbours": "maybe"}, "neighbours = 'maybe' must be True or False"),
        ({"roadnet": "net.json"}, "a roadnet and a flow together"),
        ({"config": "a.json", "roadnet": "b.json", "flow": "c.json"}, "a config, or a roadnet and a flow together"),
        ({"roadnet": "nowhere.json", "flow": "c.json"}, "nowhere.json: cannot be read"),
        ({"config": 3}, "config is 3, expected the path of a file"),
        ({"roadnet": "net.json", "flow": 4}, "flow is 4, expected the path"),
        ({"action": "joint"}, "no setting action"),
        ({"rows": 0}, "rows=0"),
        ({"grid": "large"}, "grid='large', expected wide or paper"),
        ({"grid": ["paper"]}, "expected wide or paper"),
        ({"grid": "paper", "roadnet": "net.json", "flow": "flow.json"}, "files and no grid: choose one"),
    ],
)
def test_bad_settings_are_told(settings, sentence):
    with pytest.raises(SadqError, match=sentence):
        make(**settings)
