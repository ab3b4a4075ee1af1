"""One learner for every agent: model updates, then value updates towards a target that a bootstrap rule chose.

Everything here is pure and concerns one member of a fleet; `fleet/` adds the member axis. All that changes a
`LearnerState` is here. SADQ is the one switch `guidance`: without it no model is built and no rollout is made.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import jax.numpy as jnp

from sadq import keys
from sadq.core.bootstrap import Rule, best_value
from sadq.core.ensembles import Single
from sadq.core.gates import value_gap
from sadq.core.hearing import Record
from sadq.core.optimisers import Adam, Optimiser
from sadq.core.schedules import learning_rate_factor
from sadq.learning.guidance import Advice, Guidance, Seen
from sadq.learning.legal import Legal, every_action, legal_actions
from sadq.learning.metrics import means, scan_with_metrics
from sadq.learning.model_updates import learn_model, model_movers
from sadq.learning.normalising import Statistics
from sadq.learning.optimiser import Pace, clipped, descend, trainable
from sadq.learning.refit import Refit
from sadq.learning.rewards import Rewards
from sadq.learning.state import Hyper, Known, LearnerState, Phase, Stretch, Update
from sadq.learning.targets import Rules, Targets, batch_targets
from sadq.networks.heads import Look, Mover
from sadq.networks.network import Network, ensemble_keys, first_network, make_ensemble, over_networks, settled
from sadq.replay.samplers import Sampler, heard
from sadq.replay.store import Store
from sadq.types import Array, Key, Metrics, PyTree


@dataclass(frozen=True)
class TargetUpdate:
    """How the target network follows: copied at intervals, softly at every update, or both."""

    interval: int | None = None
    unit: Literal["steps", "updates"] = "steps"
    soft_rate: float | None = None


@dataclass(frozen=True)
class Learner:
    """The choices that make an agent; see `agents.py` for the table."""

    make_network: Callable[[Key], Network]
    bootstrap: Rule
    store: Store
    sampler: Sampler
    action_count: int
    environments: int  # E
    collect_steps: int  # T: vector steps between two learning phases
    batch_size: int
    updates: int  # value updates per collect
    total_steps: int  # env steps of the run, for the schedules that span it, where a member has no span of its own
    target_update: TargetUpdate
    optimiser: Optimiser = field(default_factory=Adam)
    ensemble: Single = field(default_factory=Single)
    guidance: Guidance | None = None
    refit: Refit | None = None  # of a Bayesian head
    legal: Callable[[Array], Array | None] = every_action  # by the environment's rules
    learning_starts: int = 0  # env steps before which nothing is learned
    max_gradient_norm: float | None = None
    learning_rate_schedule: Literal["constant", "linear"] = "constant"
    normalises: bool = False  # whether what networks and model see is scaled by what was seen before
    rewards: Rewards = Rewards()  # what is learned of a reward

    def init(self, hyper: Hyper) -> LearnerState:
        """Networks drawn from the member's seed; the target starts as a copy of the online ones."""
        networks = make_ensemble(self.make_network, hyper.stream("network"), self.ensemble.size)
        model = pacing = record = None
        if self.guidance is not None:
            made = self.guidance.make_model(hyper.stream("model"))
            model = trainable(made, model_movers(made))
            pacing = self.guidance.pacing.init()
            record = None if self.guidance.agreement is None else Record.empty()
        online = networks if self.refit is None else self.refit.drawn(networks, hyper, jnp.int32(-1))
        statistics = Statistics.of_nothing(networks.encoder.mean.shape[1:]) if self.normalises else None
        return LearnerState(trainable(online, online.movers()), networks, model, pacing, statistics, record)

    def learn(
        self,
        state: LearnerState,
        hyper: Hyper,
        contents: PyTree,
        memory: PyTree,
        index: Array,
        known: Known | None = None,
    ) -> tuple[LearnerState, PyTree, Metrics]:
        """All that follows collect number `index`, whose rows are in the store: (state, sampler's memory, metrics).

        `known` is what the caller knows of that number already, so that nothing has to be decided on the device.
        """
        phase = self.phase(hyper, index)

        def now() -> tuple[LearnerState, PyTree, Metrics]:
            return self._learn(state, phase, contents, memory, known)

        if known.begun if known is not None else self.learning_starts == 0:
            return now()
        shapes = jax.eval_shape(now)[2]
        nothing = {name: jnp.full(shape.shape, jnp.nan, shape.dtype) for name, shape in shapes.items()}
        if known is not None:
            return state, memory, nothing
        # The counter is shared by all members, so this stays a branch under vmap. The store is only read inside.
        return jax.lax.cond(phase.step > self.learning_starts, now, lambda: (state, memory, nothing))

    def knows(self, index: int) -> Known:
        """What can be said of collect number `index` beforehand."""
        begun = (index + 1) * self.collect_steps * self.environments > self.learning_starts
        interval, unit = self.target_update.interval, self.target_update.unit
        return Known(begun, begun and interval is not None and bool(self._due(index, interval, unit)))

    def phase(self, hyper: Hyper, index: Array) -> Phase:
        """What holds for the updates after collect number `index`."""
        rows = (index + 1) * self.collect_steps
        step = rows * self.environments
        begun, end = (0, self.total_steps) if hyper.span is None else (hyper.span[0], hyper.span[1])
        progress = (step - begun) / (end - begun)
        rate = hyper.learning_rate * learning_rate_factor(progress, self.learning_rate_schedule)
        return Phase(hyper, index, rows, step, progress, rate)

    def legal_for(self, hyper: Hyper) -> Legal:
        """Which actions a member may take."""
        return legal_actions(self.legal, self.action_count, hyper.actions)

    def _learn(
        self, state: LearnerState, phase: Phase, contents: PyTree, memory: PyTree, known: Known | None
    ) -> tuple[LearnerState, PyTree, Metrics]:
        metrics: Metrics = {}
        if self.refit is not None:
            due = self._due(phase.collect, self.refit.settings.resample_interval)
            state = self.refit.resampled(state, phase, due)
        slots, updates = known[2:] if known is not None else (None, None)
        if self.guidance is not None:
            slots = slots or Stretch(0, self.guidance.updates)
            if slots.length > 0:
                state, metrics = learn_model(self.guidance, self.store, state, phase, contents, slots)
        updates = updates or Stretch(0, self.updates)
        if updates.length > 0:
            state, memory, measured = self._learn_values(state, phase, contents, memory, updates)
            metrics |= measured
        if self.target_update.interval is not None and known is None:
            due = self._due(phase.collect, self.target_update.interval, self.target_update.unit)
            copied = jax.lax.cond(due, lambda: state.online.parameters, lambda: state.target)
            state = state._replace(target=settled(copied))
        if self.refit is not None:
            due = self._due(phase.collect, self.refit.interval)
            state = self.refit.refitted(state, phase, due, self.returns(state, phase, contents), self.store)
        return state, memory, metrics

    def _learn_values(
        self, state: LearnerState, phase: Phase, contents: PyTree, memory: PyTree, which: Stretch
    ) -> tuple[LearnerState, PyTree, Metrics]:
        """Value updates of one learning phase."""
        first = phase.collect * self.updates + which.first
        update_keys = keys.range_of(phase.hyper.stream("update"), first, which.length)

        def planned(memory: PyTree, key: Key) -> tuple[Update, Array]:
            draw_key = keys.purpose(key, "sample")
            position, weight = self.sampler.draw(memory, phase.rows, draw_key, self.batch_size, phase.progress)
            seen = self.see(contents, position, phase)
            return Update(key, seen, weight, self._heard(phase, position)), position

        def drawn_ahead(state: LearnerState, update: Update) -> tuple[LearnerState, Metrics]:
            state, _, measured = self.value_update(state, phase, update)
            return state, measured

        def one_by_one(carry: tuple[LearnerState, PyTree], key: Key) -> tuple[tuple[LearnerState, PyTree], Metrics]:
            state, memory = carry
            update, position = planned(memory, key)
            state, priority, measured = self.value_update(state, phase, update)
            return (state, self.sampler.update(memory, position, priority)), measured

        if self.sampler.depends_on_updates:
            (state, memory), measured = scan_with_metrics(one_by_one, (state, memory), update_keys)
        else:
            # Draws do not depend on the updates between them, so all batches are fetched in one gather.
            ahead = jax.vmap(lambda key: planned(memory, key)[0])(update_keys)
            state, measured = scan_with_metrics(drawn_ahead, state, ahead)
        return state, memory, means(measured)

    def see(self, contents: PyTree, position: Array, phase: Phase) -> Seen:
        """The transitions at flat positions of the store."""
        transition = self.store.one_step(contents, position)
        length = self._sequence_length
        return Seen(
            self.store.n_step(contents, position, phase.hyper.discount),
            transition,
            self.store.terminal(transition),
            self.store.sequence(contents, position, length, phase.rows) if length else None,
        )

    def value_update(self, state: LearnerState, phase: Phase, update: Update) -> tuple[LearnerState, Array, Metrics]:
        """One gradient step towards the chosen target: (state, priorities f32[B], diagnostics f32[B])."""
        key, seen = update.key, update.seen
        batch, count = seen.batch, update.weight.shape[0]
        targets = self.targets(state, phase.hyper, key, seen)
        weight = update.weight * self.ensemble.weights(targets.bootstrap)
        if update.heard is not None:
            weight = weight * update.heard.T

        def compare(noise_key: Key, online: Network, target: Network, goals: PyTree) -> tuple[Array, ...]:
            online = online.drawn(keys.purpose(noise_key, "online"))

            def of_sample(level_key: Key, own_key: Key, seen: Seen, goal: PyTree) -> tuple[Array, ...]:
                sampled, one = online.sampled(level_key), seen.batch
                features = sampled.encode(one.observation)
                returns = sampled.head(features, one.mask)
                taken = returns.taken(one.action)
                look = Look(features, one.action, one.mask, own_key, online, target, seen.sequence)
                auxiliary = sampled.head.auxiliary_loss(look)
                return taken.loss_to(goal), auxiliary, taken.priority_to(goal), returns.mean

            level_keys = keys.range_of(keys.purpose(key, "online"), 0, count)
            own_keys = keys.range_of(keys.purpose(noise_key, "auxiliary"), 0, count)
            return jax.vmap(of_sample)(level_keys, own_keys, seen, goals)

        def loss(online: Network) -> tuple[Array, tuple[Array, Array, Array]]:
            noise_keys = ensemble_keys(keys.purpose(key, "noise"), self.ensemble.size)
            losses, auxiliary, priority, values = over_networks(
                compare, noise_keys, online, state.target, targets.returns
            )
            # The networks of an ensemble share nothing, so the sum of their losses gives each its own gradient.
            total = jnp.sum(jnp.mean(weight * (losses + auxiliary), axis=-1))
            return total, (losses, priority, values)

        (value, (losses, priority, values)), gradient = jax.value_and_grad(loss, has_aux=True)(state.online.parameters)
        state = self._moved(state, phase, gradient, value)

        def of_networks(function: Callable) -> Array:
            return over_networks(lambda one: jax.vmap(function)(one, batch.mask), values)

        diagnostics = {"loss": losses, "q": of_networks(best_value), "delta_q": of_networks(value_gap)}
        averaged = {name: jnp.mean(one, axis=0) for name, one in (targets.diagnostics | diagnostics).items()}
        if state.record is not None:
            record = state.record.then(jax.tree.map(jnp.mean, targets.record))
            state, averaged["agreement"] = state._replace(record=record), jnp.full(count, record.agreement)
        return state, jnp.mean(priority, axis=0), averaged

    def _moved(self, state: LearnerState, phase: Phase, gradient: PyTree, loss: Array) -> LearnerState:
        """The state after a gradient step of the online networks, which soft targets follow."""
        networks: Network = state.online.parameters
        movers, head = networks.movers(), networks.head
        if self.max_gradient_norm is not None:
            max_norm = self.max_gradient_norm
            gradient = over_networks(lambda one: clipped(one, max_norm, movers), gradient)
        how = {Mover.RUN: Pace(self.optimiser, phase.rate)}
        if head.own_optimiser is not None:
            slowed = phase.rate / phase.hyper.learning_rate
            how[Mover.HEAD] = Pace(head.own_optimiser, slowed * head.own_learning_rate)
        online, target = descend(state.online, gradient, loss, how, movers, phase.step), state.target
        if self.target_update.soft_rate is not None:
            target = settled(_followed(target, online.parameters, self.target_update.soft_rate, movers))
        return state._replace(online=online, target=target)

    def targets(self, state: LearnerState, hyper: Hyper, key: Key, seen: Seen) -> Targets:
        """The backed-up returns of a batch: [K, B] on every leaf."""
        rules = Rules(self.bootstrap)
        if self.guidance is not None:
            assert state.model is not None
            model, legal = state.model.parameters, self.legal_for(hyper)
            alpha = self.guidance.hearing(hyper.alpha, state.record)

            def advice(target: Network, target_q: Array) -> Advice:
                return Advice(model, target, target_q, alpha, hyper.discount, legal, key)

            rules = Rules(self.bootstrap, self.guidance, advice)

        def of_one(noise_key: Key, online: Network, target: Network) -> Targets:
            return batch_targets(rules, online, target, key, noise_key, seen)

        noise_keys = ensemble_keys(keys.purpose(key, "noise"), self.ensemble.size)
        return over_networks(of_one, noise_keys, state.online.parameters, state.target)

    def returns(
        self, state: LearnerState, phase: Phase, contents: PyTree
    ) -> Callable[[Key, Array], tuple[Seen, Array]]:
        """(key, positions) -> what is stored there, and what it is worth under the agent's own target f32[B]."""

        def returns(key: Key, position: Array) -> tuple[Seen, Array]:
            seen = self.see(contents, position, phase)
            return seen, jax.vmap(lambda z: z.mean)(first_network(self.targets(state, phase.hyper, key, seen).returns))

        return returns

    def _due(self, index: Array | int, interval: int, unit: str = "steps") -> Any:
        """Whether collect number `index` completes an interval; the counter is shared, so branches stay branches."""
        per_collect = self.updates if unit == "updates" else self.collect_steps * self.environments
        return (index + 1) * per_collect // interval > index * per_collect // interval

    def _heard(self, phase: Phase, position: Array) -> Array | None:
        """Which networks of an ensemble learn from the transitions at `position`; None: all from all."""
        heard_share = self.ensemble.bootstrap_share
        if heard_share == 1:
            return None
        number = self.store.number(position, phase.rows)
        return heard(phase.hyper.stream("bootstrap"), number, self.ensemble.size, heard_share)

    @property
    def _sequence_length(self) -> int:
        made: Any = jax.eval_shape(self.make_network, keys.member_key(0))
        return made.head.sequence_length


def _followed(target: Network, online: Network, rate: float, movers: PyTree) -> Network:
    """The target moved a share of the way to the online networks; what no gradient moves is taken over."""
    return jax.tree.map(
        lambda mover, new, old: new if mover is Mover.NOTHING else rate * new + (1.0 - rate) * old,
        movers,
        online,
        target,
    )
