"""The paper's ten artefacts as data: which arms on which presets, and how a quick version is cut down."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from sadq.dynamics import RSSM
from sadq.envs.atari.games import GAMES
from sadq.envs.atari.spec import PREFIX
from sadq.errors import SadqError
from sadq.experiment.config import Config
from sadq.experiment.presets import PAPER_SEEDS, preset
from sadq.networks import Implicit, Nature, Quantile

SADQ = "dueling+sadq"
BASELINES = ("dqn", "double", "dueling", "bdqn", "sunrise", "c51", "rainbow", "qrdqn", "fqf", "teg")
FREQUENCIES = tuple(f"{SADQ}:guidance.updates_per_collect={count}" for count in (1, 5, 10, 20))
PACINGS = tuple(f"qrdqn+sadq:pacing.fraction={fraction}" for fraction in (0.4, 0.2))


def _with_twins(*agents: str) -> tuple[str, ...]:
    return tuple(arm for agent in agents for arm in (agent, f"{agent}+sadq"))


@dataclass(frozen=True)
class Artefact:
    """A figure or table of the paper."""

    shows: str
    presets: tuple[str, ...] = ()  # or Atari environments
    arms: tuple[str, ...] = ()
    against: str | None = None  # the arm that all others are compared with; None: each guided one with its twin
    metrics: tuple[str, ...] = ()  # recorded while learning, whose curves are part of the result
    quick_presets: tuple[str, ...] = ()  # of them, those that the quick version keeps; none: all
    seeds: tuple[int, ...] = PAPER_SEEDS


VECTORS = ("acrobot", "bitflip", "lunarlander")
MODEL_LOSS = ("model_state_loss", "model_reward_loss")
ARTEFACTS = {
    "motivation": Artefact(
        "DQN's return, and below it Delta-Q = max Q - min Q with its peak",
        ("acrobot", "cartpole"),
        ("dqn",),
        metrics=("delta_q",),
    ),
    "conventional": Artefact(
        "SADQ against ten value-based agents, and its model's loss",
        VECTORS,
        (SADQ, *BASELINES),
        SADQ,
        metrics=("delta_q", *MODEL_LOSS),
    ),
    "model-frequency": Artefact(
        "CartPole with 1, 5, 10 and 20 model updates a collect, against C51 and DQN; model loss",
        ("cartpole",),
        (*FREQUENCIES, "c51", "dqn"),
        FREQUENCIES[0],
        metrics=MODEL_LOSS,
    ),
    "cartpole": Artefact(
        "Every method on CartPole, where the paper's SADQ loses",
        ("cartpole",),
        (SADQ, *BASELINES),
        SADQ,
        metrics=("delta_q", *MODEL_LOSS),
    ),
    "real-world": Artefact(
        "SADQ against Dueling, BDQN and Rainbow on traffic signals and a cloud's servers",
        ("cityflow", "ocloud"),
        (SADQ, "dueling", "bdqn", "rainbow"),
        SADQ,
        metrics=MODEL_LOSS,
    ),
    "controlled": Artefact(
        "DQN, Double, Dueling and SUNRISE, each with and without SADQ",
        VECTORS,
        _with_twins("dqn", "double", "dueling", "sunrise"),
        metrics=("delta_q", *MODEL_LOSS),
    ),
    "atari100k": Artefact(
        "QR-DQN, IQN and CoAct, each with and without SADQ, per game",
        tuple(f"{PREFIX}{game}" for game in GAMES),
        _with_twins("qrdqn", "iqn", "coact"),
        metrics=MODEL_LOSS,
        quick_presets=(f"{PREFIX}Breakout",),
    ),
    "alpha": Artefact(
        "QR-DQN with SADQ at five weights of its base; the model's reconstruction loss",
        tuple(f"{PREFIX}{game}" for game in ("Alien", "Breakout", "Qbert")),
        tuple(f"qrdqn+sadq@{alpha:g}" for alpha in (1.0, 0.8, 0.5, 0.2, 0.0)),
        "qrdqn+sadq@1",
        metrics=MODEL_LOSS,
        quick_presets=(f"{PREFIX}Breakout",),
    ),
    "runtime": Artefact(
        "Minutes of a run of QR-DQN, and of SADQ at two shares of model updates, for 100K and 10M steps",
        (f"{PREFIX}Breakout",),
        ("qrdqn", *PACINGS),
        "qrdqn",
        seeds=(0,),
    ),
    "theory": Artefact("Theorem 1 on random tabular MDPs, and where its proof says too much"),
}
"""By the names that `sadq reproduce` takes."""

PAPER_MINUTES = {"qrdqn": (4, 434), PACINGS[0]: (6, 598), PACINGS[1]: (5, 522)}
"""The paper's runtime table: minutes of 100K and of 10M steps on its machine, an RTX 5090."""

QUICK_SEEDS = 2
QUICK_STEPS = {"cityflow": 1000, "ocloud": 2000, "lunarlander": 3200}


def find(name: str) -> Artefact:
    if name not in ARTEFACTS:
        raise SadqError(f"Unknown artefact {name!r}: expected one of {', '.join(ARTEFACTS)}.")
    return ARTEFACTS[name]


def shared_config(name: str, quick: bool, seeds: tuple[int, ...]) -> Config:
    """What all arms share on a preset of the paper, or on its cut-down version."""
    if not quick:
        return dataclasses.replace(preset(name), seeds=seeds)
    if name.startswith(PREFIX):
        return _tiny_atari(name, seeds)
    short: dict[str, Any] = {"steps": QUICK_STEPS.get(name, 4800), "evaluations": 8, "evaluation_episodes": 4}
    return dataclasses.replace(preset(name), seeds=seeds, **short)


def _tiny_atari(name: str, seeds: tuple[int, ...]) -> Config:
    """Networks that a laptop moves, and a few hundred steps: whether it runs, not what it learns."""
    base = preset(name)
    small = RSSM(deterministic=16, variables=4, classes=4, hidden=16, channels=(4, 4, 4), decoder=(4, 4, 4))
    return dataclasses.replace(
        base,
        seeds=seeds,
        steps=320,
        learning_starts=80,
        buffer_size=320,
        batch_size=4,
        target_update_interval=20,
        encoder=Nature(channels=(4, 4, 4), hidden=16),
        model=small,
        guidance=dataclasses.replace(base.guidance, batch_size=4),
        adjusted=(*base.adjusted, Quantile(quantiles=5), Implicit(levels=4, cosines=8)),
        evaluations=2,
        evaluation_episodes=2,
        environment_settings=("max_frames=400",),
    )
