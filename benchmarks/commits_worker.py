"""What `commits.py` runs in a tree's own process: a training that waits for its turn after every chunk."""

import argparse
import inspect
import json
import os
import sys
import time
from typing import Any

import gymnasium
import numpy as np

PRESET, ENVIRONMENT = "acrobot", "Acrobot-v1"


class Masked(gymnasium.Env):
    """A walk on a ring whose legal moves change with the place: no environment of the library's own has masks."""

    PLACES, MOVES = 12, 4
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(MOVES)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.place, self.elapsed = int(self.np_random.integers(self.PLACES)), 0
        return self._seen()

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        if not self._legal()[action]:
            raise ValueError(f"action {action} is illegal at place {self.place}")
        self.place, self.elapsed = (self.place + int(action) - 1) % self.PLACES, self.elapsed + 1
        observation, info = self._seen()
        return observation, float(self.place == 0), self.place == 6, self.elapsed >= 40, info

    def _legal(self) -> np.ndarray:
        return np.arange(self.MOVES) != self.place % self.MOVES

    def _seen(self) -> tuple[np.ndarray, dict]:
        angle = 2 * np.pi * self.place / self.PLACES
        return np.array([np.cos(angle), np.sin(angle)], np.float32), {"action_mask": self._legal()}


# `sadq train commits_worker:Masked-v0` imports this file and finds it.
gymnasium.register("Masked-v0", entry_point="commits_worker:Masked")


def describe() -> dict[str, Any]:
    """Which package is found here, and the agents it has."""
    import jax

    import sadq
    from sadq.agents import AGENTS

    return {"file": sadq.__file__, "agents": list(AGENTS), "jax": jax.__version__}


def make(variant: str, **fields: Any) -> Any:
    """The variant by this tree's grammar of agents."""
    from sadq import SADQ

    # A number as the default tells the old grammar, in which alpha makes the guided twin of a base agent.
    default = inspect.signature(SADQ).parameters["alpha"].default
    grammar: dict[str, Any] = {"agent": variant}
    if isinstance(default, float):
        base = variant.removesuffix("+sadq")
        grammar = {"agent": base, "alpha": 0.2 if variant != base else None}
    model = SADQ(ENVIRONMENT, seeds=1, preset=PRESET, **grammar, **fields)
    if model.config.agent != variant:
        raise ValueError(f"this tree made {model.config.agent} of {variant}")
    return model


def train(variant: str, collects: int, chunks: int) -> None:
    """Chunks of `collects` collects each, one for every line "go"; any other line, or none, ends it."""
    # Whatever is printed elsewhere must not come between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def answer(content: dict[str, Any]) -> None:
        print(json.dumps(content), file=answers, flush=True)

    # The library pauses after 25 collects at most, and at evaluations: shorter chunks need one after each.
    planned = chunks + 1  # the last one, which evaluates, is not reached
    model = make(variant, evaluations=1 if collects == 25 else planned, evaluation_episodes=1)
    step, cpu = 0, 0.0

    def turn() -> bool:
        nonlocal cpu
        told = sys.stdin.readline().strip()
        cpu = time.process_time()
        return told == "go"

    def callback(progress: Any) -> bool:
        nonlocal step
        made, step = progress.step - step, progress.step
        answer(
            {
                "steps": made,
                "seconds": made / progress.steps_per_second,
                "cpu_seconds": time.process_time() - cpu,
            }
        )
        return turn()

    answer({"alpha": model.config.alpha if "+" in variant else None})
    if turn():
        model.learn(planned * collects * model.config.collect, callback=callback)
        answer({"compile_seconds": model.result["compile_seconds"]})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train", metavar="VARIANT", help="train it; without this, describe the tree")
    parser.add_argument("--collects", type=int, default=25, help="in a chunk")
    parser.add_argument("--chunks", type=int, default=9, help="at most")
    options = parser.parse_args()
    if options.train:
        train(options.train, options.collects, options.chunks)
    else:
        print(json.dumps(describe()))


if __name__ == "__main__":
    main()
