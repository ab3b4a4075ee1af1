"""The compiled scheduler: schedules worked out by hand, and random ones against brute force."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cluster_oracle import Cluster, random_tasks

from sadq.envs.ocloud import servers as scheduling
from sadq.envs.ocloud.servers import Task

SIZE = (400, 300)
place = jax.jit(scheduling.place, static_argnums=4)


def schedule(tasks, size=SIZE, servers=1, slots=16):
    """Starts of (server, arrival, cpu, memory, duration) rows, and the servers after them."""
    state, starts = scheduling.empty(servers, slots), []
    for server, now, cpu, memory, duration in tasks:
        task = Task(jnp.int32(cpu), jnp.int32(memory), jnp.int32(duration))
        state, placed = place(state, jnp.int32(server), task, jnp.int32(now), size)
        assert not placed.lost
        starts.append(int(placed.start))
    return starts, state


def loads(state, now):
    return jax.tree.map(lambda leaf: leaf.tolist(), scheduling.loads(state, jnp.int32(now)))


def test_tasks_run_side_by_side_until_the_cores_are_used():
    starts, state = schedule([(0, 0, 200, 10, 10), (0, 0, 200, 10, 4), (0, 1, 100, 10, 5)])
    assert starts == [0, 0, 4]
    assert loads(state, 1).cpu == [400] and loads(state, 1).waiting == [1]
    assert loads(state, 1).penalty == pytest.approx([(1.0 + 0.1) * 5]) and loads(state, 1).backlog == [5]
    assert loads(state, 4).cpu == [300] and loads(state, 4).waiting == [0]  # one ends, then the other starts
    assert loads(state, 9).cpu == [200] and loads(state, 10).cpu == [0]


def test_memory_limits_as_cores_do():
    starts, state = schedule([(0, 0, 10, 200, 7), (0, 2, 10, 150, 1), (0, 2, 10, 100, 1)])
    assert starts == [0, 7, 7]
    assert loads(state, 7).memory == [250]


def test_the_head_of_the_queue_blocks_those_behind_it():
    # The third would fit beside the first, but its turn comes after the second's.
    assert schedule([(0, 0, 300, 1, 10), (0, 1, 400, 1, 5), (0, 2, 50, 1, 1)])[0] == [0, 10, 15]


def test_a_start_waits_for_as_many_ends_as_it_needs():
    tasks = [(0, 0, 100, 1, 9), (0, 0, 100, 1, 3), (0, 0, 100, 1, 6), (0, 0, 100, 1, 12), (0, 1, 250, 1, 2)]
    assert schedule(tasks)[0] == [0, 0, 0, 0, 9]


def test_a_task_without_duration_waits_its_turn_and_uses_nothing():
    starts, state = schedule([(0, 0, 400, 1, 5), (0, 1, 400, 1, 0), (0, 1, 400, 1, 3)])
    assert starts == [0, 5, 5]
    assert loads(state, 4).waiting == [2] and loads(state, 5).cpu == [400] and loads(state, 5).waiting == [0]


def test_the_largest_servers_and_tasks_stay_within_a_word():
    size = (32_767, 65_535)
    for demand in (size, (32_767, 1), (1, 65_535)):
        tasks = [(0, second, *demand, 1_000_000) for second in range(15)]
        assert schedule(tasks, size)[0] == [1_000_000 * index for index in range(15)]


def test_servers_are_independent():
    starts, state = schedule([(0, 0, 400, 1, 50), (1, 0, 400, 1, 5), (0, 1, 400, 1, 5), (1, 6, 10, 1, 5)], servers=2)
    assert starts == [0, 0, 50, 6]
    assert loads(state, 6).cpu == [400, 10] and loads(state, 6).waiting == [1, 0]


def test_waiting_adds_up():
    _, state = schedule([(0, 0, 400, 1, 10), (0, 2, 400, 1, 5), (0, 3, 400, 1, 5)])

    def waited(since, until):
        return int(scheduling.waited(state, jnp.int32(since), jnp.int32(until)))

    assert waited(3, 5) == 4  # two tasks, two seconds each
    assert waited(5, 12) == 5 + 7
    assert waited(12, 99) == 3  # the last one starts at 15


def test_a_full_server_is_reported():
    state = scheduling.empty(1, 16)
    task = Task(jnp.int32(400), jnp.int32(1), jnp.int32(1000))
    lost = []
    for _ in range(18):
        state, placed = place(state, jnp.int32(0), task, jnp.int32(0), SIZE)
        lost.append(bool(placed.lost))
    assert lost == [False] * 16 + [True] * 2


@pytest.mark.parametrize("seed", range(6))
def test_random_workloads_are_scheduled_as_by_brute_force(seed):
    random = np.random.default_rng(seed)
    tasks = random_tasks(random, 300)
    tasks[:, 1:3] = np.minimum(tasks[:, 1:3], SIZE)
    arrivals = np.cumsum(tasks[:, 0])
    # An uneven choice, so that one server is overloaded and another nearly idle.
    chosen = random.choice(3, 300, p=[0.6, 0.3, 0.1])

    def step(state, planned):
        server, now, row = planned
        state, placed = scheduling.place(state, server, Task(*row[1:]), now, SIZE)
        return state, (placed, scheduling.loads(state, now))

    planned = jnp.int32(chosen), jnp.int32(arrivals), jnp.int32(tasks)
    empty = scheduling.empty(3, 304)
    state, (placed, seen) = jax.jit(lambda: jax.lax.scan(step, empty, planned))()
    cluster = Cluster(3, SIZE)
    for index, (server, now, (_, *task)) in enumerate(zip(chosen, arrivals, tasks, strict=True)):
        cluster.advance(now)
        cluster.add(server, now, *(int(part) for part in task))
        used = np.array([cluster.used(server) for server in range(3)])
        np.testing.assert_array_equal(np.stack([seen.cpu[index], seen.memory[index]], axis=1), used)
        np.testing.assert_array_equal(seen.waiting[index], [len(queue) for queue in cluster.queues])
    assert not placed.lost.any() and seen.waiting.max() > 20
    assert seen.cpu.max() <= SIZE[0] and seen.memory.max() <= SIZE[1]
    cluster.advance(10**9)
    np.testing.assert_array_equal(placed.start, [task["start"] for task in cluster.tasks])
    # Nothing is lost or made twice: every task placed is waiting, running or over.
    last = arrivals[-1]
    over = sum(start + task[3] <= last for start, task in zip(np.asarray(placed.start), tasks, strict=True))
    running = int(jnp.sum((state.start <= last) & (state.end > last)))
    assert over + running + int(jnp.sum(state.start > last)) == 300
