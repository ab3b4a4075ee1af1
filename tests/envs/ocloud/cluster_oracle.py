"""A scheduler by brute force, event by event in plain Python, to check the compiled one against."""

from collections import deque

import numpy as np

from sadq.envs.ocloud import OCloud
from sadq.envs.ocloud.workload import Workload


class Cluster:
    """Servers that play out every end and every start in order of time; demands are hundredths."""

    def __init__(self, servers, size):
        self.size = size
        self.queues = [deque() for _ in range(servers)]
        self.running = [[] for _ in range(servers)]
        self.tasks = []

    def advance(self, until):
        """Everything that happens up to and including `until`."""
        while True:
            ends = [task["end"] for running in self.running for task in running if task["end"] <= until]
            if not ends:
                return
            now = min(ends)
            for server, running in enumerate(self.running):
                self.running[server] = [task for task in running if task["end"] > now]
                self._start(server, now)

    def add(self, server, now, cpu, memory, duration):
        cpu, memory = min(cpu, self.size[0]), min(memory, self.size[1])
        task = {"arrival": now, "cpu": cpu, "memory": memory, "duration": duration, "start": None, "end": None}
        self.tasks.append(task)
        self.queues[server].append(task)
        self._start(server, now)

    def _start(self, server, now):
        queue, running = self.queues[server], self.running[server]
        while queue and all(self.used(server)[i] + queue[0][part] <= self.size[i] for i, part in enumerate(PARTS)):
            task = queue.popleft()
            task["start"], task["end"] = now, now + task["duration"]
            if task["duration"] > 0:
                running.append(task)

    def used(self, server):
        return [sum(task[part] for task in self.running[server]) for part in PARTS]

    def latency(self, now):
        return sum((now if task["start"] is None else task["start"]) - task["arrival"] for task in self.tasks)

    def observation(self, task, penalty):
        weight = {"demand": lambda one: (one["cpu"] + one["memory"]) / 100, "time": lambda one: 1}[penalty]
        used = np.array([self.used(server) for server in range(len(self.queues))]) / self.size
        waits = [len(queue) for queue in self.queues]
        penalties = [sum(weight(one) * one["duration"] for one in queue) for queue in self.queues]
        cpu, memory = min(task[1], self.size[0]), min(task[2], self.size[1])
        return np.concatenate([[cpu / 100, memory / 100, task[3]], used[:, 0], used[:, 1], waits, penalties])


PARTS = ("cpu", "memory")


def random_tasks(random, count, size=(400, 300)):
    """A stream that queues, with bursts, tasks without duration and tasks larger than a server."""
    gap = np.where(random.random(count) < 0.6, 0, random.integers(1, 6, count))
    cpu = random.integers(1, size[0] // 2, count)
    memory = random.integers(1, size[1] // 2, count)
    duration = np.where(random.random(count) < 0.15, 0, random.integers(1, 40, count))
    large = random.random(count) < 0.03
    return np.stack([gap, np.where(large, 2 * size[0], cpu), np.where(large, 2 * size[1], memory), duration], 1)


def small(tasks=None, **settings):
    """Three servers of 4 cores and 3 memory units, a short warm-up and short episodes."""
    if tasks is None:
        tasks = random_tasks(np.random.default_rng(0), 400)
    tasks = np.asarray(tasks, np.int32)
    workload = Workload(tasks, tasks[::-1].copy(), {"source": "test", "synthetic": True})
    return OCloud(
        **({"servers": 3, "cores": 4.0, "memory": 3.0, "warmup_tasks": 30, "max_steps": 60} | settings),
        workload=workload,
    )
