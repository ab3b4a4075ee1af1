"""The loop over environments outside JAX: a compiled `act`, a NumPy `step`, a compiled `learn`."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sadq.envs.group import IDLE, LONGEST_EPISODE, Environments, HostStep, Part
from sadq.errors import SadqError
from sadq.fleet.answers import answering_here, evaluating
from sadq.fleet.devices import Programs
from sadq.fleet.gathered import Gathered, Seen
from sadq.fleet.host_learning import AfterEach, BesideNext
from sadq.fleet.members import Evaluation, Fleet, MemberState, StepPlan, greedy_actions
from sadq.fleet.turns import Turns
from sadq.learning.state import Hyper
from sadq.types import Array, Metrics, PyTree

WHOLE, HALVES = (Part.WHOLE,), (Part.FIRST, Part.SECOND)


class HostLoop:
    """A `Fleet` bound to M x E host environments; the same updates, in the same order, as a `ScanLoop` makes."""

    def __init__(
        self,
        fleet: Fleet,
        hyper: Hyper,
        collects: int,
        training: Environments,
        evaluation: Environments,
        overlap: bool = False,
        further: Callable[[], Environments] | None = None,
        evaluates_beside: int = 1,
    ):
        """With `overlap` a collect is learned from while the next one is stepped.

        `evaluates_beside`: how many evaluations may go on at once; `further` makes environments like `evaluation` for those
        beyond the first.
        """
        self.fleet, self.collects, self.evaluates_beside = fleet, collects, evaluates_beside
        self.training = training
        self._evaluation, self._further = [evaluation], further
        self._free = list(self._evaluation)  # those that no evaluation is using
        self.placement, self.programs = fleet.placement(hyper.seed.shape[0]), Programs()
        self.hyper = self.placement.padded(hyper)
        self._discount = np.asarray(hyper.discount)[:, None]
        self._owned = None  # bool[M, 1, A]: the actions that each member has
        if hyper.actions is not None:
            self._owned = np.arange(fleet.learner.action_count) < np.asarray(hyper.actions)[:, None, None]
        self._seen: Seen  # what to act on next
        self._idle = self.placement.idle > 0
        self._steps_here = getattr(training, "workers", 0) == 0  # rather than in processes of their own
        self._gathered: list[Gathered] = []  # two in turns, for what is learned from is read a while longer
        self._lanes = {part: part.lanes(training.shape[1]) for part in Part}
        member = jax.eval_shape(lambda own: fleet.init_member(own, None), jax.tree.map(lambda leaf: leaf[0], hyper))
        structure = jax.tree.structure(member.learner.online.parameters)
        self.turns = Turns(getattr(training, "halves", False) and _by_lane(member.behaviour, fleet.lanes))
        possible = self.turns.taken is not False
        over_members, timed = self.placement.over_members, self.programs.timed

        def plan(_: Hyper, own: Hyper, first: Array) -> StepPlan:
            return jax.vmap(lambda number: fleet.plan(own, first + number))(jnp.arange(collects))

        # Members and networks come as lists of leaves, for taking them apart at every call would take long.
        def act(inputs: PyTree, _: tuple[()], now: Array) -> tuple[Array, PyTree]:
            leaves, memory, observation, mask, fresh, plan = inputs
            at_step = jax.tree.map(lambda leaf: leaf[now[0], now[1]], plan)
            networks = jax.tree.unflatten(structure, leaves)
            action, after = fleet.act(networks, memory, observation, mask, fresh, at_step)
            return action, _of_part(now[2], fleet.lanes, after, memory) if possible else after

        def greedy(inputs: PyTree, _: tuple[()]) -> tuple[Array, Array]:
            leaves, observation, mask = inputs
            return greedy_actions(jax.tree.unflatten(structure, leaves), observation, mask)

        self._init = timed(over_members(lambda _, own: fleet.init_member(own, None)))
        self._plan = timed(over_members(plan))
        self._act = timed(answering_here(over_members(act), self.placement))
        size = sum(leaf.size for leaf in jax.tree.leaves(member.learner.online.parameters))
        self._looking = evaluating(self.placement, size * math.prod(evaluation.shape))
        self._greedy = timed(answering_here(self._looking.over_members(greedy), self._looking))
        self._learning = (BesideNext if overlap else AfterEach)(fleet, member, self.placement, self.programs)

    def start(self) -> MemberState:
        self._seen = self._legal(*self.training.reset())
        return self._init(self.hyper, self.hyper)

    def advance(self, state: MemberState, first: int) -> tuple[MemberState, Metrics]:
        fresh, running = self.placement.real((np.array(state.fresh), np.array(state.episode_return)))
        plan = self._plan(self.hyper, self.hyper, np.int32(first))
        learning, ended = self._learning, []
        learning.begin(state, self.hyper)
        for number in range(self.collects):
            memory = learning.memory(first + number)
            memory, gathered = self._collect(learning.networks, memory, plan, number, fresh, running)
            learning.collected(first + number, self._padded(gathered.transitions), memory)
            ended.append(gathered.episodes())
        state, told = learning.end()
        # Copied: JAX may otherwise take NumPy's memory for its own, and a later call would give it away.
        kept = self._padded((jnp.array(fresh), jnp.array(running)))
        state = state._replace(fresh=kept[0], episode_return=kept[1])
        return state, self._real(told) | jax.tree.map(lambda *values: np.stack(values, axis=1), *ended)

    def evaluate(self, state: MemberState, number: int) -> Evaluation:
        networks = jax.tree.leaves(state.learner.online.parameters)
        if self._looking is not self.placement:
            networks = jax.device_put(self._real(networks), self._looking.mesh[0])
        try:
            environments = self._free.pop()
        except IndexError:  # all are in use
            assert self._further is not None, "one evaluation at a time was said to be all"
            environments = self._further()
            self._evaluation.append(environments)
        try:
            return self._played(environments, networks, number)
        finally:
            self._free.append(environments)

    def _played(self, environments: Environments, networks: list[Array], number: int) -> Evaluation:
        """Greedy episodes of evaluation `number` by networks that lie where actions are looked for."""
        looking = self._looking
        observation, mask = self._legal(*environments.reset(start=number))
        running = np.ones(observation.shape[:2], bool)
        returns, discounted = np.zeros(running.shape, np.float32), np.zeros(running.shape, np.float32)
        lengths, factor = np.zeros(running.shape, np.int32), np.ones_like(self._discount)
        predicted: Any = None
        going = running  # an episode may be over while the game that it is a life of goes on
        for taken in itertools.count():
            if not going.any():
                break
            _check_ends(environments, taken)
            seen = looking.padded((observation, mask))
            action, value = looking.real(self._greedy((networks, *seen), ()))
            predicted = np.asarray(value) if predicted is None else predicted
            environments.send(np.where(going, action, IDLE))
            step = environments.receive()
            gained = np.where(running, step.reward, np.float32(0))
            returns += gained
            lengths += running
            discounted += factor * self.fleet.learner.rewards.learned(gained)
            factor = factor * self._discount
            running = running & ~(step.terminated | step.truncated)
            going = running if step.going is None else step.going
            observation, mask = self._legal(step.observation, step.mask)
        found: tuple[Any, ...] = returns, lengths, discounted, predicted, environments.measures()
        return Evaluation(*found)

    def outside(self) -> dict[str, np.ndarray]:
        return self.training.state()

    def restore(self, state: MemberState, outside: dict[str, np.ndarray]) -> bool:
        self._seen = self._legal(*self.training.restore(outside))
        return self.training.exact_resume

    def follow(self, hyper: Hyper) -> None:
        self.hyper = self.placement.padded(hyper)

    def left_over(self) -> list[Array] | None:
        return self._learning.networks

    def close(self) -> None:
        self._learning.close()
        for environments in (self.training, *self._evaluation):
            environments.close()

    def _collect(
        self,
        networks: list[Array],
        memory: PyTree,
        plan: StepPlan,
        number: int,
        fresh: np.ndarray,
        running: np.ndarray,
    ) -> tuple[PyTree, Gathered]:
        """T steps of all environments, by the plan of the chunk's collect `number`: behaviour's memory after them, and
        what they were.

        `fresh` bool[M, E] and `running`, the returns of episodes under way, are brought up to date in place.
        """
        if self.turns.taken is None:
            jax.block_until_ready(networks)  # what is timed is the collect alone
        in_turns = self.turns.begin()
        if in_turns:  # each half brings its own lanes up to date, in arrays of ours
            self._seen = jax.tree.map(np.array, self._seen)
        self._gathered = self._gathered[::-1] or [Gathered(self.fleet.collect_steps, self._seen) for _ in range(2)]
        gathered = self._gathered[0]
        under_way: dict[Part, int] = {}  # the step that a part is taking

        def take(part: Part) -> None:
            if part in under_way:
                step, lanes = under_way.pop(part), self._lanes[part]
                outcome = self._receive(part)
                reached = self._legal(outcome.next_observation, outcome.next_mask)
                fresh[:, lanes] = gathered.answered(step, lanes, outcome, reached, running[:, lanes])

        for step in range(self.fleet.collect_steps):
            for part in HALVES if in_turns else WHOLE:
                take(part)
                observation, mask = self._seen
                seen = self._padded((observation, mask, fresh))
                now = np.array([number, step, part], np.int32)
                action, memory = self._act((networks, memory, *seen, plan), (), now)
                self._learning.meanwhile(step)
                if self._steps_here and in_turns:
                    take(Part.SECOND if part == Part.FIRST else Part.FIRST)
                lanes = self._lanes[part]
                chosen = np.asarray(self._real(action))[:, lanes]
                # Not before there is an action: until then the updates before this collect may still read the arrays.
                legal = None if mask is None else mask[:, lanes]
                gathered.acted(step, lanes, (observation[:, lanes], legal), chosen)
                self._send(chosen, part)
                under_way[part] = step
        for part in list(under_way):
            take(part)
        self.turns.end(in_turns)
        return memory, gathered

    def _send(self, actions: np.ndarray, part: Part) -> None:
        environments: Any = self.training
        if part == Part.WHOLE:
            environments.send(actions)
        else:
            environments.send(actions, part)

    def _receive(self, part: Part) -> HostStep:
        """What came of a part's actions; what is to be acted on next is in `_seen` then."""
        environments: Any = self.training
        if part == Part.WHOLE:
            step = environments.receive()
            self._seen = self._legal(step.observation, step.mask)
            return step
        step, lanes = environments.receive(part), self._lanes[part]
        for known, new in zip(self._seen, self._legal(step.observation, step.mask), strict=True):
            if known is not None:
                known[:, lanes] = new
        return step

    def _legal(self, observation: np.ndarray, mask: np.ndarray | None) -> Seen:
        """What was seen, with what is legal there for each member."""
        if self._owned is None:
            return observation, mask
        owned = np.broadcast_to(self._owned, (*observation.shape[:2], self._owned.shape[-1]))
        return observation, owned if mask is None else mask & owned

    def _padded(self, tree: PyTree) -> PyTree:
        return self.placement.padded(tree) if self._idle else tree

    def _real(self, tree: PyTree) -> PyTree:
        return self.placement.real(tree) if self._idle else tree


