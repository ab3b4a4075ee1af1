"""One learner for every agent: model updates, then value updates towards a target that a bootstrap rule chose.

Everything here is pure and concerns one member; `fleet.py` adds the member axis. SADQ is the one switch `guidance`:
without it no model is built and no rollout is made.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from sadq import keys
from sadq.core.bootstrap import RULES, successor_guided
from sadq.core.gates import value_gap
from sadq.core.rollout import best_value
from sadq.core.schedules import importance_exponent, learning_rate_factor
from sadq.guidance import Guidance
from sadq.metrics import means, scan_with_metrics
from sadq.nets.value import ValueNetwork
from sadq.optimiser import Trainable, descend, trainable
from sadq.replay.samplers import Priorities, Prioritised, uniform
from sadq.replay.store import Ring
from sadq.types import Array, Batch, Key, Metrics, PyTree, Transition


class Hyper(NamedTuple):
    """The numbers that may differ by member: traced, so a whole sweep is one compiled program."""

    seed: Array  # u32[]
    alpha: Array  # f32[]; 1 for a plain agent
    learning_rate: Array
    model_learning_rate: Array
    discount: Array
    epsilon_start: Array
    epsilon_end: Array
    epsilon_decay: Array


class LearnerState(NamedTuple):
    """All that learning changes, apart from the replay's contents."""

    online: Trainable  # of a ValueNetwork
    target: ValueNetwork
    model: Trainable | None  # of a dynamics model; None without SADQ
    diverged_at: Array  # i32[]: the env step whose update was not finite, -1 while all is well


class Seen(NamedTuple):
    """What one value update learns from: the same transitions in their n-step and their one-step view."""

    batch: Batch
    transition: Transition


