"""Environments outside JAX stepped in any order and anywhere: all at once or half by half, here or in workers, the same."""

import dataclasses
import threading
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sadq.envs.group import HostStep, Part
from sadq.envs.host import HostEnvironments, NativeAsHost
from sadq.experiment.build import hyper_of, members_of, resolve
from sadq.exploration.situation import Rule, best_actions
from sadq.fleet import turns as turns_module
from sadq.fleet.answers import HOST, to_host
from sadq.fleet.devices import Placement
from sadq.fleet.gathered import Gathered
from sadq.fleet.host_loop import HostLoop
from sadq.fleet.members import Fleet
from sadq.fleet.turns import TRIALS, Turns
from shared_programs import shared
from small_fleets import host_loop, parts, scan_loop
from tiny import CHUNK, config, difference, member


class InHalves:
    """A native environment for each half: of its own one it takes the actions, for the other one's lanes any."""

    halves, exact_resume = True, True

    def __init__(self, *arguments, workers):
        self.own = {part: NativeAsHost(*arguments) for part in (Part.FIRST, Part.SECOND)}
        self.shape, self.workers = self.own[Part.FIRST].shape, workers
        self.order = []  # what was asked for, and of which half

    def reset(self, start=0):
        return [half.reset(start) for half in self.own.values()][0]

    def send(self, actions, part):
        self.order.append(("send", part))
        every = np.zeros(self.shape, np.int32)
        every[:, part.lanes(self.shape[1])] = actions
        self.own[part].send(every)

    def receive(self, part):
        self.order.append(("receive", part))
        lanes = part.lanes(self.shape[1])
        return HostStep(*(None if field is None else field[:, lanes] for field in self.own[part].receive()))


def halved_loop(made, workers):
    """As `small_fleets.host_loop`, in turns from the first collect on."""
    native, seeds = resolve(made.environment), [own["seed"] for own in members_of(made)]
    evaluation = NativeAsHost(native, seeds, made.evaluation_episodes, purpose="evaluate")
    training = InHalves(native, seeds, made.environments, workers=workers)
    with shared("halved", made):
        loop = HostLoop(Fleet(**parts(made, native)), hyper_of(made), CHUNK, training, evaluation)
    assert loop.turns.taken is None
    loop.turns.taken = True
    return loop


@pytest.mark.exact
@pytest.mark.parametrize(
    ("agent", "environment", "workers"),
    [
        pytest.param("bdqn", "BitFlip-4", 0, marks=pytest.mark.thorough),
        ("teg", "CartPole-v1", 1),
        pytest.param("rainbow", "Acrobot-v1", 0, marks=pytest.mark.thorough),
        ("dueling+sadq", "CartPole-v1", 1),
    ],
)
def test_a_loop_on_the_host_is_the_compiled_one_bit_for_bit_also_in_halves(agent, environment, workers):
    """With memories by lane, BDQN's draws and TEG's repetitions, with priorities, and with noise that all lanes share."""
    made = config(agent, environment, seeds=(2, 4), environments=3, collect=24)

    def lived(loop):
        state = loop.start()
        for index in range(2):
            state, metrics = loop.advance(state, index * CHUNK)
        return state, metrics

    scanned, expected = lived(scan_loop(made))
    assert scanned.environment is not None
    assert difference(member(scanned.replay, 0), member(scanned.replay, 1)) > 0
    whole = [] if agent == "dueling+sadq" else [host_loop(made)]  # of this agent `test_loops.py` sees it
    for loop in (*whole, halved_loop(made, workers)):
        state, metrics = lived(loop)
        assert difference(scanned._replace(environment=None), state) == 0
        assert set(metrics) == set(expected)
        for name, values in expected.items():
            np.testing.assert_allclose(values, metrics[name], rtol=1e-5, atol=1e-6)


def test_one_half_is_stepped_while_the_other_is_acted_for():
    made = config("dqn", "BitFlip-4", environments=2, collect=6)
    orders = []
    for workers in (0, 1):
        loop = halved_loop(made, workers)
        loop.advance(loop.start(), 0)
        orders.append([f"{what} {part.name}" for what, part in loop.training.order[:12]])
    first, second = (
        [f"{what} FIRST" for what in ("send", "receive")],
        [f"{what} SECOND" for what in ("send", "receive")],
    )
    # In workers: both are under way until one is asked for. Here: it is stepped when asked for, so that is done early.
    assert orders[1][:6] == [first[0], second[0], first[1], first[0], second[1], second[0]]
    assert orders[0][:6] == [first[0], first[1], second[0], second[1], first[0], first[1]]