def _check_ends(environments: Environments, taken: int) -> None:
    """Refuse to go on for ever with episodes that nothing is known to end."""
    if taken >= LONGEST_EPISODE and getattr(environments, "max_steps", taken) is None:
        raise SadqError(
            f"An evaluation in {getattr(environments, 'name', 'this environment')} has not ended after {taken:,} "
            "steps, and the environment names no time limit: give max_episode_steps, or let it end its episodes."
        )


def _by_lane(memory: PyTree, lanes: int) -> bool:
    """Whether all that behaviour remembers belongs to lanes, so that a half of them can act alone."""
    return all(leaf.ndim > 0 and leaf.shape[0] == lanes for leaf in jax.tree.leaves(memory))


def _of_part(part: Array, lanes: int, after: PyTree, before: PyTree) -> PyTree:
    """Memory `after` acting where a lane is of the part, else as `before`: what is computed for the others is not used.

    All lanes are computed with always, for a product over fewer of them may be rounded differently.
    """
    second = jnp.arange(lanes) >= Part.SECOND.lanes(lanes).start
    acts = (part == Part.WHOLE) | (second == (part == Part.SECOND))

    def chosen(new: Array, old: Array) -> Array:
        return jnp.where(acts.reshape(lanes, *(1,) * (new.ndim - 1)), new, old)

    return jax.tree.map(chosen, after, before)
