"""`SADQDQN`: SADQ's target and one-step model inside Stable-Baselines3's DQN, for those who stay with PyTorch (extra `sb3`).

The mathematics is that of `sadq.core`, written again for torch and whole batches; nothing of JAX is imported. What belongs
to SADQ draws from random streams of its own, so that with alpha = 1 every number is that of Stable-Baselines3's DQN.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from sadq.errors import SadqError

try:
    import torch
    from gymnasium import spaces
    from stable_baselines3 import DQN
    from stable_baselines3.common.buffers import ReplayBuffer
    from stable_baselines3.common.preprocessing import is_image_space
    from torch import Tensor, nn
    from torch.nn import functional
except ImportError as error:
    raise SadqError("sadq.sb3 needs Stable-Baselines3: pip install 'sadq[sb3]'.") from error

LOG_VARIANCE_RANGE = (-20.0, 2.0)
STREAM = 0x5AD9
"""Tells SADQ's random stream from Stable-Baselines3's, which is seeded with the same number."""


def scores_of(reward: Tensor, continuation: Tensor, successor_q: Tensor, discount: float) -> Tensor:
    """r' + gamma c max Q'(s'', .) of predicted steps, [...], from values [..., A] at their successors."""
    return reward + discount * continuation * successor_q.max(dim=-1).values


def mixed_values(target_q: Tensor, scores: Tensor, alpha: Tensor | float) -> Tensor:
    """alpha max Q'(s', .) + (1 - alpha) Q'(s', argmax score), [B], from values and scores [B, A]."""
    chosen = target_q.gather(1, scores.argmax(dim=1, keepdim=True)).squeeze(1)
    return alpha * target_q.max(dim=1).values + (1 - alpha) * chosen


def reliable_alpha(alpha: float, target_q: Tensor, bellman_error: Tensor) -> Tensor:
    """The weight of the base's choice: 1 while the model errs by more than the actions differ, alpha where it never errs."""
    gap = (target_q.max(dim=1).values - target_q.min(dim=1).values).mean()
    error = bellman_error.abs().mean()
    reliability = (1 - error / gap.clamp(min=1e-8)).clamp(0, 1)
    return 1 - (1 - alpha) * torch.where(error.isfinite(), reliability, 0.0)


def within_allowance(alpha: Tensor, target_q: Tensor, scores: Tensor, discount: Tensor, allowance: float) -> Tensor:
    """`alpha` raised until values fall by no more than `allowance` value gaps over all that a target is made of."""
    lowering = target_q.max(dim=1).values - mixed_values(target_q, scores, alpha)
    in_all = (discount * lowering).mean() / (1 - discount.mean()).clamp(min=1e-8)
    gap = (target_q.max(dim=1).values - target_q.min(dim=1).values).mean()
    return 1 - (1 - alpha) * (allowance * gap / in_all.clamp(min=1e-8)).clamp(0, 1)


