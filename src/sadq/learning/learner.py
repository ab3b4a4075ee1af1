"""One learner for every agent: model updates, then value updates towards a target that a bootstrap rule chose.

Everything here is pure and concerns one member of a fleet; `fleet.py` adds the member axis. SADQ is the one switch
`guidance`: without it no model is built and no rollout is made.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from sadq import keys
from sadq.core.ensembles import backup_weight
from sadq.core.gates import value_gap
from sadq.core.posterior import Posterior, sample
from sadq.core.schedules import importance_exponent, learning_rate_factor
from sadq.learning.guidance import Guidance
from sadq.learning.inference import Inference
from sadq.learning.metrics import means, scan_with_metrics
from sadq.networks.value import Ensemble, Network, ValueNetwork
from sadq.learning.optimiser import Separate, Trainable, clipped, descend, trainable
from sadq.replay.samplers import Priorities, Prioritised, kept, uniform
from sadq.replay.store import Ring
from sadq.learning.targets import Mix, Seen, Targets, batch_targets, level_keys
from sadq.types import Array, Key, Metrics, Transition


class Hyper(NamedTuple):
    """The numbers that may differ by member: traced, so a whole sweep is one compiled program."""

    seed: Array  # u32[]
    alpha: Array  # f32[]; 1 for a plain agent
    learning_rate: Array
    model_learning_rate: Array
    separate_learning_rate: Array  # of FQF's fractions
    discount: Array
    epsilon_start: Array
    epsilon_end: Array
    epsilon_decay: Array


class LearnerState(NamedTuple):
    """All that learning changes, apart from the replay's contents."""

    online: Trainable  # of a Network
    target: Network
    model: Trainable | None  # of a dynamics model; None without SADQ
    posterior: Posterior | None  # of a Bayesian head's last layer
    diverged_at: Array  # i32[]: the env step whose update was not finite, -1 while all is well

    @property
    def actor(self) -> "Actor":
        return Actor(self.online.parameters, self.posterior)


class Actor(NamedTuple):
    """What it takes to act."""

    network: Network
    posterior: Posterior | None

    @property
    def policy(self) -> Network:
        """The network that evaluation acts by: a Bayesian one with its posterior's mean."""
        return with_mean(self.network, self.posterior)


def with_mean(network: Network, posterior: Posterior | None) -> Network:
    """A Bayesian network with its posterior's mean in the last layer, whatever was drawn for it; others as they are."""
    if posterior is None or not isinstance(network, ValueNetwork):
        return network
    return network.with_weights(posterior.mean)


