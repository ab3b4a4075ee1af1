"""Tables of O-Cloud's and CityFlow's speed, and of the default beside the Zoo, for report.py."""

import statistics
from collections.abc import Callable
from typing import Any

Table = Callable[[list[str], list[list[str]]], str]


def cityflow_table(results: dict[str, Any], table: Table) -> str:
    """Decisions and simulated seconds, by how many environments run side by side."""
    rows = [
        [
            str(row["envs"]),
            f"{row['decisions_per_second']['median']:,.0f}",
            f"{row['decisions_per_second']['least']:,.0f} - {row['decisions_per_second']['most']:,.0f}",
            f"{row['milliseconds_per_simulated_second']:.3f}",
            str(row["devices"]),
        ]
        for row in results["results"]
    ]
    return table(["environments", "decisions/s", "range", "ms a simulated second, all", "devices"], rows)


def scale_table(results: dict[str, Any], table: Table) -> str:
    """The engine by the size of the net, with what an earlier version took."""

    def both(row: dict[str, Any], name: str, form: str) -> str:
        earlier = f" ({row['before'][name]:{form}})" if "before" in row else ""
        return f"{row['this'][name]:{form}}{earlier}"

    rows = [
        [
            f"{row['size']} x {row['size']}",
            str(row["envs"]),
            f"{row['this']['lanes']:,}",
            f"{row['this']['mean_inside']:,.0f}",
            both(row, "build_seconds", ",.1f"),
            both(row, "compile_seconds", ",.1f"),
            both(row, "megabytes", ",.2f"),
            both(row, "steps_per_second", ",.0f"),
            f"{row['this']['vehicle_steps_per_second'] / 1e6:,.2f} M",
        ]
        for row in results["results"]
    ]
    headings = ["signals", "environments", "lanes", "vehicles inside", "build, s", "compile, s", "tables and state, MB"]
    return table([*headings, "steps/s", "vehicle-steps/s"], rows)


def candidates_table(results: dict[str, Any], table: Table) -> str:
    """The cost of an update by how the 256 actions are rolled out."""
    rows = [
        [
            run["rollouts"],
            str(run["members"]),
            f"{run['milliseconds_per_update']:.3f}",
            f"{run['temporary_megabytes']:,.0f}",
        ]
        for run in results["runs"]
    ]
    return table(["rollouts", "members", "ms an update, all", "temporaries, MB"], rows)


def ocloud_table(results: dict[str, Any], table: Table) -> str:
    """Decisions by how an episode's warm-up is had."""
    rows = [
        [
            row["warmup"],
            str(row["batch"]),
            f"{row['decisions_per_second']['median']:,.0f}",
            f"{row['decisions_per_second']['least']:,.0f} - {row['decisions_per_second']['most']:,.0f}",
        ]
        for row in results["results"]
    ]
    return table(["warm-up", "episodes side by side", "decisions/s", "range"], rows)


def training_table(results: dict[str, Any], table: Table) -> str:
    """A whole preset, seed by seed."""
    rows = [
        [
            str(member["seed"]),
            f"{member['final_return']:.1f}",
            f"{member['measures']['average_travel_time']:.1f}",
            f"{member['measures']['throughput']:.0f}",
        ]
        for member in results["members"]
    ]
    text = table(["seed", "final return", "average travel time, s", "vehicles through"], rows)
    return (
        f"{text}\n\n`sadq train cityflow sadq --seeds 5` on one H200: {results['steps']:,} env steps of "
        f"{len(results['members'])} members in {results['wall_seconds']:.0f} s, {results['compile_seconds']:.0f} s of it "
        "compilation; travel time and throughput are of the last evaluation, 8 episodes each."
    )


def zoo_table(results: dict[str, Any], table: Table) -> str:
    """Of every contestant the mean and the worst of its seeds, environment by environment."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for run in results["runs"]:
        found.setdefault((run["environment"], run["who"]), []).append(run)
    rows = []
    for (environment, who), runs in sorted(found.items()):
        returns = [run["return"] for run in runs]
        seconds = statistics.mean(run["core_seconds"] for run in runs)
        commits = ", ".join(sorted({run["commit"] for run in runs}))
        ends = f"{statistics.mean(returns):.4g}", f"{min(returns):.4g}"
        rows.append([f"{environment}, `{who}`", str(len(runs)), *ends, f"{seconds:.0f}", commits])
    header = ["environment, who", "seeds", "mean return", "worst seed", "processor seconds a seed", "commit"]
    return table(header, rows)
