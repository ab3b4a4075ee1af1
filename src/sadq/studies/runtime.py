"""How long a run takes: the measured one, and longer ones from the rate at which it went on once it was steady."""

from typing import Any

import jax
import jax.numpy as jnp

from sadq.experiment.build import make_learner, resolve
from sadq.experiment.config import Config
from sadq.studies.artefacts import PAPER_MINUTES
from sadq.studies.judged import Outcome

SHORT, LONG = 100_000, 10_000_000


def measure(outcome: Outcome, quick: bool) -> dict[str, Any]:
    """Minutes of 100K steps, measured where so many were made, and of 10M, always extrapolated; the paper's beside them."""
    result, steps = outcome.result, outcome.result["steps"]
    rate = steady_rate(outcome)
    whole = steps >= SHORT
    short = result["wall_seconds"] if whole else _extrapolated(result, rate, SHORT)
    paper = PAPER_MINUTES.get(outcome.arm.label, (None, None))
    return {
        "arm": outcome.arm.label,
        "members": len(outcome.seeds),
        "measured_steps": steps,
        "measured_seconds": result["wall_seconds"],
        "compile_seconds": result["compile_seconds"],
        "steady_steps_per_second": round(rate, 2),
        "minutes_100k": round(short / 60, 2),
        "minutes_100k_is": "measured, with evaluations" if whole else f"extrapolated from {steps:,} steps",
        "minutes_10m": round(_extrapolated(result, rate, LONG) / 60, 1),
        "minutes_10m_is": f"extrapolated from the steady rate of {steps:,} steps, without evaluations",
        "networks": "cut down for the quick version" if quick else "the paper's",
        "paper_minutes_100k": paper[0],
        "paper_minutes_10m": paper[1],
    }


def model_parameters(config: Config) -> int | None:
    """Numbers that SADQ's model learns, counted without making any; None for a plain agent."""
    guidance = make_learner(config, resolve(config.environment, config.settings)).guidance
    if guidance is None:
        return None
    leaves = jax.tree.leaves(jax.eval_shape(guidance.make_model, jax.random.key(0)))
    return sum(leaf.size for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.inexact))


def steady_rate(outcome: Outcome) -> float:
    """Env steps a second of all members over the second half of the run, evaluations and compilation left out."""
    rows = [row for row in outcome.run.metrics if row["member"] == 0]
    late = [row for row in rows if row["step"] > rows[-1]["step"] / 2]
    # Chunks are equally long, so the mean rate is that of the summed times.
    return len(late) / sum(1 / row["steps_per_second"] for row in late)


def _extrapolated(result: dict[str, Any], rate: float, steps: int) -> float:
    return result["compile_seconds"] + steps * len(result["members"]) / rate
