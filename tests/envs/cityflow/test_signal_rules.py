"""Signal policies: their choices by hand, and how they do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_traffic import KEY, environment, played

from sadq.envs.cityflow.signal_rules import RULES, constant, cyclic, longest_queue, max_pressure


def lanes(**values):
    column = np.zeros(environment().network.lane_count)
    for name, value in values.items():
        column[environment().network.lane_names.index(name)] = value
    return column


def chosen(rule, decision=0, vehicles=None, waiting=None):
    control, nothing = environment().control, lanes()
    scores = rule(control, decision, nothing if vehicles is None else vehicles, nothing if waiting is None else waiting)
    return control.decode(control.best(scores)).tolist()


def test_constant_and_cyclic_do_not_look():
    assert [chosen(constant, decision) for decision in (0, 3)] == [[0, 0]] * 2
    assert [chosen(cyclic, decision)[0] for decision in range(6)] == [0, 1, 2, 3, 0, 1]


def test_longest_queue_serves_most_waiting_vehicles():
    # Lane 0 of a row turns left, and all of a column's but the outermost go straight or left.
    waiting = lanes(road_0_1_0_0=3, road_0_1_0_2=2, road_2_0_1_1=4, road_3_1_2_1=2, road_1_0_1_3=50)
    assert chosen(longest_queue, waiting=waiting, vehicles=lanes(road_0_1_0_2=99)) == [1, 2]


def test_max_pressure_takes_off_what_is_full_ahead():
    vehicles = lanes(road_0_1_0_2=6, road_0_1_0_0=4)
    assert chosen(max_pressure, vehicles=vehicles) == [0, 0]
    blocked = vehicles + lanes(**{f"road_1_1_0_{lane}": 5 for lane in range(6)})
    assert chosen(max_pressure, vehicles=blocked)[0] == 1


def test_policies_are_compiled_with_the_environment():
    state = environment().initial(KEY)
    policies = environment().policies()
    assert set(policies) == {"random", *RULES}
    for name, policy in policies.items():
        act = jax.jit(policy)
        actions = [int(act(state, environment().observe(state), jnp.int32(step), KEY)) for step in (1, 2)]
        assert all(0 <= action < 16 for action in actions)
        assert actions == {"cyclic": [5, 10]}.get(name, actions)


def test_looking_at_the_traffic_helps():
    policies = environment().policies()

    def measured(name):
        states, rewards = played(lambda state, step: policies[name](state, None, jnp.int32(step), KEY))
        measures = environment().measures(jax.tree.map(lambda leaf: leaf[-1], states))
        return {name: float(value) for name, value in measures.items()} | {"return": sum(rewards)}

    fixed, looking = measured("constant"), measured("max_pressure")
    assert looking["average_travel_time"] < fixed["average_travel_time"]
    assert looking["throughput"] > fixed["throughput"]
    assert fixed["return"] == pytest.approx(-fixed["final_queue"])
