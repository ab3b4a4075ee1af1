"""Tables from results/*.json; `python benchmarks/report.py` writes them into README.md."""

import json
import re
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from report_environments import candidates_table, cityflow_table, ocloud_table, scale_table, training_table, zoo_table

HERE = Path(__file__).resolve().parent
PAGE = HERE / "README.md"
RESULTS = HERE / "results"
CPU_RESULTS = RESULTS / "cpu.json"
BUSY = 0.1
SCALE = "grids at equal density, 600 s, float32, an earlier version in brackets"
"""Cores that others may use during a measurement before the tables say so."""

THREADS = {"two threads": "2", "one thread": "1"}
"""What PyTorch is given in the comparison of QR-DQN."""

LABELS = {
    "sb3": "Stable-Baselines3, its own choice of threads",
    "sb3, one thread": "Stable-Baselines3, one thread",
    "sbx": "SBX",
    **{f"contrib, {name}": f"sb3-contrib, {name}" for name in THREADS},
}
PEERS = ("sb3", "sbx", "contrib")
TRIAL = "**A quick trial of the script, not a measurement.**"


def table(header: list[str], rows: list[list[str]]) -> str:
    """Markdown, padded so that it reads as plain text too; all columns but the first hold numbers."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]

    def line(cells: list[str]) -> str:
        numbers = [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)][1:]
        return f"| {' | '.join([cells[0].ljust(widths[0]), *numbers])} |"

    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join([line(header), line(rule), *map(line, rows)])


def cpu_tables(sections: dict[str, Any]) -> str:
    """All sections that were measured, each with what it was measured on."""
    makers: dict[str, tuple[str, Callable[[dict[str, Any]], str]]] = {
        "peers": ("DQN against peers", lambda found: peers_table("dqn", found)),
        "qrdqn": ("QR-DQN against its peer", lambda found: peers_table("qrdqn", found)),
        "sadq": ("+SADQ against its base, whole runs", sadq_table),
        "agents": ("Every agent: time per value update", agents_table),
        "update": ("Share of the GEMM peak", update_table),
        "compile": ("Compile time", compile_table),
    }
    parts = []
    for section, (title, make) in makers.items():
        if section in sections:
            content = sections[section]
            found = content["results"]
            tables = f"Failed: {found['error']}" if "error" in found else make(found)
            parts += [f"### {title}", tables, machine_lines(section, content)]
    return "\n\n".join(parts)


def machine_lines(section: str, content: dict[str, Any]) -> str:
    """What was measured on, when and how, and whether it may be believed."""
    machine, settings = content["machine"], content["settings"]
    # Each variant of this section is one process, in which it takes turns with DQN many times.
    often = "one process each" if section == "agents" else f"medians of {settings['repetitions']}"
    on = f"{machine['cpu']}, {machine['usable_cores']} cores, {machine['memory_gigabytes']} GB"
    lines = [f"{on}; {_versions(machine)}; {_origin(machine)}; {often}."]
    busiest = max(_others(content), default=0.0)
    if busiest > BUSY:
        lines.append(f"**The machine was busy: other processes used up to {busiest:.1f} cores during a measurement.**")
    if settings["quick"]:
        lines.append(TRIAL)
    return "\n\n".join(lines)


def _versions(machine: dict[str, Any]) -> str:
    packages = ", ".join(f"{name} {version}" for name, version in machine["versions"].items() if version)
    return f"Python {machine['python']}, {packages}"


def _origin(machine: dict[str, Any]) -> str:
    commit = f"commit {machine['commit']}" if machine["commit"] else "commit not recorded"
    return f"{commit}; {machine['date']}; `{machine['command']}`"


def peers_table(agent: str, content: dict[str, Any]) -> str:
    contestants = content["contestants"]
    own = contestants["ours"].get("median")
    labels = {"ours": f"sadq `{agent}`", **LABELS}
    rows = []
    for name, result in contestants.items():
        if "error" in result:
            rows.append([labels[name], result["error"], "", ""])
            continue
        ratio = "" if name == "ours" or own is None else f"{own / result['median']:.2f}"
        rows.append([labels[name], f"{result['median']:,.0f}", _range(result), ratio])
    text = table([f"`{agent}`, 8 environments", "env steps/s", "least - most", "sadq is faster by"], rows)
    notes = [
        ", ".join(f"{package} {number}" for package, number in found.items())
        for found in content["versions"].values()
        if "error" not in found
    ]
    if not content["same_layers"]:
        notes.append("**the networks differ in size, so this is no fair comparison**")
    return text + ("\n\nPeers: " + "; ".join(notes) + "." if notes else "")


def sadq_table(content: dict[str, Any]) -> str:
    rows = []
    for agent, result in content.items():
        if "error" in result:
            rows.append([f"`{agent}`", result["error"], "", ""])
            continue
        base = content.get(agent.removesuffix("+sadq"), {}).get("median")
        ratio = f"{base / result['median']:.2f}" if base is not None and agent.endswith("+sadq") else ""
        rows.append([f"`{agent}`", f"{result['median']:,.0f}", _range(result), ratio])
    return table(["agent", "env steps/s", "least - most", "time, base = 1"], rows)


def agents_table(content: dict[str, Any]) -> str:
    rows, notes = [], []
    for variant, result in content.items():
        if "error" in result:
            rows.append([f"`{variant}`", result["error"], "", ""])
            continue
        ratios = f"{result['ratio_least']:.2f} - {result['ratio_most']:.2f}"
        rows.append([f"`{variant}`", f"{result['milliseconds_per_update']:.2f}", f"{result['ratio']:.2f}", ratios])
        notes += _outside(variant, result)
    text = table(["agent", "ms an update", "time, `dqn` = 1", "least - most"], rows)
    return "\n\n".join([text, *notes])


def _outside(variant: str, result: dict[str, Any], whose: str = "") -> list[str]:
    """A sentence on what an agent does beside `learn`, where it does something."""
    beside = result["outside_learning"]
    if not beside:
        return []
    parts = [
        f"{beside[name]['milliseconds']:.2f} ms a {what}, once in {beside[name]['updates_between']:.0f} updates"
        for name, what in (("refit", "refit of the posterior"), ("resample", "draw of weights"))
    ]
    added = f"{beside['milliseconds_per_update']:.3f} ms an update"
    return [f"Beside that `{variant}`{whose} takes {' and '.join(parts)}: {added} more."]


def update_table(content: dict[str, Any]) -> str:
    rows = []
    for agent, result in content.items():
        if "error" in result:
            rows.append([f"`{agent}`", result["error"], "", "", "", ""])
            continue
        # The run whose time is nearest to the median, so that the columns of a row belong together.
        run = min(result["runs"], key=lambda run: abs(run["milliseconds_per_update"] - result["median"]))
        rows.append(
            [
                f"`{agent}`",
                f"{run['megaflops_per_update']:.1f}",
                f"{run['milliseconds_per_update']:.2f}",
                f"{run['gigaflops_per_second']:.1f}",
                f"{run['peak_gigaflops_per_second']:.0f}",
                f"{run['share_of_peak']:.0%}",
            ]
        )
    return table(["update of", "MFLOP", "ms", "GFLOP/s", "GEMM peak, GFLOP/s", "share of peak"], rows)


def compile_table(content: dict[str, Any]) -> str:
    rows = [
        [name, f"{fields['compile_seconds']['median']:.2f}", f"{fields['process_seconds']['median']:.2f}"]
        for name, fields in content.items()
    ]
    return table(["`sadq train acrobot sadq --seeds 1 --steps 2000`", "compilation, s", "whole process, s"], rows)


def gpu_table(results: dict[str, Any]) -> str:
    rows = []
    for fleet in results["fleets"]:
        if "error" in fleet:
            rows.append([str(fleet["members"]), fleet["error"], "", "", ""])
            continue
        rows.append(
            [
                str(fleet["members"]),
                f"{fleet['compile_seconds']:.1f}",
                f"{fleet['steps_per_second']:,.0f}",
                f"{fleet['milliseconds_per_collect_and_member']:.3f}",
                f"{fleet['milliseconds_per_update_and_member']:.4f}",
            ]
        )
    header = ["members", "compilation, s", "env steps/s, all", "ms a collect and member", "ms an update and member"]
    work = f"agent `{results['agent']}`, preset `{results['preset']}`"
    return "\n\n".join([table(header, rows), _device_line(results, work)])


def gpu_agents_table(results: dict[str, Any]) -> str:
    found = {(row["variant"], row["members"]): row for row in results["rows"]}
    sizes = sorted({members for _, members in found})
    rows, notes = [], []
    for variant in dict.fromkeys(variant for variant, _ in found):
        cells = []
        for members in sizes:
            row = found.get((variant, members), {"error": "not measured"})
            cells.append(row["error"] if "error" in row else f"{row['milliseconds_per_update']:.3f}")
            if "error" not in row:
                notes += _outside(variant, row, f" in a fleet of {members}")
        largest = found.get((variant, sizes[-1]), {})
        own = largest.get("milliseconds_per_update")
        rows.append([f"`{variant}`", *cells, "" if own is None else f"{own / sizes[-1]:.4f}"])
    header = [f"ms an update, fleet of {sizes[0]}", *(f"of {members}" for members in sizes[1:])]
    calls = min((row["calls"] for row in results["rows"] if "calls" in row), default=0)
    work = (
        f"preset `{results['preset']}`, {results['collects_per_call']} learning phases of {results['updates']} updates a "
        f"call, medians of {calls} calls or more"
    )
    commits = {row["commit"] for row in results["rows"]}
    if len(commits) > 1:
        work += f"; measured at several commits: {', '.join(sorted(map(str, commits)))}"
    text = table(["agent", *header, f"of {sizes[-1]}, a member"], rows)
    return "\n\n".join([text, *notes, _device_line(results, work)])


def learning_table(results: dict[str, Any]) -> str:
    rows = []
    for run in results["runs"]:
        if "error" in run:
            rows.append([f"`{run['variant']}`", run["error"], "", ""])
            continue
        finals = run["final_returns"]
        each = ", ".join(f"{value:.1f}" for value in finals)
        rows.append([f"`{run['variant']}`", f"{statistics.mean(finals):.1f}", each, str(run["diverged"])])
    text = table(["agent", "mean", "each seed", "diverged"], rows)
    length = f"{results['steps']:,} env steps, {results['seeds']} seeds"
    work = f"preset `{results['preset']}`, {results['environment']}, {length}"
    return "\n\n".join([text, _device_line(results, work)])


def presets_table(results: dict[str, Any]) -> str:
    rows = []
    for run in results["runs"]:
        each = ", ".join(f"{value:.3g}" for value in run["final_returns"])
        name, variant, mean = f"`{run['preset']}`", f"`{run['variant']}`", f"{run['mean']:.3g}"
        rows.append([name, variant, mean, each, str(run["diverged"]), f"{run['steps']:,}", run["commit"]])
    rows.sort(key=lambda row: row[0])
    text = table(["preset", "agent", "mean", "each seed", "diverged", "env steps", "commit"], rows)
    return "\n\n".join([text, _device_line(results, "whole presets, plain agents")])


def _device_line(results: dict[str, Any], work: str) -> str:
    machine = results["machine"]
    line = f"{work[0].upper()}{work[1:]}; {machine['device']}; {_versions(machine)}; {_origin(machine)}."
    return f"{line}\n\n{TRIAL}" if results.get("quick") else line


def _environment(results: dict[str, Any], make: Callable[..., str], work: str) -> str:
    return "\n\n".join([make(results, table), _device_line(results, work)])


def failed(section: dict[str, Any]) -> bool:
    """Whether a measurement of our own went wrong; a peer that cannot be had is no failure."""
    contestants = section.get("contestants", section)
    own = [result for name, result in contestants.items() if not name.startswith(PEERS)]
    return "error" in section or any("error" in result for result in own)


def update_page() -> None:
    """Put the tables of the stored results between the page's markers."""
    text = PAGE.read_text()
    makers: dict[str, Callable[[dict[str, Any]], str]] = {
        "cpu": cpu_tables,
        "gpu": gpu_table,
        "gpu_agents": gpu_agents_table,
        "learning": learning_table,
        "presets": presets_table,
        "ocloud": lambda found: _environment(found, ocloud_table, "synthetic tasks, uniformly random decisions"),
        "cityflow": lambda found: _environment(found, cityflow_table, "the generated 2x2 grid, random decisions"),
        "gpu_cityflow": lambda found: _environment(found, cityflow_table, "the generated 2x2 grid, random decisions"),
        "cityflow_scale": lambda found: _environment(found, scale_table, SCALE),
        "gpu_cityflow_scale": lambda found: _environment(found, scale_table, SCALE),
        "candidates": lambda found: _environment(found, candidates_table, "preset `cityflow`, batch 64"),
        "gpu_candidates": lambda found: _environment(found, candidates_table, "preset `cityflow`, batch 64"),
        "gpu_cityflow_training": lambda found: training_table(found, table),
        "zoo": lambda found: zoo_table(found, table),
    }
    for name, make in makers.items():
        path = RESULTS / f"{name}.json"
        tables = make(json.loads(path.read_text())) if path.exists() else "Not measured yet."
        pattern = re.compile(f"(<!-- {name}:begin\\b[^>]*-->\n).*(<!-- {name}:end -->)", re.DOTALL)
        # A function, so that backslashes in the tables stay what they are.
        text, count = pattern.subn(lambda found, tables=tables: f"{found[1]}\n{tables}\n\n{found[2]}", text)
        if count != 1:
            raise SystemExit(
                f"{PAGE} has no markers for {name}: put <!-- {name}:begin --> and <!-- {name}:end --> back."
            )
    PAGE.write_text(text)


def _range(result: dict[str, Any]) -> str:
    return f"{result['least']:,.0f} - {result['most']:,.0f}"


def _others(content: Any) -> list[float]:
    """Every record of how many cores other processes used."""
    if isinstance(content, dict):
        own = [content["others_used_cores"]] if "others_used_cores" in content else []
        return own + [value for part in content.values() for value in _others(part)]
    if isinstance(content, list):
        return [value for part in content for value in _others(part)]
    return []


if __name__ == "__main__":
    update_page()
