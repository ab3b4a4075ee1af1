"""O-Cloud: choose a server for each arriving task, at little power and little waiting (the paper's Appendix B.2)."""

import dataclasses
import functools
import math
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sadq import keys
from sadq.envs.base import Environment
from sadq.envs.fixed_policies import Policy
from sadq.envs.ocloud import servers as scheduling
from sadq.envs.ocloud.servers import LANES, UNITS, Loads, Servers, Task
from sadq.envs.ocloud.synthetic import synthetic
from sadq.envs.ocloud.workload import JOB_SHARE, Workload, statistics
from sadq.errors import SadqError
from sadq.registry import typed
from sadq.types import Array, Key

TAIL_DEVIATIONS = 9
"""Slots are enough for a server's share of the warm-up this many standard deviations above its mean."""


class OCloudState(NamedTuple):
    """An episode under way: the servers, the task that waits for a decision, and sums for the measures."""

    servers: Servers
    position: Array  # i32[], of the arriving task in its stream
    now: Array  # i32[], seconds since the episode's first arrival
    decisions: Array  # i32[]
    latency: Array  # f32[], seconds from arrival to start, summed over the tasks decided on
    power: Array  # f32[], summed over the moments of reward
    waited: Array  # f32[], seconds that all tasks together waited since the first decision
    lost: Array  # i32[], tasks that found no slot; see `OCloud.slots`