@dataclass(frozen=True)
class Learner:
    """The choices that make an agent; see `agents.py` for the table."""

    make_network: Callable[[Key], ValueNetwork]
    rule: str
    ring: Ring
    batch_size: int
    updates: int  # value updates per collect
    total_steps: int  # env steps of the run, for the schedules that span it
    guidance: Guidance | None = None
    prioritised: Prioritised | None = None
    importance: float = 0.4
    soft_target_rate: float | None = None
    max_gradient_norm: float | None = None
    learning_rate_schedule: Literal["constant", "linear"] = "constant"

    def init(self, hyper: Hyper) -> LearnerState:
        """Networks drawn from the member's seed; the target starts as a copy of the online network."""
        root = keys.member_key(hyper.seed)
        network = self.make_network(keys.purpose(root, "network"))
        model = None
        if self.guidance is not None:
            model = trainable(self.guidance.make_model(keys.purpose(root, "model")))
        return LearnerState(trainable(network), network, model, jnp.int32(-1))

    def learn(
        self,
        state: LearnerState,
        hyper: Hyper,
        ring: Transition,
        priorities: Priorities | None,
        rows: Array,
        index: Array,
    ) -> tuple[LearnerState, Priorities | None, Metrics]:
        """All updates that follow collect number `index`, with `rows` rows written to the ring so far."""
        metrics: Metrics = {}
        if self.guidance is not None:
            state, metrics = self._learn_model(self.guidance, state, hyper, ring, rows, index)
        state, priorities, measured = self._learn_values(state, hyper, ring, priorities, rows, index)
        return state, priorities, metrics | measured

    def _learn_model(
        self, guidance: Guidance, state: LearnerState, hyper: Hyper, ring: Transition, rows: Array, index: Array
    ) -> tuple[LearnerState, Metrics]:
        """k model updates, on batches of their own: always uniform, always one-step."""
        stream = keys.purpose(keys.member_key(hyper.seed), "model-update")
        update_keys = keys.range_of(stream, index * guidance.updates, guidance.updates)
        single = self.ring.single_steps
        positions = jax.vmap(lambda key: uniform(single, rows, keys.purpose(key, "sample"), guidance.batch_size))(
            update_keys
        )

        def update(state: LearnerState, inputs: tuple[Key, Transition]) -> tuple[LearnerState, Metrics]:
            return self.model_update(guidance, state, hyper, *inputs, step=rows * self.ring.environments)

        state, measured = scan_with_metrics(update, state, (update_keys, self.ring.one_step(ring, positions)))
        return state, means(measured)

    def model_update(
        self, guidance: Guidance, state: LearnerState, hyper: Hyper, key: Key, batch: Transition, step: Array
    ) -> tuple[LearnerState, Metrics]:
        """One gradient step of the dynamics model."""
        assert state.model is not None
        loss = jax.value_and_grad(lambda model: guidance.model_loss(model, batch, key), has_aux=True)
        (value, parts), gradient = loss(state.model.parameters)
        done = descend(state.model, gradient, value, hyper.model_learning_rate, state.diverged_at, step)
        return state._replace(model=done.trained, diverged_at=done.diverged_at), parts

    def _learn_values(
        self,
        state: LearnerState,
        hyper: Hyper,
        ring: Transition,
        priorities: Priorities | None,
        rows: Array,
        index: Array,
    ) -> tuple[LearnerState, Priorities | None, Metrics]:
        """The value updates of one learning phase."""
        step = rows * self.ring.environments
        progress = step / self.total_steps
        rate = hyper.learning_rate * learning_rate_factor(progress, self.learning_rate_schedule)
        stream = keys.purpose(keys.member_key(hyper.seed), "update")
        update_keys = keys.range_of(stream, index * self.updates, self.updates)

        def see(position: Array) -> Seen:
            return Seen(self.ring.n_step(ring, position, hyper.discount), self.ring.one_step(ring, position))

        def drawn_ahead(state: LearnerState, inputs: tuple[Key, Seen]) -> tuple[LearnerState, Metrics]:
            key, seen = inputs
            weight = jnp.ones(self.batch_size)
            state, _, measured = self.value_update(state, hyper, rate, key, seen, weight, step)
            return state, measured

        def by_priority(
            carry: tuple[LearnerState, Priorities], key: Key
        ) -> tuple[tuple[LearnerState, Priorities], Metrics]:
            assert self.prioritised is not None
            state, priorities = carry
            exponent = importance_exponent(progress, self.importance)
            position, weight = self.prioritised.sample(
                priorities, keys.purpose(key, "sample"), self.batch_size, exponent
            )
            state, losses, measured = self.value_update(state, hyper, rate, key, see(position), weight, step)
            return (state, self.prioritised.update(priorities, position, losses)), measured

        if priorities is None:
            # Uniform draws do not depend on the updates between them, so all batches are fetched in one gather.
            positions = jax.vmap(lambda key: uniform(self.ring, rows, keys.purpose(key, "sample"), self.batch_size))(
                update_keys
            )
            state, measured = scan_with_metrics(drawn_ahead, state, (update_keys, see(positions)))
        else:
            (state, left), measured = scan_with_metrics(by_priority, (state, priorities), update_keys)
            priorities = left
        return state, priorities, means(measured)

    def value_update(
        self, state: LearnerState, hyper: Hyper, rate: Array, key: Key, seen: Seen, weight: Array, step: Array
    ) -> tuple[LearnerState, Array, Metrics]:
        """One gradient step towards the chosen target: also the loss of every sample, and per-sample diagnostics."""
        targets, diagnostics = self.targets(state, hyper, key, seen)
        batch = seen.batch

        def loss(online: ValueNetwork) -> tuple[Array, tuple[Array, Array]]:
            returns = jax.vmap(online)(batch.observation, batch.mask)
            losses = jax.vmap(lambda z, action, target: z.taken(action).loss_to(target))(returns, batch.action, targets)
            return jnp.mean(weight * losses), (losses, jax.vmap(lambda z: z.mean)(returns))

        (value, (losses, values)), gradient = jax.value_and_grad(loss, has_aux=True)(state.online.parameters)
        done = descend(state.online, gradient, value, rate, state.diverged_at, step, self.max_gradient_norm)
        target = state.target
        if self.soft_target_rate is not None:
            target = optax.incremental_update(done.trained.parameters, target, self.soft_target_rate)
        diagnostics |= {
            "loss": losses,
            "q": jnp.max(values, axis=1),
            "delta_q": jax.vmap(value_gap)(values, batch.mask),
        }
        return state._replace(online=done.trained, target=target, diverged_at=done.diverged_at), losses, diagnostics

    def targets(self, state: LearnerState, hyper: Hyper, key: Key, seen: Seen) -> tuple[PyTree, Metrics]:
        """The backed-up returns of a batch, and how far the model's choice departs from the greedy one."""
        batch = seen.batch
        returns = jax.vmap(state.target)(batch.next_observation, batch.next_mask)
        target_q = online_q = jax.vmap(lambda z: z.mean)(returns)
        if self.rule == "double":
            online_q = jax.vmap(lambda o, m: state.online.parameters(o, m).mean)(
                batch.next_observation, batch.next_mask
            )
        base = RULES[self.rule]
        if self.guidance is None:
            choice = jax.vmap(base)(online_q, target_q, batch.next_mask)
        else:
            assert state.model is not None
            alpha, scores = self.guidance.alpha_and_scores(
                state.model.parameters,
                state.target,
                target_q,
                seen.transition,
                self.ring.terminal(seen.transition),
                batch,
                hyper.alpha,
                hyper.discount,
                key,
            )
            choice = jax.vmap(lambda weight, *values: successor_guided(base, weight)(*values))(
                alpha, online_q, target_q, scores, batch.next_mask
            )
        chosen = jax.vmap(lambda z, own: z.under(own))(returns, choice)
        diagnostics: Metrics = {}
        if self.guidance is not None:
            diagnostics = {
                "alpha": alpha,
                "disagreement": (choice.actions[:, 0] != choice.actions[:, -1]) * 1.0,
                "greedy_minus_mixed": jax.vmap(best_value)(target_q, batch.next_mask)
                - jax.vmap(lambda z: z.mean)(chosen),
            }
        backed_up = jax.vmap(lambda z, reward, discount: z.backup(reward, discount))
        return backed_up(chosen, batch.reward, batch.discount), diagnostics