@pytest.fixture(scope="module")
def gymnasium_state():
    """What a fleet over Gymnasium's CartPole comes to, with its metrics and an evaluation, by workers and turns."""
    made = config("teg", "gymnasium:CartPole-v1", seeds=(2, 4), environments=4, collect=32)
    spec, seeds = resolve(made.environment), [2, 4]

    def come_to(workers, turns):
        training = HostEnvironments(spec, seeds, made.environments, workers, "collect")
        evaluation = HostEnvironments(spec, seeds, 3, workers, "evaluate")
        with shared("gymnasium", made):
            loop = HostLoop(Fleet(**parts(made, spec)), hyper_of(made), 5, training, evaluation)
        loop.turns.taken = turns
        state, metrics = loop.advance(loop.start(), 0)
        state, more = loop.advance(state, 5)
        found = jax.tree.map(np.asarray, (state, metrics, more, loop.evaluate(state, 2)._asdict(), loop.outside()))
        loop.close()
        return found

    return come_to


def test_results_depend_neither_on_workers_nor_on_turns(gymnasium_state):
    wanted = gymnasium_state(0, False)
    assert wanted[1]["episodes"].sum() > 4
    for workers, turns in [(0, True), (1, False), (4, True), (2, None)]:
        assert difference(wanted, gymnasium_state(workers, turns)) == 0, (workers, turns)


@dataclass(frozen=True)
class Counting(Rule):
    """Takes the best action, and remembers the number of steps rather than anything of its lanes."""

    def init(self, lanes, networks):
        return jnp.int32(0)

    def act(self, now, memory):
        return best_actions(now.expected, now.mask), memory + 1