@typed
@dataclasses.dataclass(frozen=True)
class OCloud(Environment):
    """A task arrives, the action names its server, and the next task arrives.

    Tasks of a server start in the order of their arrival, each once its cores and its memory are free at the same time.
    In one second ends come first, then starts, then the arrival that is decided on. A task that asks for more than a
    whole server gets a whole server. `warmup_tasks` tasks are placed uniformly at random before the first decision.

    The observation is the arriving task's cores, memory units and seconds, then of every server the share of its cores
    in use, of its memory in use, the number of tasks waiting, and their penalty: 3 + 4 x servers numbers.

    The reward of a decision is taken when the next task arrives, before it is placed: minus `power_weight` times the
    power at that moment minus `latency_weight` times the seconds that all tasks together have waited since.
    """

    workload: Workload = dataclasses.field(default_factory=lambda: synthetic(0, JOB_SHARE))
    """The tasks; see `synthetic`, `real_hour` and `batch_task`."""
    split: Literal["train", "evaluation"] = "train"
    """Which of the workload's two streams episodes are drawn from."""
    servers: int = 10
    cores: float = 4.5
    """Of each server, for a workload of one job in 40; with more, less waits, and placing matters less."""
    memory: float = 5.2
    """Of each server, in the trace's unit: 100 is the largest machine's."""
    warmup_tasks: int = 1000
    max_steps: int = 200
    """Decisions in an episode."""
    power_weight: float = 0.1
    latency_weight: float = 0.005
    idle_power: float = 87.0
    """Watts of a server without load."""
    peak_power: float = 145.0
    """Watts of a server with all cores in use."""
    power_exponent: float = 1.4
    power_form: Literal["normalised", "literal"] = "normalised"
    """Whether the whole of a server's power is divided by its peak, or, as the paper's formula is typeset, only the
    part above idle."""
    queue_penalty: Literal["demand", "time"] = "demand"
    """What a waiting task adds to its server's penalty: (cores + memory units) x seconds, or its seconds alone."""
    warmup: Literal["simulated", "precomputed"] = "simulated"
    """Whether every episode is warmed up anew, or begins in one of `precomputed_states` states that were: a reset then
    costs a copy instead of `warmup_tasks` placements, but the episodes are drawn from these beginnings alone."""
    precomputed_states: int = 256
    name: str = dataclasses.field(default="OCloud", init=False)
    fixed_length: ClassVar[bool] = True
    drawings: ClassVar[tuple[str, ...]] = (".png", ".gif")

    def __post_init__(self) -> None:
        _check(self)

    @property
    def observation_size(self) -> int:  # type: ignore[override]
        return 3 + 4 * self.servers

    @property
    def action_count(self) -> int:  # type: ignore[override]
        return self.servers

    @property
    def slots(self) -> int:
        """Tasks that a server has room for: every decision of an episode, and its share of the warm-up.

        The share is random, so a server could still run out, with a probability below 1e-15. A task that finds no
        slot is counted as lost, and every reward after it is NaN, so that no result can rest on it.
        """
        share = 1 / self.servers
        deviation = math.sqrt(self.warmup_tasks * share * (1 - share))
        most = min(self.warmup_tasks, math.ceil(self.warmup_tasks * share + TAIL_DEVIATIONS * (deviation + 1)))
        return LANES * math.ceil((most + self.max_steps) / LANES)

    @property
    def size(self) -> tuple[int, int]:
        """Of a server, in hundredths of cores and of memory units."""
        return round(UNITS * self.cores), round(UNITS * self.memory)

    @property
    def provenance(self) -> dict[str, Any]:
        """Where the tasks come from, as JSON data for a run's record."""
        tasks = self.workload.stream(self.split)
        larger = int(np.sum((tasks[:, 1] > self.size[0]) | (tasks[:, 2] > self.size[1])))
        return self.workload.provenance | {
            "split": self.split,
            "larger_than_a_server": larger,
            "statistics": statistics(tasks),
        }

    def for_evaluation(self) -> "OCloud":
        """The same environment over the workload's evaluation stream."""
        return dataclasses.replace(self, split="evaluation")

    def policies(self) -> dict[str, Policy]:
        """Simple policies to compare with, by name."""
        from sadq.envs.ocloud.placement import POLICIES  # which are written for this class

        return {name: make(self) for name, make in POLICIES.items()}

    def draw(self, states: OCloudState, path: Path) -> Path:
        """Draw an episode's states, stacked along their first axis, into a .png or .gif file."""
        from sadq.envs.ocloud.drawing import draw  # matplotlib, which nothing else here needs

        return draw(self, states, path)

    def initial(self, key: Key) -> OCloudState:
        if self.warmup == "precomputed":
            index = jax.random.randint(keys.purpose(key, "beginning"), (), 0, self.precomputed_states)
            state = jax.tree.map(lambda leaf: jnp.asarray(leaf)[index], _beginnings(self))
            return state._replace(servers=scheduling.map_slots(self._padded, state.servers))
        tasks = len(self.workload.stream(self.split))
        first = jax.random.randint(keys.purpose(key, "first"), (), 0, tasks - self._tasks_needed + 1)
        chosen = jax.random.randint(keys.purpose(key, "warm-up"), (self.warmup_tasks,), 0, self.servers)

        def place(carry, planned):
            servers, now, lost = carry
            server, position = planned
            task, next_gap = self._task(position), self._gap(position + 1)
            servers, placed = scheduling.place(servers, server, task, now, self.size)
            return (servers, now + next_gap, lost + placed.lost), None

        carry = scheduling.empty(self.servers, self.slots), jnp.int32(0), jnp.int32(0)
        planned = chosen, first + jnp.arange(self.warmup_tasks)
        (servers, now, lost), _ = jax.lax.scan(place, carry, planned)
        zero = jnp.float32(0)
        return OCloudState(servers, first + self.warmup_tasks, now, jnp.int32(0), zero, zero, zero, lost)

    def transition(self, state: OCloudState, action: Array, key: Key) -> tuple[OCloudState, Array, Array]:
        servers, placed = scheduling.place(state.servers, action, self._task(state.position), state.now, self.size)
        now = state.now + self._gap(state.position + 1)
        load = scheduling.loads(servers, now)
        power = self.power(load)
        waited = scheduling.waited(servers, state.now, now).astype(jnp.float32)
        reached = OCloudState(
            servers,
            state.position + 1,
            now,
            state.decisions + 1,
            state.latency + (placed.start - state.now),
            state.power + power,
            state.waited + waited,
            state.lost + placed.lost,
        )
        reward = -(self.power_weight * power + self.latency_weight * waited)
        return reached, jnp.where(reached.lost > 0, jnp.nan, reward), jnp.bool_(False)

    def observe(self, state: OCloudState) -> Array:
        task, load = self._task(state.position), scheduling.loads(state.servers, state.now)
        parts = (
            jnp.stack([task.cpu / UNITS, task.memory / UNITS, task.duration]),
            load.cpu / self.size[0],
            load.memory / self.size[1],
            load.waiting,
            load.penalty if self.queue_penalty == "demand" else load.backlog,
        )
        return jnp.concatenate([part.astype(jnp.float32) for part in parts])

    def power(self, load: Loads) -> Array:
        """The power of all servers together, f32[]: of each between `idle_power / peak_power` and 1 if normalised."""
        use = load.cpu / self.size[0]
        risen = (self.peak_power - self.idle_power) * (2 * use - use**self.power_exponent)
        if self.power_form == "literal":
            return jnp.sum(self.idle_power + risen / self.peak_power)
        return jnp.sum((self.idle_power + risen) / self.peak_power)

    def measures(self, state: OCloudState) -> dict[str, Array]:
        """What an episode came to so far, each f32[].

        `mean_latency` is the time from arrival to start of the tasks decided on, also where they start after the end;
        `mean_waited` the seconds that all tasks waited from one decision to the next, the reward's own term.
        """
        decisions = jnp.maximum(state.decisions, 1)
        return {
            "mean_latency": state.latency / decisions,
            "mean_power": state.power / decisions,
            "mean_waited": state.waited / decisions,
            "final_waiting": jnp.sum(state.servers.start > state.now).astype(jnp.float32),
            "lost_tasks": state.lost.astype(jnp.float32),
        }

    @property
    def _tasks_needed(self) -> int:
        return self.warmup_tasks + self.max_steps + 1  # the last reward is taken at the arrival of one more

    def _task(self, position: Array) -> Task:
        _, cpu, memory, duration = jnp.asarray(self.workload.stream(self.split))[position]
        return Task(jnp.minimum(cpu, self.size[0]), jnp.minimum(memory, self.size[1]), duration)

    def _padded(self, leaf: Array) -> Array:
        return jnp.pad(leaf, ((0, 0), (0, self.slots - leaf.shape[1])))

    def _gap(self, position: Array) -> Array:
        return jnp.asarray(self.workload.stream(self.split))[position, 0]


