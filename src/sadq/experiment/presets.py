"""The paper's configuration tables as values, a default for any environment, and quick variants to look at.

The six presets of the paper follow its Table "Training Configurations" to the number. Where it is silent they follow
the library it used: eight environments (ten on O-Cloud and CityFlow), a time limit that counts as terminal, plain squared
error, no clipping. The target interval is read as env steps.

Settings of single agents. C51's supports: the range of discounted returns on Acrobot, BitFlip and CartPole, DI-engine's on
LunarLander, and on O-Cloud and CityFlow the 0.1% and 99.9% quantiles of the fixed policies' discounted returns
(`value_support` in `envs/fixed_policies.py`; 200 and 40 episodes a policy). 51 atoms (Bellemare et al., 2017), 200 quantiles
(Dabney et al., 2018a), 32 levels and 64 cosines (Dabney et al., 2018b; Yang et al., 2019). FQF's second optimiser: RMSprop
(0.95, 1e-5; Yang et al., 2019) at DI-engine's rate for CartPole, 1e-4, since the 2.5e-9 of the original is tuned to Atari.
Rainbow: sigma_0 0.5, n = 3, priorities 0.6, 0.4 -> 1 (Hessel et al., 2018). SUNRISE: T 10, lambda 1, beta 1 (Lee et al.,
2021).
"""

import dataclasses
import difflib
from typing import Any

from sadq.agents import SUFFIX, parse_agent
from sadq.core.gates import BatchReliability
from sadq.dynamics.gaussian import Gaussian
from sadq.envs.registry import list_environments
from sadq.errors import SadqError
from sadq.experiment.config import Config, Epsilon, GuidanceSettings
from sadq.networks import Bayesian, Categorical, Dense, Scalar

PAPER_SEEDS = (0, 1, 2, 3, 4)


def _paper(name: str, environment: str, alpha: float = 0.2, **values: Any) -> Config:
    return Config(
        preset=name,
        environment=environment,
        agent="dueling+sadq",
        seeds=PAPER_SEEDS,
        alpha=(alpha,),
        time_limit_is_terminal=True,
        **values,
    )


def _exponential(start: float, end: float, decay: float) -> Epsilon:
    return Epsilon((start,), (end,), (decay,), "exponential")


QUICK_FIELDS = (
    "learning_rate",
    "learning_rate_schedule",
    "collect",
    "updates_per_collect",
    "n_step",
    "target_update_interval",
    "soft_target_rate",
    "max_gradient_norm",
    "epsilon",
)


def _quick(name: str, base: Config, **values: Any) -> Config:
    """A short run of a paper preset's networks with the default's way of learning, which shows results sooner."""
    sound = {field: getattr(DEFAULT, field) for field in QUICK_FIELDS}
    short: dict[str, Any] = {"seeds": (0, 1, 2), "time_limit_is_terminal": False, "evaluations": 20}
    sound["adjusted"] = DEFAULT.adjusted + base.adjusted
    return dataclasses.replace(base, preset=name, **(sound | short | values))


DEFAULT = Config(
    alpha=(0.2,),
    agent="dueling+sadq",
    updates_per_collect=8,
    learning_rate_schedule="linear",
    n_step=3,
    target_update_interval=None,
    soft_target_rate=0.01,
    max_gradient_norm=10.0,
    model=Gaussian(continuation=True),
    gate=BatchReliability(),
    adjusted=(Scalar(huber=1.0), Bayesian(huber=1.0)),
)

ACROBOT = _paper(
    "acrobot",
    "Acrobot-v1",
    discount=(0.99,),
    encoder=Dense((256, 256)),
    batch_size=128,
    learning_rate=(1e-4,),
    updates_per_collect=10,
    target_update_interval=2400,
    steps=960_000,
    buffer_size=100_000,
    collect=96,
    epsilon=_exponential(1.0, 0.05, 250_000),
    model=Gaussian(hidden=(256, 256)),
    guidance=GuidanceSettings(batch_size=256, learning_rate=4e-5),
    adjusted=(Categorical(support=(-100.0, 0.0)),),
    evaluation_episodes=8,
)

LUNARLANDER = _paper(
    "lunarlander",
    "LunarLander-v3",
    discount=(0.99,),
    encoder=Dense((512, 64)),
    batch_size=64,
    learning_rate=(1e-3,),
    updates_per_collect=10,
    target_update_interval=640,
    steps=128_000,
    buffer_size=100_000,
    collect=64,
    epsilon=_exponential(0.95, 0.1, 50_000),
    model=Gaussian(hidden=(256, 256)),
    guidance=GuidanceSettings(batch_size=128, learning_rate=4e-5),
    adjusted=(Categorical(support=(-30.0, 30.0)),),
    evaluation_episodes=8,
)

CARTPOLE = _paper(
    "cartpole",
    "CartPole-v0",
    discount=(0.97,),
    encoder=Dense((128, 128, 64)),
    batch_size=64,
    learning_rate=(1e-3,),
    updates_per_collect=1,
    target_update_interval=8000,
    steps=160_000,
    buffer_size=100_000,
    collect=80,
    epsilon=_exponential(0.95, 0.1, 10_000),
    model=Gaussian(hidden=(256, 256)),
    guidance=GuidanceSettings(batch_size=128, learning_rate=4e-5),
    adjusted=(Categorical(support=(0.0, 35.0)),),
    evaluation_episodes=5,
)

