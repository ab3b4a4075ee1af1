"""Speed on this machine's CPU, Acrobot preset: against peers, +SADQ against its base, every agent, compile time."""

import argparse
import json
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
from sadq.agents import AGENTS

HERE = Path(__file__).resolve().parent
PEERS_FOLDER = machine.ROOT / ".venv-peers"
SPEED, UPDATE = "steps_per_second", "milliseconds_per_update"
GUIDED = ["dueling", "dqn", "double"]


@dataclass(frozen=True)
class Settings:
    """How long and how often; numbers of steps are env steps."""

    quick: bool = False
    repetitions: int = 5
    peers_warmup: int = 9_600
    peers_window: int = 48_000
    qrdqn_warmup: int = 4_800
    qrdqn_window: int = 24_000
    qrdqn_peer_warmup: int = 480  # the peer is slow enough for a short window to be a long time
    qrdqn_peer_window: int = 960
    sadq_warmup: int = 4_800
    sadq_window: int = 24_000
    agent_calls: int = 25
    agent_seconds: float = 6.0
    update_calls: int = 10
    timeout: float = 900.0


QUICK = Settings(
    quick=True,
    repetitions=1,
    peers_warmup=2_400,
    peers_window=4_800,
    qrdqn_warmup=2_400,
    qrdqn_window=2_400,
    qrdqn_peer_warmup=96,
    qrdqn_peer_window=192,
    sadq_warmup=2_400,
    sadq_window=4_800,
    agent_calls=2,
    agent_seconds=1.0,
    update_calls=3,
    timeout=600.0,
)
"""To try the script; the numbers are no measurement."""


def ours(settings: Settings, what: str, agents: list[str], *flags: str) -> Measurement:
    return measured([sys.executable, str(HERE / "ours.py"), what, *agents, *flags], settings.timeout)


def peer(settings: Settings, what: str, name: str, *flags: str) -> Measurement:
    command = [str(PEERS_FOLDER / "bin" / "python"), str(HERE / "peers.py"), what, name, *flags]
    return measured(command, settings.timeout)


def window(warmup: int, length: int) -> list[str]:
    return ["--warmup", str(warmup), "--window", str(length)]


def against_peers(settings: Settings) -> dict[str, Any]:
    """Our DQN, Stable-Baselines3's and SBX's on the same work."""
    own = window(settings.peers_warmup, settings.peers_window)
    # Two threads can be slower than one for networks as small as these, so that PyTorch is measured with both.
    peers = {"sb3": ("sb3", []), "sb3, one thread": ("sb3", ["--threads", "1"]), "sbx": ("sbx", [])}
    return _compared(settings, "dqn", own, own, peers)


def qrdqn_against_peer(settings: Settings) -> dict[str, Any]:
    """Our QR-DQN and sb3-contrib's on the same work."""
    own = window(settings.qrdqn_warmup, settings.qrdqn_window)
    theirs = window(settings.qrdqn_peer_warmup, settings.qrdqn_peer_window)
    peers = {f"contrib, {name}": ("contrib", ["--threads", count]) for name, count in report.THREADS.items()}
    return _compared(settings, "qrdqn", own, theirs, peers)


def _compared(
    settings: Settings, agent: str, own: list[str], theirs: list[str], peers: dict[str, tuple[str, list[str]]]
) -> dict[str, Any]:
    """Our agent and its peers in turns; a peer that cannot be installed is named as such."""
    say(f"peers: installing into {PEERS_FOLDER} where it is not up to date")
    installed = subprocess.run(["bash", str(HERE / "peers.sh"), str(PEERS_FOLDER), sys.executable], stdout=sys.stderr)
    if installed.returncode != 0:
        say("peers: their environment could not be made")
    versions = {kind: _versions(settings, kind) for kind in dict.fromkeys(kind for kind, _ in peers.values())}
    contestants: dict[str, Callable[[], Measurement]] = {
        "ours": lambda: ours(settings, "speed", [agent], "--same-epsilon", *own)
    }
    for name, (kind, flags) in peers.items():
        if "error" not in versions[kind]:
            contestants[name] = lambda kind=kind, flags=flags: peer(settings, "speed", kind, *theirs, *flags)
    results = interleaved(contestants, settings.repetitions, SPEED)
    results |= {name: versions[kind] for name, (kind, _) in peers.items() if "error" in versions[kind]}
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
    """What the model and its rollouts cost in a whole run, agent by agent."""
    own = window(settings.sadq_warmup, settings.sadq_window)
    agents = [f"{base}{suffix}" for base in GUIDED for suffix in ("", "+sadq")]
    return interleaved(
        {agent: lambda agent=agent: ours(settings, "speed", [agent], *own) for agent in agents},
        settings.repetitions,
        SPEED,
    )


def every_agent(settings: Settings) -> dict[str, Any]:
    """Time per update of all agents, plain and guided, beside DQN's; each pair in a process of its own."""
    found: dict[str, Any] = {}
    limits = ["--repetitions", str(settings.agent_calls), "--seconds", str(settings.agent_seconds)]
    for base in AGENTS:
        pair = [base, f"{base}+sadq"]
        try:
            measurement = ours(settings, "agents", pair, *limits)
        except Failed as failure:
            say(f"  {base}: {failure}")
            found |= {variant: {"error": str(failure)} for variant in pair}
            continue
        load = {"others_used_cores": measurement.get("others_used_cores", 0.0)}
        found |= {variant: own | load for variant, own in measurement["variants"].items()}
        shown = ", ".join(f"{variant} {found[variant]['ratio']:.2f}" for variant in pair)
        say(f"  {shown} times dqn, in {measurement['wall_seconds']:.0f} s")
    return found


def gemm_share(settings: Settings) -> dict[str, Any]:
    """How near the update comes to the speed of one large matrix product."""
    agents = ["dqn", "dueling", "dueling+sadq"]
    calls = ["--repetitions", str(settings.update_calls)]
    return interleaved(
        {agent: lambda agent=agent: ours(settings, "update", [agent], *calls) for agent in agents},
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


SECTIONS: dict[str, Callable[[Settings], dict[str, Any]]] = {
    "peers": against_peers,
    "qrdqn": qrdqn_against_peer,
    "sadq": sadq_against_base,
    "agents": every_agent,
    "update": gemm_share,
    "compile": compile_time,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=report.CPU_RESULTS, help="the results' JSON file")
    parser.add_argument("--quick", action="store_true", help="one short repetition, to try the script")
    parser.add_argument(
        "--sections", nargs="+", choices=list(SECTIONS), default=list(SECTIONS), help="what to measure; others are kept"
    )
    options = parser.parse_args()
    published = options.out.resolve() == report.CPU_RESULTS
    if options.quick and published:
        parser.error("--quick is no measurement: give it an --out other than the published results.")
    settings = QUICK if options.quick else Settings()
    results: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {}
    bad = False
    for section in options.sections:
        measure = SECTIONS[section]
        say(f"{section}: {measure.__doc__}")
        # Each section says by itself what it was measured on, so that one can be measured again without the others.
        described = machine.describe()
        try:
            found = measure(settings)
        except Failed as failure:
            found = {"error": str(failure)}
            say(f"  {failure}")
        bad |= report.failed(found)
        described["load_average_at_end"] = machine.load_average()
        results[section] = {"machine": described, "settings": asdict(settings), "results": found}
        write_json(options.out, results)
    print(report.cpu_tables(results))
    if published:
        report.update_page()
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