@functools.lru_cache(maxsize=8)
def _beginnings(environment: OCloud) -> OCloudState:
    """The states after `precomputed_states` warm-ups, as NumPy arrays without the slots that none of them uses."""
    simulated = dataclasses.replace(environment, warmup="simulated")
    with jax.ensure_compile_time_eval():
        beginning_keys = keys.range_of(
            keys.purpose(keys.member_key(0), "beginnings"), 0, environment.precomputed_states
        )
        states = jax.tree.map(np.asarray, jax.jit(jax.vmap(simulated.initial))(beginning_keys))
    used = np.flatnonzero((states.servers.end > states.now[:, None, None]).any(axis=(0, 1)))
    kept = int(used[-1]) + 1 if len(used) else 1
    return states._replace(servers=scheduling.map_slots(lambda leaf: leaf[..., :kept], states.servers))


def _check(environment: OCloud) -> None:
    for field, least in (("servers", 1), ("warmup_tasks", 0), ("max_steps", 1), ("precomputed_states", 1)):
        if getattr(environment, field) < least:
            _refuse(field, getattr(environment, field), f"at least {least}")
    for field, most in (("cores", scheduling.MAX_CORES), ("memory", scheduling.MAX_MEMORY)):
        if not 1 / UNITS <= getattr(environment, field) <= most:
            _refuse(field, getattr(environment, field), f"0.01 to {most}")
    if not 0 <= environment.idle_power <= environment.peak_power or environment.peak_power <= 0:
        _refuse("idle_power", environment.idle_power, f"0 to peak_power, {environment.peak_power}")
    tasks = len(environment.workload.stream(environment.split))
    if tasks < environment._tasks_needed:
        raise SadqError(
            f"OCloud's {environment.split} stream has {tasks} tasks, expected the {environment._tasks_needed} of an "
            "episode at least: choose a longer window, another evaluation_fraction, a larger job_share, or fewer "
            "warmup_tasks."
        )


def _refuse(field: str, value: Any, expected: str) -> None:
    raise SadqError(f"OCloud got {field}={value!r}, expected {expected}: choose such a value.")
