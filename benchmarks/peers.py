"""One measurement of a peer's DQN or QR-DQN in a process of its own, run by .venv-peers; prints one line of JSON."""

import argparse
import importlib
import json
import platform
import time
from importlib.metadata import version
from typing import Any

MODULES = {"sb3": "stable_baselines3", "contrib": "sb3_contrib", "sbx": "sbx"}
PACKAGES = {
    "sb3": ["stable-baselines3", "torch", "gymnasium"],
    "contrib": ["sb3-contrib", "stable-baselines3", "torch", "gymnasium"],
    "sbx": ["sbx-rl", "jax", "flax", "gymnasium"],
}
ENVIRONMENTS = 8
LAYERS = [256, 256, 256]
QUANTILES = 200


def describe(peer: str) -> dict[str, Any]:
    """The versions of a peer that can be imported; an exception otherwise."""
    importlib.import_module(MODULES[peer])
    return {"python": platform.python_version()} | {name: version(name) for name in PACKAGES[peer]}


def speed(peer: str, warmup: int, window: int) -> dict[str, Any]:
    """Env steps per second over `window` steps after `warmup`, with the work of our Acrobot preset."""
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env

    class Stopwatch(BaseCallback):
        """Notes the time at both ends of the window: each falls between a collect and its updates."""

        began = ended = 0.0

        def _on_step(self) -> bool:
            if self.num_timesteps == warmup:
                self.began = time.perf_counter()
            if self.num_timesteps == warmup + window:
                self.ended = time.perf_counter()
            return self.num_timesteps < warmup + window

    kind = _three_layer_sbx() if peer == "sbx" else _from_stable_baselines(peer)
    policy = {"net_arch": LAYERS} | ({"n_quantiles": QUANTILES} if peer == "contrib" else {})
    total = warmup + window
    model = kind(
        "MlpPolicy",
        make_vec_env("Acrobot-v1", n_envs=ENVIRONMENTS, seed=0),
        policy_kwargs=policy,
        learning_rate=1e-4,
        buffer_size=100_000,
        learning_starts=96,
        batch_size=128,
        gamma=0.99,
        train_freq=12,
        gradient_steps=10,
        target_update_interval=2400,
        exploration_initial_eps=1.0,
        exploration_final_eps=0.05,
        exploration_fraction=warmup / total,
        seed=0,
        device="cpu",
    )
    stopwatch = Stopwatch()
    model.learn(total, callback=stopwatch)
    seconds = stopwatch.ended - stopwatch.began
    return {
        "steps_per_second": window / seconds,
        "seconds": seconds,
        "parameters": _parameter_count(peer, model),
        "updates": model._n_updates,
    }


def _from_stable_baselines(peer: str) -> Any:
    module = importlib.import_module(MODULES[peer])
    return module.QRDQN if peer == "contrib" else module.DQN


def _three_layer_sbx() -> Any:
    """SBX's DQN with all of LAYERS: its own network reads the first size only, and always has two hidden layers."""
    import flax.linen as nn
    from sbx import DQN
    from sbx.dqn import policies

    class QNetwork(nn.Module):
        n_actions: int
        n_units: int
        activation_fn: Any = nn.relu

        @nn.compact
        def __call__(self, inputs: Any) -> Any:
            features = policies.Flatten()(inputs)
            for size in LAYERS:
                features = self.activation_fn(nn.Dense(size)(features))
            return nn.Dense(self.n_actions)(features)

    policies.QNetwork = QNetwork
    return DQN


def _parameter_count(peer: str, model: Any) -> int:
    """Of the online network, to show that all libraries train the same layers."""
    if peer != "sbx":
        network = model.quantile_net if peer == "contrib" else model.q_net
        return sum(parameter.numel() for parameter in network.parameters())
    import jax

    return sum(leaf.size for leaf in jax.tree.leaves(model.policy.qf_state.params))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["speed", "describe"])
    parser.add_argument("peer", choices=list(MODULES))
    parser.add_argument("--warmup", type=int, default=9_600, help="env steps before the timed window")
    parser.add_argument("--window", type=int, default=48_000, help="env steps of the timed window")
    parser.add_argument("--threads", type=int, help="threads of PyTorch; its own choice without this")
    options = parser.parse_args()
    if options.threads is not None:
        import torch

        torch.set_num_threads(options.threads)
    measure = {"describe": describe, "speed": lambda peer: speed(peer, options.warmup, options.window)}
    print(json.dumps(measure[options.what](options.peer)))


if __name__ == "__main__":
    main()