BITFLIP = _paper(
    "bitflip",
    "BitFlip-8",
    discount=(0.99,),
    encoder=Dense((128, 128, 64)),
    batch_size=128,
    learning_rate=(5e-4,),
    updates_per_collect=10,
    target_update_interval=4800,
    steps=960_000,
    buffer_size=4000,
    collect=96,
    epsilon=_exponential(0.2, 0.2, 100),
    model=Gaussian(hidden=(256, 256)),
    guidance=GuidanceSettings(batch_size=256, learning_rate=4e-4),
    adjusted=(Categorical(support=(0.0, 1.0)),),
    evaluation_episodes=8,
)

OCLOUD = _paper(
    "ocloud",
    "OCloud",
    alpha=0.5,
    discount=(0.8,),
    encoder=Dense((64, 64)),
    batch_size=32,
    learning_rate=(5e-5,),
    updates_per_collect=1,
    target_update_interval=2000,
    steps=500_000,
    buffer_size=100_000,
    environments=10,
    collect=100,
    epsilon=_exponential(0.05, 0.05, 10_000),
    model=Gaussian(hidden=(64, 64), state_scale=50.0),
    guidance=GuidanceSettings(batch_size=64, learning_rate=5e-4),
    adjusted=(Categorical(support=(-4.77, -0.864)),),
    evaluation_episodes=8,
)

CITYFLOW = _paper(
    "cityflow",
    "CityFlow",
    alpha=0.5,
    discount=(0.99,),
    encoder=Dense((256, 256)),
    batch_size=64,
    learning_rate=(5e-5,),
    updates_per_collect=1,
    target_update_interval=2000,
    steps=400_000,
    buffer_size=100_000,
    environments=10,
    collect=100,
    epsilon=_exponential(0.05, 0.05, 10_000),
    model=Gaussian(hidden=(256, 256), state_scale=15.0),
    guidance=GuidanceSettings(batch_size=128, learning_rate=5e-4, action_chunk=64),
    adjusted=(Categorical(support=(-733.0, 123.0)),),
    evaluation_episodes=8,
)

PRESETS: dict[str, Config] = {
    "default": DEFAULT,
    "acrobot": ACROBOT,
    "bitflip": BITFLIP,
    "cartpole": CARTPOLE,
    "cityflow": CITYFLOW,
    "lunarlander": LUNARLANDER,
    "ocloud": OCLOUD,
    "acrobot-quick": _quick("acrobot-quick", ACROBOT, steps=60_000),
    "bitflip-quick": _quick(
        "bitflip-quick",
        BITFLIP,
        environment="BitFlip-6",
        steps=40_000,
        seeds=PAPER_SEEDS,
        learning_rate=BITFLIP.learning_rate,
        epsilon=BITFLIP.epsilon,
        n_step=1,
        updates_per_collect=16,
        adjusted=(Scalar(huber=1.0), Bayesian(huber=1.0, refit_interval=500), *BITFLIP.adjusted),
    ),
    "cartpole-quick": _quick("cartpole-quick", CARTPOLE, steps=40_000),
    "lunarlander-quick": _quick("lunarlander-quick", LUNARLANDER, steps=50_000),
}


RETURN_RANGES = {
    "Acrobot-v1": (-100.0, 0.0),
    "BitFlip": (0.0, 1.0),
    "CartPole-v0": (0.0, 100.0),
    "CartPole-v1": (0.0, 100.0),
    "LunarLander-v3": (-300.0, 300.0),
}
"""Discounted returns at gamma 0.99, for categorical heads without a support of their own."""


def return_range(environment: str) -> tuple[float, float]:
    """The smallest and the largest return that a categorical head should represent."""
    return RETURN_RANGES.get("BitFlip" if environment.startswith("BitFlip") else environment, (-100.0, 100.0))


def preset(name: str, agent: str | None = None, **fields: Any) -> Config:
    """The config of a preset, or the default one on a Gymnasium id or registered environment, for an agent."""
    config = PRESETS[name] if name in PRESETS else dataclasses.replace(DEFAULT, environment=_environment(name))
    return dataclasses.replace(config, **(agent_fields(config, agent) | fields))


def agent_fields(config: Config, agent: str | None) -> dict[str, Any]:
    """What an agent changes in a config; alpha goes with guided ones."""
    if agent is None:
        return {}
    base, guided = parse_agent(agent)
    return {"agent": f"{base}{SUFFIX}" if guided else base, "alpha": config.alpha if guided else None}


def _environment(name: str) -> str:
    """`name` if an environment answers to it; else a sentence that offers what is near."""
    known = list_environments(host=True)
    # A colon stands for "gymnasium:ID" or Gymnasium's own "module:ID", whose environments are known only after import.
    if name in known or ":" in name or name.startswith("BitFlip-"):
        return name
    near = difflib.get_close_matches(name, [*PRESETS, *known], n=3, cutoff=0.5)
    offer = f"did you mean {' or '.join(near)}?" if near else f"presets are {', '.join(PRESETS)}."
    raise SadqError(f"Unknown preset or environment {name!r}: expected a preset or a Gymnasium id; {offer}")
