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
from sadq.core.gates import GATES, value_gap
from sadq.core.rollout import bellman_estimate, best_value, rollout_scores
from sadq.core.schedules import importance_exponent, learning_rate_factor
from sadq.dynamics.gaussian import GaussianModel
from sadq.nets.value import ValueNetwork
from sadq.replay.samplers import Priorities, Prioritised, uniform
from sadq.replay.store import Ring
from sadq.types import Array, Batch, Key, Metrics, PyTree, Transition

ADAM = optax.scale_by_adam(eps=1e-8)
"""Without the learning rate, which is multiplied in apart so that it may differ by fleet member."""


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


class Trainable(NamedTuple):
    """Parameters with their Adam moments."""

    parameters: PyTree
    moments: PyTree


class LearnerState(NamedTuple):
    """All that learning changes, apart from the replay's contents."""

    online: Trainable  # of a ValueNetwork
    target: ValueNetwork
    model: Trainable | None  # of a GaussianModel; None without SADQ
    diverged_at: Array  # i32[]: the env step whose update was not finite, -1 while all is well


@dataclass(frozen=True)
class Guidance:
    """SADQ: what it takes to let a learned model rank the next actions."""

    make_model: Callable[[Key], GaussianModel]
    batch_size: int
    updates: int  # k model updates per collect
    gate: str = "fixed"
    samples: int = 1
    chunk: int | None = None
    legal: Callable[[Array], Array | None] = lambda _: None


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
            parameters = self.guidance.make_model(keys.purpose(root, "model"))
            model = Trainable(parameters, ADAM.init(parameters))
        return LearnerState(Trainable(network, ADAM.init(network)), network, model, jnp.int32(-1))

    def learn(
        self,
        state: LearnerState,
        hyper: Hyper,
        ring: Transition,
        priorities: Priorities | None,
        rows: Array,
        index: Array,
    ) -> tuple[LearnerState, Priorities | None, Metrics]:
        """All updates that follow the collect number `index`, with `rows` rows written to the ring so far."""
        root = keys.member_key(hyper.seed)
        step = rows * self.ring.environments
        metrics: Metrics = {}
        if self.guidance is not None:
            state, metrics = self._learn_model(state, hyper, ring, root, rows, index)

        update_keys = keys.range_of(keys.purpose(root, "update"), index * self.updates, self.updates)
        rate = hyper.learning_rate * learning_rate_factor(step / self.total_steps, self.learning_rate_schedule)

        def views(position: Array) -> tuple[Transition, Batch]:
            return self.ring.one_step(ring, position), self.ring.n_step(ring, position, hyper.discount)

        def update(carry, key_and_views):
            state, priorities = carry
            key, seen = key_and_views
            if self.prioritised is None:
                weight = jnp.ones(self.batch_size)
            else:
                exponent = importance_exponent(step / self.total_steps, self.importance)
                position, weight = self.prioritised.sample(
                    priorities, keys.purpose(key, "sample"), self.batch_size, exponent
                )
                seen = views(position)
            state, losses, measured = self.value_update(state, hyper, rate, key, *seen, weight, step)
            if self.prioritised is not None:
                priorities = self.prioritised.update(priorities, position, losses)
            return (state, priorities), measured

        seen = None
        if self.prioritised is None:
            # Uniform draws do not depend on the updates between them, so all batches are fetched in one gather.
            draw = jax.vmap(lambda key: uniform(self.ring, rows, keys.purpose(key, "sample"), self.batch_size))
            seen = views(draw(update_keys))
        (state, priorities), measured = jax.lax.scan(update, (state, priorities), (update_keys, seen))
        return state, priorities, metrics | _means(measured)

    def _learn_model(
        self, state: LearnerState, hyper: Hyper, ring: Transition, root: Key, rows: Array, index: Array
    ) -> tuple[LearnerState, Metrics]:
        """k model updates, on batches of their own: always uniform, always one-step."""
        guidance = self.guidance
        model_keys = keys.range_of(keys.purpose(root, "model-update"), index * guidance.updates, guidance.updates)
        one_step_ring = self.ring.single_steps
        position = jax.vmap(lambda key: uniform(one_step_ring, rows, keys.purpose(key, "sample"), guidance.batch_size))(
            model_keys
        )

        def update(state, key_and_batch):
            return self.model_update(state, hyper, *key_and_batch, rows * self.ring.environments)

        state, measured = jax.lax.scan(update, state, (model_keys, self.ring.one_step(ring, position)))
        return state, _means(measured)

    def model_update(
        self, state: LearnerState, hyper: Hyper, key: Key, batch: Transition, step: Array
    ) -> tuple[LearnerState, Metrics]:
        """One gradient step of the dynamics model, Eq. (m_loss)."""

        def loss(model: GaussianModel) -> tuple[Array, Metrics]:
            noise_keys = keys.range_of(keys.purpose(key, "noise"), 0, batch.reward.shape[0])
            losses, parts = jax.vmap(model.loss)(batch, noise_keys)
            return jnp.mean(losses), parts

        (value, parts), gradient = jax.value_and_grad(loss, has_aux=True)(state.model.parameters)
        model, diverged_at, _ = self._descend(
            state.model, gradient, value, hyper.model_learning_rate, state.diverged_at, step
        )
        return state._replace(model=model, diverged_at=diverged_at), parts

    def value_update(
        self,
        state: LearnerState,
        hyper: Hyper,
        rate: Array,
        key: Key,
        transition: Transition,
        batch: Batch,
        weight: Array,
        step: Array,
    ) -> tuple[LearnerState, Array, Metrics]:
        """One gradient step towards the chosen target; also the loss of every sample, and per-sample diagnostics."""
        targets, diagnostics = self.targets(state, hyper, key, transition, batch)

        def loss(online: ValueNetwork):
            returns = jax.vmap(online)(batch.observation, batch.mask)
            losses = jax.vmap(lambda z, action, target: z.taken(action).loss_to(target))(returns, batch.action, targets)
            return jnp.mean(weight * losses), (losses, jax.vmap(lambda z: z.mean)(returns))

        (value, (losses, values)), gradient = jax.value_and_grad(loss, has_aux=True)(state.online.parameters)
        online, diverged_at, norm = self._descend(state.online, gradient, value, rate, state.diverged_at, step)
        target = state.target
        if self.soft_target_rate is not None:
            target = optax.incremental_update(online.parameters, target, self.soft_target_rate)
        measured = {
            "loss": losses,
            "q": jnp.max(values, axis=1),
            "delta_q": jax.vmap(value_gap)(values, batch.mask),
            "gradient_norm": jnp.broadcast_to(norm, losses.shape),
        }
        return state._replace(online=online, target=target, diverged_at=diverged_at), losses, measured | diagnostics

    def targets(
        self, state: LearnerState, hyper: Hyper, key: Key, transition: Transition, batch: Batch
    ) -> tuple[PyTree, Metrics]:
        """The backed-up returns of a batch, and how far the model's choice departs from the greedy one."""
        returns = jax.vmap(state.target)(batch.next_observation, batch.next_mask)
        target_q = jax.vmap(lambda z: z.mean)(returns)
        online_q = target_q
        if self.rule == "double":
            online = jax.vmap(state.online.parameters)(batch.next_observation, batch.next_mask)
            online_q = jax.vmap(lambda z: z.mean)(online)
        base = RULES[self.rule]
        diagnostics: Metrics = {}
        if self.guidance is None:
            choice = jax.vmap(base)(online_q, target_q, batch.next_mask)
        else:
            scores = self.scores(state, hyper, key, batch.next_observation)
            alpha = GATES[self.guidance.gate](
                hyper.alpha, target_q, scores, self._bellman_error(state, hyper, key, transition), batch.next_mask
            )
            choice = jax.vmap(lambda weight, *values: successor_guided(base, weight)(*values))(
                alpha, online_q, target_q, scores, batch.next_mask
            )
            diagnostics = {"alpha": alpha, "disagreement": (choice.actions[:, 0] != choice.actions[:, -1]) * 1.0}
        bootstrap = jax.vmap(lambda z, chosen: z.under(chosen))(returns, choice)
        if self.guidance is not None:
            best = jax.vmap(best_value)(target_q, batch.next_mask)
            diagnostics["greedy_minus_mixed"] = best - jax.vmap(lambda z: z.mean)(bootstrap)
        return jax.vmap(lambda z, reward, discount: z.backup(reward, discount))(
            bootstrap, batch.reward, batch.discount
        ), diagnostics

    def scores(self, state: LearnerState, hyper: Hyper, key: Key, next_observation: Array) -> Array:
        """The rollout scores f32[B, A] of every candidate action at every next state."""
        model, guidance = state.model.parameters, self.guidance
        rollout_keys = keys.range_of(keys.purpose(key, "rollout"), 0, next_observation.shape[0])

        def of_one(observation: Array, rollout_key: Key) -> Array:
            return rollout_scores(
                model.step,
                lambda successor: state.target(successor, guidance.legal(successor)).mean,
                model.encode(observation),
                self.ring.action_count,
                rollout_key,
                discount=hyper.discount,
                samples=guidance.samples,
                chunk=guidance.chunk,
                legal=guidance.legal,
            )

        return jax.vmap(of_one)(next_observation, rollout_keys)

    def _bellman_error(self, state: LearnerState, hyper: Hyper, key: Key, transition: Transition) -> Array:
        """|model's Bellman estimate - the observed one| on the one-step tuples, f32[B]; zeros where no gate asks."""
        if self.guidance.gate == "fixed":
            return jnp.zeros(transition.reward.shape)
        model, legal = state.model.parameters, self.guidance.legal

        def of_one(one: Transition, terminal: Array, noise_key: Key) -> Array:
            def value_of(observation: Array) -> Array:
                return state.target(observation, legal(observation)).mean

            prediction = model.step(model.encode(one.observation), one.action, noise_key)
            estimate = bellman_estimate(prediction, value_of, hyper.discount, legal)
            future = best_value(state.target(one.next_observation, one.next_mask).mean, one.next_mask)
            return jnp.abs(estimate - (one.reward + hyper.discount * jnp.where(terminal, 0.0, future)))

        noise_keys = keys.range_of(keys.purpose(key, "gate"), 0, transition.reward.shape[0])
        return jax.vmap(of_one)(transition, self.ring.terminal(transition), noise_keys)

    def _descend(
        self, trainable: Trainable, gradient: PyTree, loss: Array, rate: Array, diverged_at: Array, step: Array
    ) -> tuple[Trainable, Array, Array]:
        """One Adam step, or none at all from the first non-finite gradient on: nothing can stop inside a vmap."""
        norm = optax.global_norm(gradient)
        healthy = (diverged_at < 0) & jnp.isfinite(loss) & jnp.isfinite(norm)
        if self.max_gradient_norm is not None:
            gradient = jax.tree.map(lambda leaf: leaf * jnp.minimum(1.0, self.max_gradient_norm / norm), gradient)
        direction, moments = ADAM.update(gradient, trainable.moments)
        parameters = jax.tree.map(lambda old, change: old - rate * change, trainable.parameters, direction)
        kept = jax.tree.map(lambda new, old: jnp.where(healthy, new, old), Trainable(parameters, moments), trainable)
        return kept, jnp.where((diverged_at < 0) & ~healthy, step, diverged_at), norm


def _means(measured: Metrics) -> Metrics:
    """The mean of every metric over updates and samples, taken once per collect rather than once per update."""
    return {name: jnp.mean(values) for name, values in measured.items()}
