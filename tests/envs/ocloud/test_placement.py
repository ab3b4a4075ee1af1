"""Placement policies on hand-made observations, how episodes are played, and the support of their returns."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cluster_oracle import small

from sadq import keys
from sadq.envs.fixed_policies import play, uniform, value_support
from sadq.envs.native import BitFlip
from sadq.envs.ocloud import OCloud
from sadq.errors import SadqError


def chosen(policy, task, cpu, memory, waiting, penalty, step=0):
    environment = OCloud(servers=3, cores=48.0, memory=50.0)
    observation = jnp.float32([*task, *cpu, *memory, *waiting, *penalty])
    return int(environment.policies()[policy](None, observation, jnp.int32(step), keys.member_key(0)))


TASK = (1.0, 0.3, 10)
FREE = {"waiting": (0, 0, 0), "penalty": (0, 0, 0), "memory": (0.1, 0.1, 0.1)}


def test_round_robin_takes_turns():
    assert [chosen("round_robin", TASK, (0, 0, 0), **FREE, step=step) for step in range(4)] == [0, 1, 2, 0]


def test_shortest_queue_counts_waiting_tasks_then_cores():
    assert chosen("shortest_queue", TASK, (1, 1, 0.2), (0, 0, 0), (2, 1, 3), (9, 99, 1)) == 1
    assert chosen("shortest_queue", TASK, (0.9, 0.3, 0.3), **FREE) == 1


def test_best_fit_packs_where_the_task_starts_at_once():
    assert chosen("best_fit", TASK, (0.5, 0.9, 0.99), **FREE) == 1  # 0.99 leaves less than a core of 48
    assert chosen("best_fit", TASK, (0.5, 47 / 48, 0.2), **FREE) == 1  # a fit to the last core
    assert chosen("best_fit", TASK, (0.5, 0.9, 0.2), (0, 0, 0), (0, 1, 0), (0, 5, 0)) == 0  # not behind another
    assert chosen("best_fit", TASK, (0.5, 0.5, 0.2), (0.1, 0.999, 0.9), (0, 0, 0), (0, 0, 0)) == 2
    assert chosen("best_fit", TASK, (1, 1, 1), (0, 0, 0), (1, 1, 1), (30, 20, 20)) == 1


def test_least_power_takes_the_server_whose_power_rises_least():
    assert chosen("least_power", TASK, (0.5, 0.9, 0.99), **FREE) == 1
    assert chosen("least_power", TASK, (0.4, 0.4, 0.1), **FREE) == 0
    assert chosen("least_power", TASK, (1, 1, 1), (0, 0, 0), (1, 1, 1), (30, 20, 10)) == 2


def test_play_gives_returns_lengths_and_measures():
    environment = small()
    policies = environment.policies()
    assert set(policies) == {"random", "round_robin", "shortest_queue", "best_fit", "least_power"}
    played = {name: play(environment, policies[name], episodes=12, seed=3) for name in ("random", "shortest_queue")}
    for result in played.values():
        assert result["returns"].shape == (12,) and (result["lengths"] == 60).all()
        power, waited = result["measures"]["mean_power"], result["measures"]["mean_waited"]
        np.testing.assert_allclose(result["returns"], -60 * (0.1 * power + 0.005 * waited), rtol=1e-4)
    other = play(environment, policies["random"], episodes=12, seed=4)
    assert not np.isin(other["returns"], played["random"]["returns"]).any()
    latency = {name: result["measures"]["mean_latency"].mean() for name, result in played.items()}
    assert latency["shortest_queue"] < latency["random"]


def test_play_stops_counting_where_an_episode_ends():
    environment = BitFlip(bits=3)

    def first_difference(state, observation, step, key):
        return jnp.argmax(observation[:3] != observation[3:])

    played = play(environment, first_difference, episodes=50)
    assert (played["returns"] == 1).all() and set(played["lengths"]) == {1, 2, 3} and played["measures"] == {}
    random, again = (play(environment, uniform(environment), episodes=50)["returns"] for _ in range(2))
    assert random.mean() < 1
    np.testing.assert_array_equal(random, again)


def test_the_support_holds_the_discounted_returns():
    environment = BitFlip(bits=3)

    def first_difference(state, observation, step, key):
        return jnp.argmax(observation[:3] != observation[3:])

    # The policy's return is 1, discounted by the bits that differ after the first: 1, 0.5 or 0.25.
    policies = {"sure": first_difference, "first bit": lambda state, observation, step, key: 0}
    support = value_support(environment, policies, 0.5, episodes=200)
    assert support["policies"]["sure"] == [0.25, 1.0] and support["policies"]["first bit"] == [0.0, 1.0]
    assert (support["v_min"], support["v_max"], support["discount"]) == (0.0, 1.0, 0.5)


def test_bad_requests_are_told():
    environment = small()
    with pytest.raises(SadqError, match="0 policies"):
        value_support(environment, {}, 0.9)
    with pytest.raises(SadqError, match="discount 1.5"):
        value_support(environment, environment.policies(), 1.5)
    with pytest.raises(SadqError, match="0 episodes"):
        play(environment, uniform(environment), 0)


def test_a_policy_is_compiled_with_the_environment():
    environment = small()
    state = environment.initial(keys.member_key(0))
    for policy in environment.policies().values():
        action = jax.jit(policy)(state, environment.observe(state), jnp.int32(1), keys.member_key(1))
        assert action.shape == () and 0 <= int(action) < 3
