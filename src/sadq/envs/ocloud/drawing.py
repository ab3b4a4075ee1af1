"""An O-Cloud episode to look at: every server's load and queue over the decisions, as a PNG or an animated GIF."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.animation import FuncAnimation, PillowWriter
from matplotlib.figure import Figure

from sadq.envs.ocloud import servers as scheduling
from sadq.envs.ocloud.environment import OCloud, OCloudState
from sadq.errors import SadqError

BLUE, ORANGE, RED = "#0072B2", "#E69F00", "#D55E00"
FRAMES_PER_SECOND = 12
MAX_FRAMES = 100  # of an animation, which leaves out states evenly
DPI = 110


class ServerHistory(NamedTuple):
    """What a drawing shows, step by step."""

    cpu: np.ndarray  # f32[T, S], share of cores in use
    memory: np.ndarray  # f32[T, S]
    waiting: np.ndarray  # i32[T, S]
    power: np.ndarray  # f32[T]
    now: np.ndarray  # i32[T], seconds since the first decision


def draw(environment: OCloud, states: OCloudState | Sequence[OCloudState], path: str | Path) -> Path:
    """Draw an episode's states, stacked along their first axis or in a list, into a .png or .gif file."""
    path = Path(path)
    painters = {".png": _picture, ".gif": _animation}
    if path.suffix not in painters:
        raise SadqError(f"cannot draw {path}, expected a name that ends in .png or .gif: choose one.")
    history = history_of(environment, states)
    path.parent.mkdir(parents=True, exist_ok=True)
    painters[path.suffix](history, path)
    return path


def history_of(environment: OCloud, states: OCloudState | Sequence[OCloudState]) -> ServerHistory:
    """The loads of every state."""
    if not isinstance(states, OCloudState) and len(states) == 0:
        raise SadqError("there is no state to draw, expected those of an episode: record at least one.")
    stacked: OCloudState = (
        states if isinstance(states, OCloudState) else jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    )

    def one(state: OCloudState) -> tuple[scheduling.Loads, jax.Array]:
        load = scheduling.loads(state.servers, state.now)
        return load, environment.power(load)

    loads, power = jax.tree.map(np.asarray, jax.jit(jax.vmap(one))(stacked))
    cpu, memory = loads.cpu / environment.size[0], loads.memory / environment.size[1]
    now = np.asarray(stacked.now)
    return ServerHistory(cpu, memory, loads.waiting, power, now - now[0])


def _picture(history: ServerHistory, path: Path) -> None:
    figure = Figure(figsize=(9, 6.5), layout="constrained")
    load, queue, total = figure.subplots(3, 1, sharex=True, height_ratios=[2, 2, 1.3])
    most = max(1, int(history.waiting.max()))
    panels = ((load, history.cpu, "viridis", 1.0, "Cores in use"), (queue, history.waiting, "magma_r", most, "Waiting"))
    for axes, values, colours, top, title in panels:
        image = axes.imshow(
            values.T, aspect="auto", origin="lower", interpolation="nearest", cmap=colours, vmin=0, vmax=top
        )
        figure.colorbar(image, ax=axes)
        axes.set(title=title, ylabel="server")
    total.plot(history.power, color=BLUE)
    total.set(ylabel="power", xlabel=f"decision ({history.now[-1]} s in all)")
    total.yaxis.label.set_color(BLUE)
    beside = total.twinx()
    beside.plot(history.waiting.sum(axis=1), color=RED)
    beside.set_ylabel("tasks waiting", color=RED)
    beside.set_ylim(0, 1.05 * max(1, int(history.waiting.sum(axis=1).max())))
    figure.savefig(path, dpi=DPI)


def _animation(history: ServerHistory, path: Path) -> None:
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    use, queue = figure.subplots(2, 1, sharex=True)
    servers = np.arange(history.cpu.shape[1])
    cpu = use.bar(servers - 0.2, history.cpu[0], 0.4, color=BLUE, label="cores")
    memory = use.bar(servers + 0.2, history.memory[0], 0.4, color=ORANGE, label="memory")
    waiting = queue.bar(servers, history.waiting[0], 0.6, color=RED)
    use.set(ylim=(0, 1.02), ylabel="share in use", xticks=servers)
    use.legend(loc="lower right", ncols=2)
    queue.set(ylim=(0, max(1, int(history.waiting.max()))), ylabel="tasks waiting", xlabel="server")

    def show(step: int) -> list[object]:
        for bars, values in ((cpu, history.cpu), (memory, history.memory), (waiting, history.waiting)):
            for bar, value in zip(bars, values[step], strict=True):
                bar.set_height(value)
        use.set_title(f"decision {step}, {history.now[step]} s, power {history.power[step]:.2f}", loc="left")
        return []

    show(0)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # laid out once: the frames differ in nothing that moves the axes
    steps = range(0, len(history.cpu), max(1, -(-len(history.cpu) // MAX_FRAMES)))
    animation = FuncAnimation(figure, show, frames=steps)  # type: ignore[arg-type]
    animation.save(path, writer=PillowWriter(fps=FRAMES_PER_SECOND), dpi=70)
