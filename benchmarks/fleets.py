"""Whole fleets of a study on one accelerator, several processes beside each other, for `sadq reproduce` to judge.

    COMMIT=... PYTHONPATH=src python3 benchmarks/fleets.py --out POOL --seeds 20 --seconds 540 \\
        acrobot/dqn acrobot/dqn+sadq "bitflip/dueling+sadq:gate=batch,gate.slope=2"

A fleet of twenty small networks spends as long in the compiler as on the device, so one process compiles while another
trains. POOL/PRESET/ARM is what `sadq reproduce ARTEFACT --pool POOL` reads. What is finished is not run again, what does
not end in time is thrown away, and one fleet's failure stops no other. With --archive FOLDER every finished fleet is in
FOLDER/PRESET.tgz at once, without its checkpoints: a machine that is taken away keeps nothing else.
"""

import argparse
import dataclasses
import multiprocessing
import os
import queue
import shutil
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

Job = tuple[str, str, str]
"""Preset, arm, and where its run folder lies."""


def archive(pool: Path, packed: Path) -> None:
    """All finished fleets of a preset as one file, replaced whole."""
    packed.parent.mkdir(parents=True, exist_ok=True)
    beside = packed.with_suffix(".tmp")
    with tarfile.open(beside, "w:gz") as file:
        for result in sorted(pool.glob("*/result.json")):
            for path in sorted(path for path in result.parent.iterdir() if path.is_file()):
                file.add(path, path.relative_to(pool.parent))
    beside.replace(packed)


def work(jobs: Any, lock: Any, options: argparse.Namespace, until: float) -> None:
    """One process: fleets until none is left, or no time for another."""
    from measure import say

    from sadq.experiment.opening import create
    from sadq.experiment.presets import preset
    from sadq.studies.arms import Arm

    while time.time() < until:
        try:
            name, text, folder = jobs.get(timeout=1)
        except queue.Empty:
            return
        path, began = options.out / folder, time.time()
        # What the run folder remembers: the command that repeats this fleet alone.
        sys.argv[1:] = ["--out", "POOL", "--seeds", str(options.seeds), "--first-seed", str(options.first_seed)]
        sys.argv += [] if options.steps is None else ["--steps", str(options.steps)]
        sys.argv += [] if options.alphas is None else ["--alphas", *map(str, options.alphas), "--"]
        sys.argv.append(f"{name}/{text}")
        try:
            first = options.first_seed
            shared = dataclasses.replace(preset(name), seeds=tuple(range(first, first + options.seeds)))
            if options.steps is not None:
                shared = dataclasses.replace(shared, steps=options.steps)
            config = dataclasses.replace(Arm.parse(text).config(shared), checkpoint_seconds=1e9)
            if options.alphas and config.guided:
                config = dataclasses.replace(config, alpha=tuple(options.alphas))
            experiment = create(config, path)
            experiment.begin()
            if not experiment.run(lambda _: time.time() < until):
                say(f"{folder}: no time for all of it, {experiment.step:,} of {experiment.steps:,} steps")
                shutil.rmtree(path)
                return
            result = experiment.result()
            experiment.folder.finish(result)
            experiment.close()
            if options.archive is not None:
                with lock:
                    archive(options.out / name, options.archive / f"{name}.tgz")
            finals = [member["final_return"] for member in result["members"]]
            areas = [member["area_under_curve"] for member in result["members"]]
            say(
                f"{folder}: final {sum(finals) / len(finals):.4g}, area {sum(areas) / len(areas):.4g}, "
                f"{time.time() - began:.0f} s, {result['compile_seconds']:.0f} of them compiling"
            )
        except Exception as error:  # one fleet must not take the others with it
            say(f"{folder} failed: {error!r:.300}")
            shutil.rmtree(path, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fleets", nargs="+", help="PRESET/ARM, arms as `sadq compare` takes them")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--steps", type=int, help="env steps; by default the preset's")
    parser.add_argument(
        "--alphas", type=float, nargs="+", help="of guided arms, members for each; by default the arm's"
    )
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1e9, help="let no fleet go on after so long")
    parser.add_argument("--archive", type=Path, help="where to pack what is finished, a file a preset")
    options = parser.parse_args()
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    from sadq.studies.arms import Arm

    until = time.time() + options.seconds
    context = multiprocessing.get_context("spawn")
    jobs, lock = context.Queue(), context.Lock()
    for text in options.fleets:
        name, _, arm = text.partition("/")
        folder = f"{name}/{Arm.parse(arm).folder}"
        if not (options.out / folder / "result.json").exists():
            jobs.put((name, arm, folder))
    processes = [context.Process(target=work, args=(jobs, lock, options, until)) for _ in range(options.processes)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