def test_a_memory_that_is_not_the_lanes_own_rules_turns_out():
    made = config("dqn", "BitFlip-4")
    native = resolve(made.environment)
    fleet = dataclasses.replace(Fleet(**parts(made, native)), exploration=Counting())
    seeds = [own["seed"] for own in members_of(made)]
    evaluation = NativeAsHost(native, seeds, 2, purpose="evaluate")
    environments = InHalves(native, seeds, made.environments, workers=0)
    assert HostLoop(fleet, hyper_of(made), 1, environments, evaluation).turns.taken is False
    assert host_loop(made).turns.taken is False, "environments without halves"
    loop = HostLoop(fleet, hyper_of(made), 2, NativeAsHost(native, seeds, made.environments), evaluation)
    state, _ = loop.advance(loop.start(), 0)
    np.testing.assert_array_equal(state.behaviour, 2 * made.collect // made.environments)


def test_an_evaluation_beside_training_changes_neither():
    made = config("dueling", "gymnasium:CartPole-v1", seeds=(2, 4))
    spec, seeds = resolve(made.environment), [2, 4]

    def loop_of():
        pair = (HostEnvironments(spec, seeds, count, 0, name) for count, name in ((8, "collect"), (2, "evaluate")))
        with shared("beside", made):
            return HostLoop(Fleet(**parts(made, spec)), hyper_of(made), CHUNK, *pair)

    alone, beside, found = loop_of(), loop_of(), []
    first, judged = alone.start(), alone.start()
    wanted = alone.evaluate(judged, 3)
    wanted_state, _ = alone.advance(first, 0)
    state, kept = beside.start(), beside.start()
    thread = threading.Thread(target=lambda: found.append(beside.evaluate(kept, 3)))
    thread.start()
    state, _ = beside.advance(state, 0)
    thread.join()
    assert difference(wanted_state, state) == 0
    assert difference(wanted._asdict(), found[0]._asdict()) == 0


@pytest.mark.parametrize(("seconds", "faster"), [(1.2, False), (0.97, False), (0.8, True)])
def test_turns_are_taken_where_trying_both_shows_that_they_are_clearly_faster(monkeypatch, seconds, faster):
    now = [0.0]
    monkeypatch.setattr(turns_module.time, "perf_counter", lambda: now[0])
    turns, ways = Turns(possible=True), []
    while turns.taken is None:
        way = turns.begin()
        ways.append(way)
        compiling, disturbed = len(ways) <= 2, len(ways) % 5 == 4
        now[0] += 9.0 if compiling or disturbed else seconds if way else 1.0
        turns.end(way)
    assert turns.taken is faster and turns.begin() is faster
    assert ways[:4] == [False, True, False, True] and len(ways) == 2 * (TRIALS + 1)


def test_turns_that_cannot_be_taken_are_not_tried():
    turns = Turns(possible=False)
    assert turns.begin() is False
    turns.end(False)
    assert turns.taken is False


def test_a_chunk_s_plan_is_its_collects_plans():
    for schedule in ("exponential", "linear"):
        made = config("dqn", "BitFlip-4", seeds=(2, 4))
        made = dataclasses.replace(made, epsilon=dataclasses.replace(made.epsilon, schedule=schedule))
        loop = host_loop(made, chunk=7)
        one = jax.jit(loop.placement.over_members(lambda _, own, index: loop.fleet.plan(own, index)))
        plan = loop._plan(loop.hyper, loop.hyper, np.int32(14))
        for number in range(7):
            wanted = one(loop.hyper, loop.hyper, np.int32(14 + number))
            for mine, theirs in zip(jax.tree.leaves(plan), jax.tree.leaves(wanted), strict=True):
                np.testing.assert_array_equal(_numbers(mine)[:, number], _numbers(theirs))


def _numbers(leaf):
    return np.asarray(jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf)


def test_a_collect_is_put_together_from_any_lanes_in_any_order():
    generator, (members, lanes, steps) = np.random.default_rng(0), (2, 5, 4)

    def numbers(*shape):
        return generator.normal(size=(members, lanes, *shape)).astype(np.float32)

    def flags():
        return generator.random((members, lanes)) < 0.4

    seen = [(numbers(3), flags()[..., None]) for _ in range(steps + 1)]
    actions = [generator.integers(0, 4, (members, lanes)) for _ in range(steps)]
    outcomes = [HostStep(numbers(), numbers(3), ends := flags(), flags() & ~ends, flags()[..., None], *pair)
                for pair in seen[1:]]  # fmt: skip
    found = []
    for way in ((slice(0, 5),), (slice(0, 2), slice(2, 5)), (slice(2, 5), slice(0, 2))):
        gathered, running = Gathered(steps, seen[0]), np.zeros((members, lanes), np.float32)
        for _ in range(2):
            for chosen in way:
                for step in range(steps):
                    observation, mask = seen[step]
                    gathered.acted(step, chosen, (observation[:, chosen], mask[:, chosen]), actions[step][:, chosen])
                    part = HostStep(*(None if field is None else field[:, chosen] for field in outcomes[step]))
                    reached = part.next_observation, part.next_mask
                    ended = gathered.answered(step, chosen, part, reached, running[:, chosen])
                    np.testing.assert_array_equal(ended, part.terminated | part.truncated)
            episodes = gathered.episodes()
        found.append((*(field.copy() for field in gathered.transitions), *episodes.values(), running))
    for other in found[1:]:
        assert difference(found[0], other) == 0
    together = gathered.transitions
    for step, outcome in enumerate(outcomes):
        np.testing.assert_array_equal(together.observation[:, step], seen[step][0])
        np.testing.assert_array_equal(together.mask[:, step], seen[step][1])
        np.testing.assert_array_equal(together.action[:, step], actions[step])
        for name in ("reward", "next_observation", "terminated", "truncated", "next_mask"):
            np.testing.assert_array_equal(getattr(together, name)[:, step], getattr(outcome, name))
    ended = together.terminated | together.truncated
    np.testing.assert_array_equal(episodes["episodes"], ended.sum(axis=(1, 2)))
    assert episodes["episode_return"].any()


def test_answers_land_in_the_host_s_memory_and_are_the_same():
    placement = Placement(3)
    program = placement.over_members(lambda member, own, shift: (member * own + shift, {"kept": own}))
    arguments = np.arange(6.0, dtype=np.float32).reshape(3, 2), np.float32([1, 2, 3]), np.int32(1)
    plain, moved = program(*arguments), to_host(program, placement)(*arguments)
    assert moved[0].sharding.memory_kind == HOST and moved[1]["kept"].sharding.memory_kind != HOST
    assert difference(plain, moved) == 0