@dataclass(frozen=True)
class Learner:
    """The choices that make an agent; see `agents.py` for the table."""

    make_network: Callable[[Key], Network]
    rule: str
    ring: Ring
    batch_size: int
    updates: int  # value updates per collect
    total_steps: int  # env steps of the run, for the schedules that span it
    guidance: Guidance | None = None
    prioritised: Prioritised | None = None
    importance: float = 0.4
    inference: Inference | None = None  # of a Bayesian head
    backup_temperature: float | None = None  # ensembles: how strongly disagreement lowers a backup's weight
    ensemble_size: int = 1
    bootstrap_share: float = 1.0  # ensembles: the share of transitions that each network learns from
    soft_target_rate: float | None = None
    max_gradient_norm: float | None = None
    learning_rate_schedule: Literal["constant", "linear"] = "constant"

    def init(self, hyper: Hyper) -> LearnerState:
        """Networks drawn from the member's seed; the target starts as a copy of the online network."""
        root = keys.member_key(hyper.seed)
        network = self.make_network(keys.purpose(root, "network"))
        online, model, posterior = network, None, None
        if self.guidance is not None:
            model = trainable(self.guidance.make_model(keys.purpose(root, "model")))
        if self.inference is not None:
            assert isinstance(network, ValueNetwork)
            posterior = self.inference.prior(network)
            online = network.with_weights(self.resample(posterior, hyper, jnp.int32(-1)))
        return LearnerState(trainable(online), network, model, posterior, jnp.int32(-1))

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

        def see(position: Array) -> tuple[Seen, Array | None]:
            return self.see(ring, position, hyper.discount), self._heard(hyper, rows, position)

        def drawn_ahead(state: LearnerState, inputs: Any) -> tuple[LearnerState, Metrics]:
            key, (seen, heard) = inputs
            weight = jnp.ones(self.batch_size)
            state, _, measured = self.value_update(state, hyper, rate, key, seen, weight, step, heard)
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
            seen, heard = see(position)
            state, surprise, measured = self.value_update(state, hyper, rate, key, seen, weight, step, heard)
            return (state, self.prioritised.update(priorities, position, surprise)), measured

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

    def see(self, ring: Transition, position: Array, discount: Array) -> Seen:
        """The transitions at flat positions of the ring."""
        transition = self.ring.one_step(ring, position)
        return Seen(self.ring.n_step(ring, position, discount), transition, self.ring.terminal(transition))

    def value_update(
        self,
        state: LearnerState,
        hyper: Hyper,
        rate: Array,
        key: Key,
        seen: Seen,
        weight: Array,
        step: Array,
        heard: Array | None = None,
    ) -> tuple[LearnerState, Array, Metrics]:
        """One gradient step towards the chosen target: also how surprising every sample was, and diagnostics.

        `weight` f32[B] is replay's; `heard` bool[B, K] says which networks of an ensemble learn from which sample.
        """
        targets = self.targets(state, hyper, key, seen)
        batch, count = seen.batch, weight.shape[0]
        if self.backup_temperature is not None:
            weight = weight * jax.vmap(backup_weight, (1, None))(targets.bootstrap, self.backup_temperature)
        if heard is not None:
            weight = weight * heard.T

        def compare(noise_key: Key, online: ValueNetwork, own: Targets) -> tuple[Array, Array, Array, Array]:
            online = online.with_noise(keys.purpose(noise_key, "online"))
            levels = level_keys(online, keys.purpose(key, "online"), count)
            returns = jax.vmap(online)(batch.observation, batch.mask, levels)
            taken = jax.vmap(lambda z, action: z.taken(action))(returns, batch.action)
            losses = jax.vmap(lambda z, target: z.loss_to(target))(taken, own.returns)
            surprise = jax.vmap(lambda z, target: z.surprise_to(target))(taken, own.returns)
            auxiliary = jax.vmap(online.auxiliary_loss)(batch.observation, batch.action, batch.mask)
            return losses, auxiliary, surprise, jax.vmap(lambda z: z.mean)(returns)

        def loss(online: Network) -> tuple[Array, tuple[Array, Array, Array]]:
            compared = _each(compare, keys.purpose(key, "noise"), online, others=(targets,))
            losses, auxiliary, surprise, values = compared
            # The networks of an ensemble share nothing, so the sum of their losses gives each its own gradient.
            total = jnp.sum(jnp.mean(weight * (losses + auxiliary), axis=-1))
            return total, (losses, surprise, values)

        (value, (losses, surprise, values)), gradient = jax.value_and_grad(loss, has_aux=True)(state.online.parameters)
        marks = state.online.parameters.separately_optimised()
        if self.max_gradient_norm is not None:
            clip = functools.partial(clipped, max_norm=self.max_gradient_norm, exempt=marks)
            gradient = jax.vmap(clip)(gradient) if isinstance(gradient, Ensemble) else clip(gradient)
        separate = Separate(marks, rate / hyper.learning_rate * hyper.separate_learning_rate)
        done = descend(state.online, gradient, value, rate, state.diverged_at, step, separate)
        target = state.target
        if self.soft_target_rate is not None:
            moved = optax.incremental_update(done.trained.parameters, target, self.soft_target_rate)
            target = with_mean(moved, state.posterior)
        legal = batch.mask
        gaps = jax.vmap(lambda own: jax.vmap(value_gap)(own, legal))(values.reshape(-1, *values.shape[-2:]))
        diagnostics = targets.diagnostics | {"loss": losses, "q": jnp.max(values, axis=-1), "delta_q": gaps}
        averaged = {name: jnp.mean(one.reshape(-1, count), axis=0) for name, one in diagnostics.items()}
        state = state._replace(online=done.trained, target=target, diverged_at=done.diverged_at)
        return state, jnp.mean(surprise.reshape(-1, count), axis=0), averaged

    def targets(self, state: LearnerState, hyper: Hyper, key: Key, seen: Seen) -> Targets:
        """The backed-up returns of a batch: [B] on every leaf, [K, B] for an ensemble."""
        mix = None
        if self.guidance is not None:
            assert state.model is not None
            mix = Mix(self.guidance, state.model.parameters, hyper.alpha, hyper.discount)

        def of_one(noise_key: Key, online: ValueNetwork, target: ValueNetwork) -> Targets:
            return batch_targets(self.rule, online, target, mix, key, noise_key, seen)

        return _each(of_one, keys.purpose(key, "noise"), state.online.parameters, state.target)

    def resample(self, posterior: Posterior, hyper: Hyper, index: Array) -> Array:
        """A new draw of a Bayesian last layer, by which the online network learns."""
        return sample(posterior, keys.at(keys.purpose(keys.member_key(hyper.seed), "resample"), index))

    def refit(self, state: LearnerState, hyper: Hyper, ring: Transition, rows: Array, index: Array) -> Posterior:
        """The posterior of a Bayesian last layer, inferred anew from the replay and the agent's own targets."""
        assert self.inference is not None and state.posterior is not None
        key = keys.at(keys.purpose(keys.member_key(hyper.seed), "refit"), index)

        def returns(own_key: Key, position: Array) -> tuple[Seen, Array]:
            seen = self.see(ring, position, hyper.discount)
            return seen, jax.vmap(lambda z: z.mean)(self.targets(state, hyper, own_key, seen).returns)

        healthy = state.diverged_at < 0
        return self.inference.refit(state.posterior, state.target, returns, self.ring, rows, key, healthy)

    def _heard(self, hyper: Hyper, rows: Array, position: Array) -> Array | None:
        """Which networks of an ensemble learn from the transitions at `position`; None: all from all."""
        if self.bootstrap_share == 1:
            return None
        stream = keys.purpose(keys.member_key(hyper.seed), "bootstrap")
        number = self.ring.number(position, rows)
        return kept(stream, number, self.ensemble_size, self.bootstrap_share)


def _each(function: Callable, noise_key: Key, *networks: Network, others: tuple[Any, ...] = ()) -> Any:
    """`function(noise_key, *networks, *others)`, of every network of an ensemble where they are ensembles."""
    first = networks[0]
    if not isinstance(first, Ensemble):
        return function(noise_key, *networks, *others)
    members = [network.members for network in networks if isinstance(network, Ensemble)]
    return jax.vmap(function)(keys.range_of(noise_key, 0, first.size), *members, *others)
