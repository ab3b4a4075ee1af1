"""An artefact in tables: its arms, what their environments measure, where its runs come from, and the time they took."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from claims.judging import middle
from claims.records import Arm, Contrast, Place, Results, short
from claims.training import NAMES
from sadq.report.names import measured_in_words
from sadq.report.paper import ATARI, ATARI_AGENTS
from sadq.report.stats import interval, number, p_in_words

MEASURES = ("steps_to_threshold", "area_under_curve", "final_return")
COMPARED = ("area_under_curve", "final_return")


def markdown(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table's lines."""
    every = [list(titles), ["---"] * len(titles), *map(list, rows)]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in every]


def place_name(preset: str) -> str:
    return NAMES.get(preset, preset.removeprefix("atari/"))


def arms_table(place: Place) -> list[str]:
    """Interquartile means over the seeds, and the paired difference of each arm with the one that it is compared with."""
    threshold = place.data["threshold"]
    reach = "threshold" if threshold is None else number(threshold)
    titles = ["arm", "seeds", f"steps to {reach}", "area", "final return", "against", "area, paired", "final, paired"]
    rows = []
    for arm in place.arms.values():
        reached = f" ({arm.data['reached_threshold']} there)" if threshold is not None else ""
        cells = [interval(arm.middle(name)) for name in MEASURES]
        contrast = place.contrasts.get(arm.label)
        against = [f"`{contrast.base}`", *(_paired(contrast, name) for name in COMPARED)] if contrast else ["", "", ""]
        outcome = contrast.outcome() if contrast else ""
        rows.append([f"`{arm.label}`", str(len(arm.seeds)), cells[0] + reached, *cells[1:], *against, outcome])
    return markdown([*titles, "in all"], rows)


def _paired(contrast: Contrast, name: str) -> str:
    found, p_value = contrast.difference(name), contrast.p_value(name)
    chance = "" if p_value is None else f", {p_in_words(p_value)}"
    return f"{interval(found, signed=True)}{chance}"


def measures_table(place: Place) -> list[str]:
    """What the environment measures beside returns, over the last five evaluations."""
    names = list(dict.fromkeys(name for arm in place.arms.values() for name in arm.data["measures"]))
    if not names:
        return []
    rows = [[f"`{arm.label}`", *(_measured(arm, place, name) for name in names)] for arm in place.arms.values()]
    return ["", *markdown(["arm", *(measured_in_words(name)[0].lower() for name in names)], rows)]


def _measured(arm: Arm, place: Place, name: str) -> str:
    values = arm.data["measures"].get(name)
    if not values or None in values:
        return ""
    return interval(middle(dict(zip(arm.seeds, values, strict=True)), place.preset, arm.label, name))


def games_table(results: Results) -> list[str]:
    """Atari games played so far, beside the paper's numbers."""
    rows = []
    for (game, agent), data in results.games.items():
        known = game in ATARI and agent in ATARI_AGENTS
        paper = number(ATARI[game][ATARI_AGENTS.index(agent)]) if known else "–"
        cells = []
        for name in ("signed", "raw", "human_normalised"):
            last = {member["seed"]: member[name][-1] for member in data["members"]}
            cells.append(interval(middle(last, game, agent, name)))
        rows.append([game, f"`{agent}`", str(len(data["members"])), paper, *cells, short(data["machine"]["commit"])])
    titles = ["game", "agent", "seeds", "paper", "signed, of a life", "raw", "human-normalised", "commit"]
    return markdown(titles, rows)


def origins(made: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A line for every machine, commit and command that runs were trained by."""
    for one in made:
        versions = ", ".join(f"{name} {value}" for name, value in one["versions"].items() if value)
        fleets = f"{one['fleets']} fleet{'s' * (one['fleets'] > 1)}" if "fleets" in one else "computed"
        yield f"- {fleets}: `{one['command']}`, commit {short(one['commit'])}, {one['device']}, {versions}."


def unfinished(missing: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """A line for every preset of which arms were not run."""
    for preset, labels in missing.items():
        yield f"- Not yet run on {place_name(preset)}: {', '.join(f'`{label}`' for label in labels)}."


def times(results: Results, order: Sequence[str]) -> list[str]:
    """Machine time by artefact and device; what several artefacts share is counted once in the last rows."""
    rows: list[list[str]] = []
    fleets: dict[str, dict[tuple[str, str, float], Arm]] = {}  # by device
    for name in order:
        record = results.records.get(name)
        if record is None:
            continue
        own: dict[str, dict[tuple[str, str, float], Arm]] = {}
        for place in record.places.values():
            of_device = own.setdefault(" and ".join(place.devices), {})
            for arm in place.arms.values():
                of_device[place.preset, arm.label, arm.data["seconds"]["wall_seconds"]] = arm
        for device, arms in own.items():
            rows.append([f"`{name}`", *_spent(list(arms.values())), device])
            fleets.setdefault(device, {}).update(arms)
        if not own and "seconds" in record.data:
            devices = " and ".join(sorted({str(one["device"]) for one in record.origins}))
            rows.append([f"`{name}`", "–", "–", "–", _minutes(record.data["seconds"]), "–", devices])
    for device, arms in fleets.items():
        rows.append(["**all, shared fleets once**", *_spent(list(arms.values())), device])
    titles = ["artefact", "fleets", "members", "env steps", "minutes", "of them compiling", "device"]
    return markdown(titles, rows) if rows else ["Not yet run."]


def _spent(arms: Sequence[Arm]) -> list[str]:
    members = sum(len(arm.seeds) for arm in arms)
    steps = sum(len(arm.seeds) * arm.steps for arm in arms)
    totals = {name: sum(arm.data["seconds"][name] for arm in arms) for name in ("wall_seconds", "compile_seconds")}
    compiling = _minutes({"wall_seconds": totals["compile_seconds"]})
    return [str(len(arms)), f"{members:,}", f"{steps / 1e6:,.1f}M", _minutes(totals), compiling]


def _minutes(seconds: Mapping[str, float]) -> str:
    return f"{seconds['wall_seconds'] / 60:,.1f}"