class OneStepModel(nn.Module):
    """s' ~ N(mu, sigma^2), the expected reward, and the probability that the episode goes on, for every action at once."""

    def __init__(self, shape: tuple[int, ...], actions: int, hidden: Sequence[int], learning_rate: float):
        super().__init__()
        self.shape, self.size = shape, math.prod(shape)
        sizes = [self.size + actions, *hidden]
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in zip(sizes[:-1], sizes[1:], strict=True))
        self.output = nn.Linear(hidden[-1], 2 * self.size + 2)  # mu, log sigma^2, reward, logit of going on
        self.optimizer = torch.optim.Adam(self.parameters(), learning_rate)

    def forward(self, observation: Tensor, action: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Mean [B, S], deviation [B, S], reward [B] and logit [B] of `action` i64[B]; [B, A, ...] of all without it."""
        first, rows = self.layers[0], self.layers[0].weight[:, self.size :].T
        seen = functional.linear(observation.float().flatten(1), first.weight[:, : self.size], first.bias)
        features = (seen[:, None] + rows if action is None else seen + rows[action]).relu()
        for layer in list(self.layers)[1:]:
            features = layer(features).relu()
        mean, log_variance, reward, logit = self.output(features).split([self.size, self.size, 1, 1], dim=-1)
        deviation = (0.5 * log_variance.clamp(*LOG_VARIANCE_RANGE)).exp()
        return mean, deviation, reward.squeeze(-1), logit.squeeze(-1)


class SADQDQN(DQN):
    """Stable-Baselines3's DQN with SADQ's target; whatever DQN takes may be given by name, and works as there.

        >>> model = SADQDQN("MlpPolicy", "CartPole-v1", alpha=0.2).learn(50_000)

    `alpha` is the weight of the greedy value; 1 is DQN itself. It is raised where values would fall by more than
    `allowance` value gaps (None: never), and with gate "batch" where the model errs. `rollout` is a sampled successor (the
    paper) or its mean. `continuation` makes the score count whether the episode goes on. The model makes `model_updates`
    updates before every gradient step. Observations are arrays of numbers; images and dictionaries are refused.
    """

    def __init__(
        self,
        policy: Any,
        env: Any,
        alpha: float = 0.2,
        gate: Literal["fixed", "batch"] = "fixed",
        allowance: float | None = 2.0,
        rollout: Literal["sample", "mean"] = "sample",
        continuation: bool = True,
        model_hidden: Sequence[int] = (256, 256),
        model_learning_rate: float = 1e-3,
        model_batch_size: int = 256,
        model_updates: int = 1,
        **base: Any,
    ):
        if not isinstance(alpha, int | float) or not 0 <= alpha <= 1:
            raise SadqError(f"alpha = {alpha!r}: expected a number from 0 to 1.")
        if allowance is not None and not (isinstance(allowance, int | float) and allowance > 0):
            raise SadqError(f"allowance = {allowance!r}: expected a positive number, or None.")
        for name, given, known in (("gate", gate, ("fixed", "batch")), ("rollout", rollout, ("sample", "mean"))):
            if given not in known:
                raise SadqError(f"{name} = {given!r}: expected {known[0]!r} or {known[1]!r}.")
        for name, count in (("model_batch_size", model_batch_size), ("model_updates", model_updates)):
            if not isinstance(count, int) or count < 1:
                raise SadqError(f"{name} = {count!r}: expected a whole number of at least 1.")
        if not model_hidden or not all(isinstance(size, int) and size > 0 for size in model_hidden):
            raise SadqError(f"model_hidden = {model_hidden!r}: expected the sizes of at least one layer.")
        self.alpha, self.gate, self.rollout, self.continuation = float(alpha), gate, rollout, continuation
        self.allowance = allowance
        self.model_hidden, self.model_learning_rate = tuple(model_hidden), model_learning_rate
        self.model_batch_size, self.model_updates = model_batch_size, model_updates
        super().__init__(policy, env, **base)

    def _setup_model(self) -> None:
        super()._setup_model()
        space = self.observation_space
        if not isinstance(space, spaces.Box) or is_image_space(space):
            raise SadqError(f"SADQDQN was given observations {space}: expected a Box of numbers that is no image.")
        if self.optimize_memory_usage:
            raise SadqError("optimize_memory_usage = True stores steps that a model cannot learn from: leave it off.")
        self._random = np.random.default_rng(None if self.seed is None else [self.seed, STREAM])
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(self._random.integers(2**31)))
            model = OneStepModel(space.shape, int(self.action_space.n), self.model_hidden, self.model_learning_rate)
        self.dynamics = model.to(self.device)

    def _noise(self, like: Tensor) -> Tensor:
        drawn = self._random.standard_normal(like.shape, dtype=np.float32)
        return torch.as_tensor(drawn, dtype=like.dtype, device=like.device)

    def _one_step_batch(self) -> Any:
        """Transitions for the model, drawn apart; single steps also where the values learn from several."""
        buffer: Any = self.replay_buffer
        indices = self._random.integers(0, buffer.size(), size=self.model_batch_size)
        before = np.random.get_state()  # the buffer draws an environment for each of them, from the stream of the base
        np.random.seed(self._random.integers(2**32))
        try:
            return ReplayBuffer._get_samples(buffer, indices, self._vec_normalize_env)
        finally:
            np.random.set_state(before)

    def _estimates(self, observation: Tensor, action: Tensor | None = None) -> Tensor:
        """Bellman estimates by the model: [B] of `action`, or of every action, [B, A]: the scores."""
        mean, deviation, reward, logit = self.dynamics(observation, action)
        successor = mean + deviation * self._noise(mean) if self.rollout == "sample" else mean
        values = self.q_net_target(successor.reshape(-1, *self.dynamics.shape))
        goes_on = logit.sigmoid() if self.continuation else torch.ones_like(logit)
        return scores_of(reward, goes_on, values.reshape(*reward.shape, -1), self.gamma)

    def _update_model(self, batch: Any) -> float:
        """One step down the squared error of a sampled successor and of the reward (and of whether it goes on)."""
        mean, deviation, reward, logit = self.dynamics(batch.observations, batch.actions.long().squeeze(1))
        truth = batch.next_observations.float().flatten(1)
        loss = functional.mse_loss(mean + deviation * self._noise(mean), truth)
        loss = loss + functional.mse_loss(reward, batch.rewards.squeeze(1))
        if self.continuation:
            loss = loss + functional.binary_cross_entropy_with_logits(logit, 1 - batch.dones.squeeze(1))
        self.dynamics.optimizer.zero_grad()
        loss.backward()
        self.dynamics.optimizer.step()
        return loss.item()

    def _targets(self, batch: Any, known: Any) -> tuple[Tensor, Tensor]:
        """Targets [B, 1] of a batch, and the weight that the greedy value got; `known` are single steps to judge by."""
        target_q = self.q_net_target(batch.next_observations)
        scores, alpha = self._estimates(batch.next_observations), torch.as_tensor(self.alpha)
        if self.gate == "batch":
            future = (1 - known.dones) * self.q_net_target(known.next_observations).max(dim=1, keepdim=True).values
            observed = (known.rewards + self.gamma * future).squeeze(1)
            error = self._estimates(known.observations, known.actions.long().squeeze(1)) - observed
            alpha = reliable_alpha(self.alpha, target_q, error)
        discounts = (1 - batch.dones) * (self.gamma if batch.discounts is None else batch.discounts)
        if self.allowance is not None:
            alpha = within_allowance(alpha, target_q, scores, discounts.squeeze(1), self.allowance)
        worth = mixed_values(target_q, scores, alpha).unsqueeze(1)
        return batch.rewards + discounts * worth, alpha

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """As DQN's, but for the target; the model learns before every gradient step."""
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        losses, model_losses, alphas = [], [], []
        for _ in range(gradient_steps):
            batch = self.replay_buffer.sample(batch_size, env=self._vec_normalize_env)
            for _ in range(self.model_updates):
                apart = self._one_step_batch()
                model_losses.append(self._update_model(apart))
            with torch.no_grad():
                targets, alpha = self._targets(batch, batch if batch.discounts is None else apart)
            values = self.q_net(batch.observations).gather(1, batch.actions.long())
            loss = functional.smooth_l1_loss(values, targets)
            self.policy.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
            self.policy.optimizer.step()
            losses.append(loss.item())
            alphas.append(float(alpha))
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        for name, numbers in (("loss", losses), ("model_loss", model_losses), ("alpha", alphas)):
            self.logger.record(f"train/{name}", np.mean(numbers))

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        names, variables = super()._get_torch_save_params()
        return [*names, "dynamics", "dynamics.optimizer"], variables
