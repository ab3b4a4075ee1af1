"""Playing episodes without learning: a trained run's, from starts that training never saw, or a fixed policy's."""

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sadq import keys
from sadq.envs import base
from sadq.envs.atari.spec import AtariSpec
from sadq.envs.base import Environment
from sadq.envs.contract import HostSpec
from sadq.envs.filming import HostPolicy
from sadq.envs.fixed_policies import Policy, play
from sadq.envs.random_play import play_randomly
from sadq.errors import SadqError
from sadq.experiment import checkpoint
from sadq.experiment.build import environment_of, hyper_of, make_learner, make_loop
from sadq.experiment.evaluations import json_number, trouble_in
from sadq.experiment.folder import CHECKPOINTS, CONFIG, RunFolder
from sadq.experiment.opening import reopen
from sadq.experiment.presets import preset
from sadq.experiment.run import Experiment
from sadq.experiment.stored import restored
from sadq.experiment.trust import check_trusted
from sadq.experiment.video import check_video, film, film_rendered, rendered_twin
from sadq.fleet.members import Evaluation, Loop, MemberState, greedy_actions
from sadq.networks.network import Network
from sadq.types import Array, Key, PyTree

UNSEEN = 2**30
"""An evaluation number that no training run reaches."""
TOGETHER = 100
"""Episodes of a member that are played at once in JAX."""
RANDOM = "random"


def evaluate_run(path: Path, episodes: int, video: Path | None = None) -> dict[str, Any]:
    """Returns over `episodes` episodes of each member of a run folder's newest checkpoint; `video`: draw one, too."""
    experiment = reopen(path)
    if video is not None:
        check_video(experiment.environment, video)
    saved = checkpoint.latest(path / CHECKPOINTS)
    if saved is None:
        raise SadqError(f"{path} has no checkpoint yet: let the run go on with `sadq resume {path}`, then evaluate it.")
    loop = _loop_of(experiment, episodes)
    try:
        meta, state, _ = restored(loop, loop.start(), saved)
        evaluation = _played(loop, state, episodes)
    finally:
        loop.close()
    result = {"run": str(path), "step": meta["step"], "episodes": episodes}
    result["members"] = _by_member(experiment, evaluation)
    if video is not None:
        result["video"] = str(_first_member(experiment, state, meta["step"], video))
    return result


def evaluate_experiment(experiment: Experiment, episodes: int) -> list[dict[str, Any]]:
    """The same for a run under way: a dictionary for each member, of the same episodes whenever it is asked."""
    loop = _loop_of(experiment, episodes)
    try:
        return _by_member(experiment, _played(loop, experiment.state, episodes))
    finally:
        loop.close()


def _loop_of(experiment: Experiment, episodes: int) -> Loop:
    """What plays so many episodes of each member, a batch at a time: on the host no more at once than its own run has."""
    config = experiment.config
    most = TOGETHER if isinstance(experiment.environment, Environment) else config.evaluation_episodes
    config = dataclasses.replace(config, evaluation_episodes=min(episodes, most))
    return make_loop(config, experiment.environment, 1)


def _played(loop: Loop, state: MemberState, episodes: int) -> Evaluation:
    """Greedy episodes of every member, [M, episodes]."""
    batches, count = list[Any](), 0
    while count < episodes:
        batches.append(jax.tree.map(np.asarray, loop.evaluate(state, UNSEEN + len(batches))))
        count += batches[-1].returns.shape[1]
    return jax.tree.map(lambda *parts: np.concatenate(parts, axis=1)[:, :episodes], *batches)


def film_experiment(experiment: Experiment, video: Path) -> Path:
    """An episode of the first member of a run under way, drawn."""
    check_video(experiment.environment, video)
    return _first_member(experiment, experiment.state, experiment.step, video)


def _by_member(experiment: Experiment, evaluation: Evaluation) -> list[dict[str, Any]]:
    played = [
        jax.tree.map(lambda leaf, index=index: np.asarray(leaf)[index], evaluation._asdict())
        for index in range(len(experiment.members))
    ]
    for own in played:
        _check_returns(experiment.environment, own)
    return [member | _numbers(own) for member, own in zip(experiment.members, played, strict=True)]


def _first_member(experiment: Experiment, state: MemberState, step: int, video: Path) -> Path:
    """An episode of a run's first member, drawn."""
    environment, config, member = experiment.environment, experiment.config, experiment.members[0]
    learner = jax.tree.map(lambda leaf: leaf[0], state.learner)
    if not isinstance(environment, AtariSpec):
        networks = learner.online.parameters
        if isinstance(environment, Environment) and type(environment).draw is not Environment.draw:
            return _drawn(environment, partial(_greedy, environment, networks), video)
        act = jax.jit(lambda *seen: greedy_actions(networks, *seen)[0][0])

        def greedy(observation: np.ndarray, mask: np.ndarray | None, _: int) -> int:
            return int(act(observation[None], None if mask is None else mask[None]))

        return film_rendered(_rendered(environment), member["seed"], UNSEEN, greedy, video)
    game = member.get("game", environment.games[0])
    title = f"{game}, {config.agent}, seed {member['seed']}, after {step:,} steps"
    hyper = jax.tree.map(lambda leaf: leaf[0], hyper_of(config))
    return film(environment, game, title, make_learner(config, environment), hyper, learner, UNSEEN, video)


