"""The environment: whole episodes against brute force, its options, and its beginnings."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cluster_oracle import Cluster, random_tasks, small

from sadq import keys
from sadq.envs import base
from sadq.envs.ocloud import OCloud, make, synthetic
from sadq.envs.ocloud.servers import Loads
from sadq.envs.ocloud.workload import Workload
from sadq.errors import SadqError

KEY = keys.member_key(5)


def rollout(environment, key=KEY):
    """The first state, then (action, state, reward, observation) of random steps to the end of an episode."""

    def step(timed, number):
        action = jax.random.randint(keys.at(key, number), (), 0, environment.action_count)
        timed, outcome = base.step(environment, timed, action, key)
        return timed, (action, timed.state, outcome)

    begun = base.reset(environment, key)
    _, records = jax.lax.scan(step, begun, jnp.arange(environment.max_steps))
    return begun.state, environment.observe(begun.state), records


@pytest.mark.parametrize("penalty,form", [("demand", "normalised"), ("time", "literal")])
def test_an_episode_is_as_by_brute_force(penalty, form):
    environment = small(queue_penalty=penalty, power_form=form)
    begun, first_seen, (actions, states, outcomes) = jax.jit(lambda: rollout(environment))()
    tasks = environment.workload.training
    first = int(begun.position) - environment.warmup_tasks
    # The warm-up's choices are the environment's own; they are part of its seeded stream.
    warmed = jax.random.randint(keys.purpose(KEY, "warm-up"), (environment.warmup_tasks,), 0, environment.servers)
    cluster, now = Cluster(3, environment.size), 0
    chosen = [*np.asarray(warmed), *np.asarray(actions)]
    latency, power_total = 0, 0.0
    for index, server in enumerate(chosen):
        decision = index - environment.warmup_tasks
        if decision == 0:
            np.testing.assert_allclose(first_seen, cluster.observation(tasks[first + index], penalty), rtol=1e-6)
        before = cluster.latency(now)
        cluster.add(int(server), now, *(int(part) for part in tasks[first + index, 1:]))
        now += int(tasks[first + index + 1, 0])
        cluster.advance(now)
        if decision < 0:
            continue
        use = np.array([cluster.used(one)[0] for one in range(3)]) / environment.size[0]
        risen = 58 * (2 * use - use**1.4)
        power = np.sum((87 + risen) / 145 if form == "normalised" else 87 + risen / 145)
        waited = cluster.latency(now) - before
        latency, power_total = latency + waited, power_total + power
        np.testing.assert_allclose(outcomes.reward[decision], -(0.1 * power + 0.005 * waited), rtol=1e-5)
        seen = cluster.observation(tasks[first + index + 1], penalty)
        np.testing.assert_allclose(outcomes.observation[decision], seen, rtol=1e-5)
        assert states.now[decision] == now
    assert latency > 100 and not outcomes.terminated.any()
    np.testing.assert_array_equal(np.flatnonzero(outcomes.truncated), [environment.max_steps - 1])

    last = jax.tree.map(lambda leaf: leaf[-1], states)
    measures = {name: float(value) for name, value in environment.measures(last).items()}
    waiting = sum(map(len, cluster.queues))
    cluster.advance(10**9)
    own = cluster.tasks[environment.warmup_tasks :]
    assert measures["mean_latency"] == pytest.approx(np.mean([task["start"] - task["arrival"] for task in own]))
    assert measures["mean_power"] == pytest.approx(power_total / 60, rel=1e-5)
    assert measures["mean_waited"] == pytest.approx(latency / 60)
    assert measures["final_waiting"] == waiting and measures["lost_tasks"] == 0


def test_observations_are_those_of_the_paper():
    environment = OCloud()
    assert (environment.observation_size, environment.action_count, environment.max_steps) == (43, 10, 200)
    assert (environment.warmup_tasks, environment.power_weight, environment.latency_weight) == (1000, 0.1, 0.005)
    state = jax.jit(environment.initial)(KEY)
    observation = np.asarray(environment.observe(state))
    assert observation.shape == (43,) and observation.dtype == np.float32
    assert (observation >= 0).all() and (observation[3:23] <= 1).all() and observation[3:13].mean() > 0.2
    _, cpu, memory, duration = environment.workload.training[int(state.position)]
    np.testing.assert_allclose(observation[:3], [cpu / 100, memory / 100, duration])


def test_power_is_least_idle_and_one_a_server_at_full_load():
    environment = OCloud()
    none, full = np.zeros(10, np.int32), np.full(10, 450, np.int32)

    def power(cpu, form):
        loads = Loads(cpu, none, none, none, none)
        return float(dataclasses.replace(environment, power_form=form).power(loads))

    assert power(none, "normalised") == pytest.approx(6.0) and power(full, "normalised") == pytest.approx(10.0)
    assert power(none, "literal") == pytest.approx(870.0) and power(full, "literal") == pytest.approx(874.0)


def test_a_batch_is_its_members():
    environment = small()
    batch_keys = keys.range_of(KEY, 0, 5)
    batch = jax.jit(jax.vmap(lambda key: rollout(environment, key)))(batch_keys)
    one = jax.jit(lambda key: rollout(environment, key))
    for index in range(5):
        alone = one(batch_keys[index])
        for left, right in zip(jax.tree.leaves(alone), jax.tree.leaves(batch), strict=True):
            exact = left.dtype != jnp.float32
            np.testing.assert_allclose(left, right[index], rtol=0 if exact else 1e-6)


def test_decisions_that_all_go_to_one_server_lose_nothing():
    environment = OCloud()

    @jax.jit
    def all_to_the_first():
        def step(state, _):
            state, reward, _ = environment.transition(state, jnp.int32(0), None)
            return state, reward

        return jax.lax.scan(step, environment.initial(KEY), None, length=200)

    state, rewards = all_to_the_first()
    assert state.lost == 0 and np.isfinite(rewards).all() and int(jnp.sum(state.servers.start[0] > state.now)) > 50


def test_a_lost_task_makes_every_reward_nan():
    environment = small()
    state = environment.initial(KEY)._replace(lost=jnp.int32(1))
    _, reward, _ = environment.transition(state, jnp.int32(0), None)
    assert np.isnan(reward)


def test_streams_for_training_and_evaluation_are_apart():
    environment = small()
    other = environment.for_evaluation()
    assert other.split == "evaluation" and other.for_evaluation() == other and other != environment
    beginnings = {}
    for one in (environment, other):
        states = jax.vmap(one.initial)(keys.range_of(KEY, 0, 40))
        seen = jax.vmap(one.observe)(states)[:, :3]
        stream = one.workload.stream(one.split)
        positions = np.asarray(states.position)
        np.testing.assert_allclose(seen[:, 2], stream[positions, 3])
        assert positions.min() >= 30 and positions.max() + 60 < len(stream) and len(set(positions)) > 20
        beginnings[one.split] = positions
    training, evaluation = synthetic().training, synthetic().evaluation
    assert not np.array_equal(training[: len(evaluation)], evaluation)


def test_the_first_and_the_last_episode_of_a_stream_are_drawn():
    tasks = random_tasks(np.random.default_rng(1), 93)  # three episodes of 30 + 60 + 1 tasks
    states = jax.vmap(small(tasks).initial)(keys.range_of(KEY, 0, 60))
    assert set(np.asarray(states.position).tolist()) == {30, 31, 32}


def test_precomputed_beginnings_are_simulated_ones():
    environment = small(warmup="precomputed", precomputed_states=4)
    simulated = dataclasses.replace(environment, warmup="simulated")
    own = keys.range_of(keys.purpose(keys.member_key(0), "beginnings"), 0, 4)
    expected = {
        np.asarray(seen).tobytes() for seen in jax.vmap(lambda key: simulated.observe(simulated.initial(key)))(own)
    }
    drawn = jax.jit(jax.vmap(environment.initial))(keys.range_of(KEY, 0, 40))
    assert {np.asarray(seen).tobytes() for seen in jax.vmap(environment.observe)(drawn)} == expected
    # What follows is the same as well: the slots that were left out held nothing.
    begun, step = jax.jit(simulated.initial)(own[0]), jax.jit(environment.transition)
    match = int(np.flatnonzero(np.asarray(drawn.position) == int(begun.position))[0])
    state = jax.tree.map(lambda leaf: leaf[match], drawn)
    assert jax.tree.map(jnp.shape, state) == jax.tree.map(jnp.shape, begun)
    for number in range(20):
        state, reward, _ = step(state, jnp.int32(number % 3), None)
        begun, expected_reward, _ = step(begun, jnp.int32(number % 3), None)
        assert reward == expected_reward


def test_environments_are_constants_of_a_compiled_program():
    assert OCloud() == OCloud() and hash(OCloud()) == hash(OCloud())
    assert OCloud() != OCloud(cores=40) and OCloud() != make(seed=1) and OCloud() == make() != make(job_share=1)


def test_provenance_is_json_that_tells_the_source():
    recorded = json.loads(json.dumps(OCloud().for_evaluation().provenance))
    assert recorded["synthetic"] is True and recorded["source"] == "synthetic" and recorded["split"] == "evaluation"
    assert len(recorded["sha256"]) == 64 and recorded["statistics"]["tasks"] == 65_536
    assert make(seed=1).provenance["sha256"] != make(seed=2).provenance["sha256"]
    environment = small()
    tasks = environment.workload.training
    assert environment.provenance["larger_than_a_server"] == np.sum((tasks[:, 1] > 400) | (tasks[:, 2] > 300)) > 0


@pytest.mark.parametrize(
    "settings,sentence",
    [
        ({"split": "test"}, "split = 'test' must be one of train, evaluation"),
        ({"power_form": "squared"}, "must be one of normalised, literal"),
        ({"queue_penalty": 3}, "must be one of demand, time"),
        ({"warmup": "none"}, "must be one of simulated, precomputed"),
        ({"servers": 2.5}, "servers = 2.5 must be a whole number"),
        ({"cores": "abc"}, "cores = 'abc' must be a number"),
        ({"job_share": "nan"}, "job_share = 'nan' must be a number"),
        ({"seed": -1}, "seed = -1 must be 0 or more"),
        ({"servers": 0}, "servers=0, expected at least 1"),
        ({"cores": 400.0}, "cores=400.0, expected 0.01 to 327.67"),
        ({"memory": 0.0}, "memory=0.0, expected 0.01"),
        ({"idle_power": 200.0}, "expected 0 to peak_power"),
        ({"warmup_tasks": 500_000}, "stream has 262144 tasks, expected the 500201"),
        ({"job_share": 0}, "job_share is 0.0, expected a share of the jobs above 0"),
        ({"job_share": 1.5}, "job_share is 1.5, expected"),
        (
            {"coers": 3},
            "no setting coers, expected cores, evaluation_fraction, .* job_share, .* seed, .* source, .* window: ",
        ),
    ],
)
def test_bad_settings_are_told(settings, sentence):
    with pytest.raises(SadqError, match=sentence):
        make(**settings)


def test_a_stream_shorter_than_an_episode_is_told():
    tasks = random_tasks(np.random.default_rng(1), 90)
    with pytest.raises(SadqError, match="evaluation stream has 5 tasks, expected the 91 of an episode"):
        OCloud(Workload(tasks, tasks[:5], {}), split="evaluation", warmup_tasks=30, max_steps=60)
