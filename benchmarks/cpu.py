"""Speed on this machine's CPU, Acrobot preset: against peers, +SADQ against its base, GEMM share, compile time."""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import machine
from measure import Failed, Measurement, interleaved, measured, say, summary, write_json

import report

HERE = Path(__file__).resolve().parent
PEERS_FOLDER = machine.ROOT / ".venv-peers"
SPEED, UPDATE = "steps_per_second", "milliseconds_per_update"
BASES = ["dueling", "dqn", "double"]
SECTIONS = ["peers", "sadq", "update", "compile"]


@dataclass(frozen=True)
class Settings:
    """How long and how often; numbers of steps are env steps."""

    quick: bool = False
    repetitions: int = 5
    peers_warmup: int = 9_600
    peers_window: int = 48_000
    sadq_warmup: int = 4_800
    sadq_window: int = 24_000
    update_calls: int = 20
    timeout: float = 900.0


QUICK = Settings(True, 1, 2_400, 4_800, 2_400, 4_800, 3, 300.0)
"""To try the script; the numbers are no measurement."""


def ours(settings: Settings, what: str, agent: str, *flags: str) -> Measurement:
    command = [sys.executable, str(HERE / "ours.py"), what, agent, *flags]
    return measured(command, settings.timeout)


def peer(settings: Settings, what: str, name: str, *flags: str) -> Measurement:
    command = [str(PEERS_FOLDER / "bin" / "python"), str(HERE / "peers.py"), what, name, *flags]
    return measured(command, settings.timeout)


def against_peers(settings: Settings) -> dict[str, Any]:
    """Our DQN, Stable-Baselines3's and SBX's on the same work."""
    window = ["--warmup", str(settings.peers_warmup), "--window", str(settings.peers_window)]
    say(f"peers: installing into {PEERS_FOLDER} where it is not up to date")
    installed = subprocess.run(["bash", str(HERE / "peers.sh"), str(PEERS_FOLDER), sys.executable], stdout=sys.stderr)
    if installed.returncode != 0:
        say("peers: their environment could not be made")
    versions: dict[str, Any] = {}
    contestants: dict[str, Callable[[], Measurement]] = {
        "ours": lambda: ours(settings, "speed", "dqn", "--same-epsilon", *window)
    }
    # Two threads can be slower than one for networks as small as these, so that PyTorch is measured with both.
    for name, kind, flags in [("sb3", "sb3", []), ("sb3, one thread", "sb3", ["--threads", "1"]), ("sbx", "sbx", [])]:
        if kind not in versions:
            versions[kind] = _versions(settings, kind)
        if "error" not in versions[kind]:
            contestants[name] = lambda kind=kind, flags=flags: peer(settings, "speed", kind, *window, *flags)
    results = interleaved(contestants, settings.repetitions, SPEED)
    results |= {kind: {"error": found["error"]} for kind, found in versions.items() if "error" in found}
    sizes = {run["parameters"] for result in results.values() for run in result.get("runs", [])}
    return {"versions": versions, "same_layers": len(sizes) == 1, "contestants": results}


def _versions(settings: Settings, kind: str) -> dict[str, Any]:
    try:
        found = peer(settings, "describe", kind)
    except (Failed, OSError) as failure:
        say(f"peers: {kind} is left out: {failure}")
        return {"error": f"not installed: {failure}"}
    return {name: value for name, value in found.items() if isinstance(value, str)}


def sadq_against_base(settings: Settings) -> dict[str, Any]:
    """What the model and its rollouts cost, agent by agent."""
    window = ["--warmup", str(settings.sadq_warmup), "--window", str(settings.sadq_window)]
    agents = [f"{base}{suffix}" for base in BASES for suffix in ("", "+sadq")]
    return interleaved(
        {agent: lambda agent=agent: ours(settings, "speed", agent, *window) for agent in agents},
        settings.repetitions,
        SPEED,
    )


def gemm_share(settings: Settings) -> dict[str, Any]:
    """How near the update comes to the speed of one large matrix product."""
    agents = ["dqn", "dueling", "dueling+sadq"]
    calls = ["--repetitions", str(settings.update_calls)]
    return interleaved(
        {agent: lambda agent=agent: ours(settings, "update", agent, *calls) for agent in agents},
        settings.repetitions,
        UPDATE,
    )


def compile_time(settings: Settings) -> dict[str, Any]:
    """`sadq train` with an empty cache of compiled programs, and again with the one that it left."""
    runs: dict[str, list[Measurement]] = {"empty cache": [], "warm cache": []}
    for repetition in range(settings.repetitions):
        with tempfile.TemporaryDirectory() as folder:
            for name, kept in runs.items():
                flags = ["--seeds", "1", "--steps", "2000", "--json", "--quiet", "--out", str(Path(folder, name))]
                command = [sys.executable, "-m", "sadq", "train", "acrobot", "sadq", *flags]
                process = measured(command, settings.timeout, {"XDG_CACHE_HOME": folder})
                # Of the process; the run has a wall time of its own, which starts after the imports.
                kept.append(
                    {
                        "compile_seconds": process["compile_seconds"],
                        "process_seconds": process["wall_seconds"],
                        "others_used_cores": process.get("others_used_cores", 0.0),
                    }
                )
                say(f"  {repetition + 1}/{settings.repetitions} {name}: {process['compile_seconds']:.2f} s")
    return {
        name: {field: summary(own, field) for field in ("compile_seconds", "process_seconds")}
        for name, own in runs.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=report.CPU_RESULTS, help="the results' JSON file")
    parser.add_argument("--quick", action="store_true", help="one short repetition, to try the script")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS, help="sections to measure")
    options = parser.parse_args()
    settings = QUICK if options.quick else Settings()
    results: dict[str, Any] = {"machine": machine.describe(), "settings": asdict(settings)}
    measurements = dict(zip(SECTIONS, [against_peers, sadq_against_base, gemm_share, compile_time], strict=True))
    failed = False
    for section in options.only:
        say(f"{section}: {measurements[section].__doc__}")
        try:
            results[section] = measurements[section](settings)
        except Failed as failure:
            results[section] = {"error": str(failure)}
            say(f"  {failure}")
        failed |= report.failed(results[section])
        results["machine"]["load_average_at_end"] = machine.load_average()
        write_json(options.out, results)
    print(report.cpu_tables(results))
    # Only a whole and real measurement may replace the page's tables.
    if options.out.resolve() == report.CPU_RESULTS and not options.quick and options.only == SECTIONS:
        report.update_page()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