def evaluate_policy(
    what: str, policy: str, episodes: int, seed: int, settings: tuple[str, ...] = (), video: Path | None = None
) -> dict[str, Any]:
    """Returns of one of an environment's own policies; `what` is a preset, an environment, or a run folder."""
    if (Path(what) / CONFIG).is_file():
        config = RunFolder.open(Path(what))[1]
        check_trusted(config.environment, Path(what))
    else:
        config = preset(what)
    config = dataclasses.replace(config, environment_settings=config.environment_settings + settings)
    environment = environment_of(config)
    if video is not None:
        check_video(environment, video)
    if not isinstance(environment, Environment):
        return _random_policy(environment, policy, episodes, seed, video)
    judged = environment.for_evaluation()
    known = judged.policies()
    if policy not in known:
        raise SadqError(f"environment {environment.name} has no policy {policy!r}: expected {', '.join(known)}.")
    played = play(judged, known[policy], episodes, seed)
    _check_returns(judged, played)
    result = {"environment": environment.name, "policy": policy, "episodes": episodes, "seed": seed} | _numbers(played)
    if video is not None:
        result["video"] = str(_film_policy(environment, policy, known[policy], seed, video))
    return result


def _random_policy(spec: HostSpec, policy: str, episodes: int, seed: int, video: Path | None) -> dict[str, Any]:
    """The one policy that there is for every environment outside JAX."""
    if policy != RANDOM:
        raise SadqError(f"environment {spec.name} has no policy {policy!r}: expected {RANDOM}.")
    if video is not None and isinstance(spec, AtariSpec):
        raise SadqError(
            f"{spec.name} is drawn with what a trained agent thinks, which {RANDOM} has not: leave video out."
        )
    found = play_randomly(spec, episodes, seed)
    played = {"returns": found.rewards.sum(1), "lengths": found.running.sum(1), "measures": found.measures}
    _check_returns(spec, played)
    result = {"environment": spec.name, "policy": policy, "episodes": episodes, "seed": seed} | _numbers(played)
    if video is not None:
        result["video"] = str(film_rendered(spec, seed, 0, _at_random(spec.action_count, seed), video))
    return result


def _film_policy(environment: Environment, name: str, policy: Policy, seed: int, video: Path) -> Path:
    if type(environment).draw is not Environment.draw:
        return _drawn(environment, policy, video)
    if name != RANDOM:
        raise SadqError(
            f"environment {environment.name} is rendered by Gymnasium, which plays {RANDOM} only: choose that."
        )
    return film_rendered(_rendered(environment), seed, 0, _at_random(environment.action_count, seed), video)


def _at_random(actions: int, seed: int) -> HostPolicy:
    random = np.random.default_rng(seed)
    return lambda _, mask, __: int(random.choice(np.arange(actions) if mask is None else np.flatnonzero(mask)))


def _rendered(environment: Environment | HostSpec) -> HostSpec:
    """What renders an environment: itself, or Gymnasium's one of its name, which was looked for before."""
    twin = rendered_twin(environment) if isinstance(environment, Environment) else environment
    assert twin is not None, "a video was checked before"
    return twin


def _check_returns(environment: Any, played: dict[str, Any]) -> None:
    """Returns that are no numbers are an error that says why, where the environment knows."""
    returns = np.asarray(played["returns"])
    if not np.isfinite(returns).all():
        measures = {name: np.asarray(values) for name, values in played["measures"].items()}
        raise SadqError(trouble_in(environment, returns, measures))


def _numbers(played: dict[str, Any]) -> dict[str, Any]:
    """Episodes in numbers."""
    returns, measures = np.asarray(played["returns"], float), played["measures"]
    return {
        "mean_return": float(returns.mean()),
        "deviation": float(returns.std()),
        "mean_length": float(np.mean(played["lengths"])),
        **({"measures": {name: json_number(np.mean(values)) for name, values in measures.items()}} if measures else {}),
        "returns": returns.tolist(),
    }


def _greedy(environment: Any, networks: Network, state: PyTree, observation: Array, step: Array, key: Key) -> Array:
    """A trained member as a policy, given its environment and its networks."""
    # One actor's observation, or with several actors all of theirs.
    seen = observation if environment.actors > 1 else observation[None]
    action, _ = greedy_actions(networks, seen, base.legal_lanes(environment, seen))
    return action if environment.actors > 1 else action[0]


def _drawn(environment: Any, policy: Policy, path: Path) -> Path:
    """One evaluation episode of a policy, drawn."""
    judged, root = environment.for_evaluation(), keys.purpose(keys.member_key(0), "video")

    def step(timed: base.Timed, number: Array) -> tuple[base.Timed, PyTree]:
        own = keys.at(root, number)
        action = policy(timed.state, judged.observe(timed.state), number, keys.purpose(own, "policy"))
        reached, outcome = base.step(judged, timed, jnp.asarray(action, jnp.int32), keys.purpose(own, "transition"))
        return reached, (reached.state, outcome.terminated | outcome.truncated)

    def episode() -> PyTree:
        first = base.reset(judged, keys.purpose(root, "reset"))
        _, (states, ended) = jax.lax.scan(step, first, jnp.arange(judged.max_steps))
        return jax.tree.map(lambda one, rest: jnp.concatenate([one[None], rest]), first.state, states), ended

    states, ended = jax.tree.map(np.asarray, jax.jit(episode)())
    length = 1 + (int(np.argmax(ended)) + 1 if ended.any() else len(ended))
    return judged.draw(jax.tree.map(lambda leaf: leaf[:length], states), path)
