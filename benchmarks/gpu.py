"""Fleets of growing size on one accelerator, Acrobot preset: what a member costs when many share a device.

    PYTHONPATH=src:.gpu_site python3 benchmarks/gpu.py --out FOLDER

Needs nothing beside the package and JAX, and no network. gpu.json is written after every fleet size.
"""

import argparse
import gc
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import machine
from measure import say, write_json

from sadq.experiment.build import MAX_CHUNK, make_learner, make_loop, members_of, resolve
from sadq.experiment.config import Config
from sadq.experiment.presets import preset

PRESET = "acrobot"
FLEETS = [1, 2, 5, 10, 20, 40, 100, 200]
MIN_CHUNKS, MAX_CHUNKS = 3, 200


def measure(config: Config, seconds: float) -> dict[str, Any]:
    """One fleet: a chunk to compile and warm up, then at least `MIN_CHUNKS` and `seconds` of timed ones."""
    environment, members = resolve(config.environment), len(members_of(config))
    loop = make_loop(config, environment, MAX_CHUNK)
    state = jax.block_until_ready(loop.start())
    began = time.perf_counter()
    state, _ = jax.block_until_ready(loop.advance(state, 0))
    first = time.perf_counter() - began
    times: list[float] = []
    while len(times) < MIN_CHUNKS or (sum(times) < seconds and len(times) < MAX_CHUNKS):
        began = time.perf_counter()
        # A real run too waits for every chunk, to write its metrics.
        state, _ = jax.block_until_ready(loop.advance(state, MAX_CHUNK * (1 + len(times))))
        times.append(time.perf_counter() - began)
    chunk = statistics.median(times)
    per_collect = 1e3 * chunk / MAX_CHUNK / members
    return {
        "members": members,
        "compile_seconds": loop.programs.compile_seconds,
        "first_chunk_seconds": first,
        "timed_chunks": len(times),
        "chunk_seconds": chunk,
        "chunk_seconds_least": min(times),
        "chunk_seconds_most": max(times),
        "steps_per_second": members * MAX_CHUNK * config.collect / chunk,
        "milliseconds_per_collect_and_member": per_collect,
        "milliseconds_per_update_and_member": per_collect / config.updates_per_collect,
        "replay_megabytes": make_learner(config, environment).store.nbytes * members / 1e6,
        "peak_device_megabytes": (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use", 0) / 1e6 or None,
    }


def plot(results: dict[str, Any], path: Path) -> None:
    """Time of a member against the size of its fleet, on two logarithmic axes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    fleets = [fleet for fleet in results["fleets"] if "error" not in fleet]
    sizes = [fleet["members"] for fleet in fleets]
    times = [fleet["milliseconds_per_collect_and_member"] for fleet in fleets]
    ink, quiet, accent = "#222222", "#9a9a9a", "#1f5fa8"
    pyplot.rcParams.update({"font.size": 10, "text.color": ink, "axes.labelcolor": ink})
    figure, axes = pyplot.subplots(figsize=(6.4, 4.2), constrained_layout=True)
    axes.set_xscale("log")
    axes.set_yscale("log")
    free = [times[0] * sizes[0] / size for size in sizes]
    axes.plot(sizes, free, color=quiet, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    if len(sizes) > 1:
        # At the middle of the line, on the side away from the measured curve.
        middle = len(sizes) // 2
        axes.annotate(
            "if further members were free",
            (sizes[middle], free[middle]),
            (-8, -10),
            textcoords="offset points",
            ha="right",
            va="top",
            color=quiet,
            fontsize=9,
        )
    axes.plot(sizes, times, color=accent, linewidth=2, marker="o", markersize=5, zorder=2)
    for size, value, fleet in zip(sizes, times, fleets, strict=True):
        label = _short(fleet["steps_per_second"])
        axes.annotate(label, (size, value), (4, 7), textcoords="offset points", fontsize=8.5, color=accent)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.minorticks_off()
    axes.set_xlabel("members in the fleet")
    axes.set_ylabel("ms per collect and member")
    title = f"{results['agent']} on {results['environment']}, {results['machine']['device']}"
    work = f"a collect is {results['collect']} env steps and {results['updates']} updates"
    axes.set_title(f"{title}\n{work}; labels: env steps/s of all members", loc="left", fontsize=10)
    axes.margins(x=0.1, y=0.12)
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(quiet)
    figure.savefig(path, dpi=160)
    pyplot.close(figure)


def _short(count: float) -> str:
    """12.3k, 1.15M."""
    return f"{count / 1e6:.2f}M" if count >= 1e6 else f"{count / 1e3:.3g}k"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="a folder for gpu.json and gpu.png")
    parser.add_argument("--agent", default="sadq")
    parser.add_argument("--fleets", type=int, nargs="+", default=FLEETS, help="fleet sizes")
    parser.add_argument("--seconds", type=float, default=3.0, help="least length of a timed window")
    parser.add_argument("--quick", action="store_true", help="the shortest windows, to try the script")
    options = parser.parse_args()
    base = replace(preset(PRESET, options.agent), evaluations=1)
    device = jax.devices()[0]
    results: dict[str, Any] = {
        "machine": machine.describe() | {"device": device.device_kind, "platform": device.platform},
        "quick": options.quick,
        "preset": PRESET,
        "agent": base.agent,
        "environment": base.environment,
        "collect": base.collect,
        "updates": base.updates_per_collect,
        "collects_per_chunk": MAX_CHUNK,
        "fleets": [],
    }
    for members in options.fleets:
        try:
            fleet = measure(replace(base, seeds=tuple(range(members))), 0.0 if options.quick else options.seconds)
            say(
                f"{members:4} members: {fleet['steps_per_second']:12,.0f} env steps/s, "
                f"{fleet['milliseconds_per_collect_and_member']:8.3f} ms a collect and member, "
                f"compiled in {fleet['compile_seconds']:.1f} s"
            )
        # A fleet too large for the device must not cost the sizes that were measured, or those still to come.
        except Exception as error:
            fleet = {"members": members, "error": f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"}
            say(f"{members:4} members: {fleet['error']}")
        results["fleets"].append(fleet)
        write_json(options.out / "gpu.json", results)
        # Buffers of a fleet that is done must not count against the next one.
        gc.collect()
    if all("error" in fleet for fleet in results["fleets"]):
        return 1
    plot(results, options.out / "gpu.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
