"""A film of a member at play: what a Gymnasium environment renders, or an Atari game with what networks and model say."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np

from sadq import keys
from sadq.core.bootstrap import best_action
from sadq.envs import registry
from sadq.envs.atari.foresight import Foresight
from sadq.envs.atari.spec import AtariSpec
from sadq.envs.base import Environment
from sadq.envs.contract import HostSpec
from sadq.envs.filming import GIF, HostPolicy, animation, check_renders, frames_of
from sadq.errors import SadqError
from sadq.experiment import storage
from sadq.experiment.arguments import check_writable
from sadq.exploration.situation import settled_values
from sadq.learning.comparing import Comparison
from sadq.learning.learner import Learner
from sadq.learning.state import Hyper, LearnerState
from sadq.networks.network import first_network
from sadq.types import Array, PyTree

MAX_STEPS = 600
"""Of a game that are drawn: 40 seconds."""


def check_video(environment: Any, path: Path) -> None:
    """Refuse, before anything is played, what could not be drawn or written afterwards."""
    if isinstance(environment, AtariSpec):
        from sadq.envs.atari.drawing import ENDINGS

        endings: Sequence[str] = ENDINGS
    elif not isinstance(environment, Environment):
        check_renders(environment)
        endings = (GIF,)
    elif type(environment).draw is Environment.draw:
        twin = rendered_twin(environment)
        if twin is None:
            raise SadqError(f"environment {environment.name} cannot be drawn: leave video out.")
        check_renders(twin)
        endings = (GIF,)
    else:
        endings = environment.drawings
    if endings and path.suffix not in endings:
        raise SadqError(f"cannot draw {path}, expected a name that ends in {' or '.join(endings)}: choose one.")
    check_writable(path, f"cannot draw {path}", "give another name")
    if path.is_dir():
        raise SadqError(f"cannot draw {path}, which is a folder: give the name of a file in it.")


def rendered_twin(environment: Environment) -> HostSpec | None:
    """Gymnasium's own environment of that name, which shows and takes the same and can be rendered."""
    if environment.name not in gymnasium.registry:
        return None
    twin = registry.make(environment.name, host=True)
    assert isinstance(twin, HostSpec)
    same = twin.observation_shape == environment.observation_shape and twin.action_count == environment.action_count
    return twin if same else None


def film_rendered(spec: HostSpec, seed: int, number: int, policy: HostPolicy, path: Path) -> Path:
    """What a Gymnasium environment renders of an episode, or of the beginning of a long one, as an animation."""
    storage.write_atomically(path, animation(*frames_of(spec, seed, number, policy, MAX_STEPS)))
    return path


class Sight:
    """What one member makes of an observation, compiled: its greedy action, and what SADQ compares there."""

    def __init__(self, learner: Learner, hyper: Hyper, state: LearnerState):
        legal = learner.legal_for(hyper)
        owned = legal(None)
        target, guidance = first_network(state.target), learner.guidance

        def plain(observation: Array) -> PyTree:
            values = settled_values(state.online.parameters, observation[None], None if owned is None else owned[None])
            return best_action(values[0], owned), values[0]

        def guided(observation: Array, key: Array) -> PyTree:
            assert guidance is not None and state.model is not None
            comparison = Comparison(guidance, target, hyper, legal, key)
            model = state.model.parameters
            compared = comparison(model, observation[None])
            expected = comparison.predictions(model, observation[None]).next_input
            frames = expected[0, :, -1] if model.space == "observation" else None
            return plain(observation)[0], jax.tree.map(lambda leaf: leaf[0], compared), frames

        self._look: Callable = jax.jit(plain if guidance is None else guided)
        self._key, self._guided = keys.purpose(hyper.stream("evaluation"), "video"), guidance is not None

    def __call__(self, observation: np.ndarray, step: int) -> tuple[int, np.ndarray, int, Any]:
        """(the action taken, the values of all, the one that they prefer, what the model says)."""
        from sadq.envs.atari.drawing import Advised

        if not self._guided:
            taken, values = self._look(observation)
            return int(taken), np.asarray(values), int(taken), None
        taken, compared, frames = self._look(observation, keys.at(self._key, step))
        advised = Advised(
            np.asarray(compared.scores), int(compared.advised), None if frames is None else np.asarray(frames)
        )
        return int(taken), np.asarray(compared.values), int(compared.greedy), advised


def film(
    spec: AtariSpec, game: str, title: str, learner: Learner, hyper: Hyper, state: LearnerState, number: int, path: Path
) -> Path:
    """Draw game `number` of a member, or the beginning of a long one, into a file; `hyper` and `state` are its own."""
    from sadq.envs.atari.drawing import Moment, draw

    sight = Sight(learner, hyper, state)
    play = Foresight(spec, game, int(hyper.seed), 1, "evaluate", single=True)
    try:
        play.reset(number)
        cabinet, count = play.cabinets[0], play.actions
        moments: list[Moment] = []
        while not cabinet.over and len(moments) < MAX_STEPS:
            emulator = play.emulator(0)
            taken, values, greedy, advised = sight(cabinet.stack, len(moments))
            if advised is not None:
                frames = None if advised.frames is None else advised.frames[:count]
                advised = advised._replace(scores=advised.scores[:count], frames=frames)
            moments.append(
                Moment(emulator.colours, len(moments), cabinet.score, values[:count], greedy, taken, advised)
            )
            play.step([taken])
        names = play.emulator(0).action_names
    finally:
        play.close()
    storage.write_atomically(path, draw(moments, title, names, path.suffix))
    return path
