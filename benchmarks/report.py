"""Tables from results/cpu.json and results/gpu.json; `python benchmarks/report.py` writes them into README.md."""

import json
import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PAGE = HERE / "README.md"
CPU_RESULTS, GPU_RESULTS = HERE / "results" / "cpu.json", HERE / "results" / "gpu.json"
BUSY = 0.1
"""Cores that others may use during a measurement before the tables say so."""

NAMES = {
    "ours": "sadq `dqn`",
    "sb3": "Stable-Baselines3, its own choice of threads",
    "sb3, one thread": "Stable-Baselines3, one thread",
    "sbx": "SBX",
}


def table(header: list[str], rows: list[list[str]]) -> str:
    """Markdown, padded so that it reads as plain text too; all columns but the first hold numbers."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]

    def line(cells: list[str]) -> str:
        numbers = [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)][1:]
        return f"| {' | '.join([cells[0].ljust(widths[0]), *numbers])} |"

    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join([line(header), line(rule), *map(line, rows)])


def cpu_tables(results: dict[str, Any]) -> str:
    """All sections that were measured."""
    makers = {"peers": peers_table, "sadq": sadq_table, "update": update_table, "compile": compile_table}
    parts = [machine_lines(results)]
    for section, make in makers.items():
        content = results.get(section)
        if content is not None:
            parts.append(f"Failed: {section}: {content['error']}" if "error" in content else make(content))
    return "\n\n".join(parts)


def machine_lines(results: dict[str, Any]) -> str:
    """What was measured on, when and how, and whether it may be believed."""
    machine, settings = results["machine"], results["settings"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items() if version)
    lines = [
        f"{machine['cpu']}, {machine['usable_cores']} cores, {machine['memory_gigabytes']} GB; "
        f"Python {machine['python']}, {versions}; commit {machine['commit']}; {machine['date']}; "
        f"`{machine['command']}`; medians of {settings['repetitions']}."
    ]
    busiest = max(_others(results), default=0.0)
    if busiest > BUSY:
        lines.append(f"**The machine was busy: other processes used up to {busiest:.1f} cores during a measurement.**")
    if settings["quick"]:
        lines.append("**A quick trial of the script, not a measurement.**")
    return "\n\n".join(lines)


def peers_table(content: dict[str, Any]) -> str:
    contestants = content["contestants"]
    own = contestants["ours"].get("median")
    rows = []
    for name, result in contestants.items():
        if "error" in result:
            rows.append([NAMES[name], result["error"], "", ""])
            continue
        ratio = "" if name == "ours" or own is None else f"{own / result['median']:.2f}"
        rows.append([NAMES[name], f"{result['median']:,.0f}", _range(result), ratio])
    text = table(["DQN, 8 environments", "env steps/s", "least - most", "sadq is faster by"], rows)
    versions = [
        ", ".join(f"{package} {number}" for package, number in found.items())
        for found in content["versions"].values()
        if "error" not in found
    ]
    if not content["same_layers"]:
        versions.append("**the networks differ in size, so this is no fair comparison**")
    return text + ("\n\nPeers: " + "; ".join(versions) + "." if versions else "")


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
    machine = results["machine"]
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
    described = (
        f"{machine['device']}; Python {machine['python']}, jax {machine['versions']['jax']}; "
        f"commit {machine['commit']}; {machine['date']}; `{machine['command']}`; "
        f"agent `{results['agent']}`, preset `{results['preset']}`."
    )
    if results["quick"]:
        described += "\n\n**A quick trial of the script, not a measurement.**"
    return described + "\n\n" + table(header, rows)


def failed(section: dict[str, Any]) -> bool:
    """Whether a measurement of our own went wrong; a peer that cannot be had is no failure."""
    contestants = section.get("contestants", section)
    own = [result for name, result in contestants.items() if not name.startswith(("sb3", "sbx"))]
    return "error" in section or any("error" in result for result in own)


def update_page() -> None:
    """Put the tables of the stored results between the page's markers."""
    text = PAGE.read_text()
    for name, path, make in (("cpu", CPU_RESULTS, cpu_tables), ("gpu", GPU_RESULTS, gpu_table)):
        tables = make(json.loads(path.read_text())) if path.exists() else "Not measured yet."
        pattern = re.compile(f"(<!-- {name}:begin[^>]*-->\n).*(<!-- {name}:end -->)", re.DOTALL)
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
