"""Two run folders against each other, bit by bit: the final checkpoint's leaves, and the rows of metrics."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from report import table

Leaves = dict[str, np.ndarray]
Rows = list[dict[str, Any]]
NOT_A_RESULT = {"steps_per_second"}
"""Fields that tell of the machine."""


def compare(old: Path, new: Path) -> dict[str, Any]:
    """What agrees between two runs, and how far apart the rest is."""
    found: dict[str, Any] = {"leaves": compare_leaves(_final_leaves(old), _final_leaves(new))}
    for name in ("metrics", "evaluations"):
        found[name] = compare_rows(*(_rows(run / f"{name}.jsonl") for run in (old, new)))
    return found


def compare_leaves(old: Leaves, new: Leaves) -> dict[str, Any]:
    """Leaves of the same bytes belong together, whatever they are called and however many axes of one they have."""
    holders = defaultdict(list)
    for name, leaf in new.items():
        holders[leaf.tobytes()].append(name)
    only_old = []
    for name, leaf in old.items():
        same = holders[leaf.tobytes()]
        if same:
            same.remove(name if name in same else same[0])
        else:
            only_old.append(name)
    only_new = [name for name in new if any(name in names for names in holders.values())]
    equal = len(old) - len(only_old)
    pairs = _paired({name: old[name] for name in only_old}, {name: new[name] for name in only_new})

    def alone(names: list[str], side: str, own: Leaves, others: Leaves) -> dict[str, str]:
        paired = {pair[side] for pair in pairs}
        return {name: _form(own[name]) + _copies(own[name], others) for name in names if name not in paired}

    return {
        "equal": equal,
        "old": len(old),
        "new": len(new),
        "different": pairs,
        "only_old": alone(only_old, "old", old, new),
        "only_new": alone(only_new, "new", new, old),
        "largest": max((pair["largest"] for pair in pairs), default=0.0),
    }


def _paired(old: Leaves, new: Leaves) -> list[dict[str, Any]]:
    """Leaves that differ, each with the one that it was most likely before: of its size, by its name, else the nearest."""
    candidates = sorted(
        (name != other, _difference(leaf, new[other]), place, other)
        for place, (name, leaf) in enumerate(old.items())
        for other in new
        if new[other].size == leaf.size
    )
    names, pairs, taken = list(old), [], set()
    for _, largest, place, other in candidates:
        name = names[place]
        if ("old", name) in taken or ("new", other) in taken:
            continue
        taken |= {("old", name), ("new", other)}
        size = float(np.max(np.abs(old[name].astype(np.float64)), initial=0.0))
        forms = {"old_form": _form(old[name]), "new_form": _form(new[other])}
        pairs.append({"old": name, "new": other, **forms, "largest": largest, "largest_value": size})
    return pairs


def _copies(leaf: np.ndarray, others: Leaves) -> str:
    """One tree may hold twice what the other holds once."""
    same = [name for name, other in others.items() if other.tobytes() == leaf.tobytes()]
    return f", a copy of what is {same[0]} in the other" if same else ""


def _difference(old: np.ndarray, new: np.ndarray) -> float:
    """The largest absolute difference; infinite where only one of two numbers is finite."""
    left, right = old.astype(np.float64).ravel(), new.astype(np.float64).ravel()
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    apart = np.abs(np.where(same, 0.0, left) - np.where(same, 0.0, right))
    return float(np.max(np.where(np.isnan(apart), np.inf, apart), initial=0.0))


def compare_rows(old: Rows, new: Rows) -> dict[str, Any]:
    """Whether every field of every row is the same, to the last digit that was written."""
    fields = [{field for row in rows for field in row} - NOT_A_RESULT for rows in (old, new)]
    different = {}
    for field in sorted(fields[0] & fields[1]):
        pairs = [(left["step"], left.get(field), right.get(field)) for left, right in zip(old, new, strict=False)]
        apart = [(step, _apart(left, right)) for step, left, right in pairs if left != right]
        if apart:
            known = [amount for _, amount in apart if amount is not None]
            different[field] = {"first_step": apart[0][0], "rows": len(apart), "largest": max(known, default=None)}
    only_old, only_new = sorted(fields[0] - fields[1]), sorted(fields[1] - fields[0])
    return {
        "equal": len(old) == len(new) and not (different or only_old or only_new),
        "rows": [len(old), len(new)],
        "different": different,
        "only_old": only_old,
        "only_new": only_new,
    }


def _apart(old: Any, new: Any) -> float | None:
    """The largest difference of two numbers or equally long lists of them; None where one has no number."""
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        found = [_apart(*pair) for pair in zip(old, new, strict=True)]
        known = [one for one in found if one is not None]
        return max(known, default=0.0) if len(known) == len(found) else None
    numbers = isinstance(old, int | float) and isinstance(new, int | float)
    return abs(old - new) if numbers else None


def differences(found: dict[str, Any], most: int = 8) -> list[str]:
    """All that differs between two runs in words, the leaves with the largest differences first."""
    leaves, lines = found["leaves"], []
    pairs = sorted(leaves["different"], key=lambda pair: -pair["largest"])
    for pair in pairs[:most]:
        name = pair["old"] if pair["old"] == pair["new"] else f"{pair['old']} -> {pair['new']}"
        form = pair["old_form"] if pair["old_form"] == pair["new_form"] else f"{pair['old_form']} -> {pair['new_form']}"
        lines.append(f"{name} {form}: up to {pair['largest']:.3g}, values up to {pair['largest_value']:.3g}")
    if len(pairs) > most:
        lines.append(f"and {len(pairs) - most} leaves more")
    for tree in ("old", "new"):
        lines += [f"only in {tree}: {name} {form}" for name, form in leaves[f"only_{tree}"].items()]
    for kind in ("metrics", "evaluations"):
        rows = found[kind]
        if rows["rows"][0] != rows["rows"][1]:
            lines.append(f"{kind}: {rows['rows'][0]} rows -> {rows['rows'][1]}")
        for field, apart in rows["different"].items():
            amount = "a number in one only" if apart["largest"] is None else f"up to {apart['largest']:.3g}"
            lines.append(f"{kind}, {field}: {amount}, from step {apart['first_step']:,}, {apart['rows']} rows")
        for tree in ("old", "new"):
            lines += [f"{kind}, only in {tree}: {field}" for field in rows[f"only_{tree}"]]
    return lines


def bits_table(cases: dict[str, Any]) -> str:
    rows, notes = [], []
    for case, found in cases.items():
        if "error" in found:
            rows.append([f"`{case}`", found["error"], "", "", ""])
            continue
        leaves = found["leaves"]
        more = "" if leaves["old"] == leaves["new"] else f", new has {leaves['new']}"
        equal = ["yes" if found[kind]["equal"] else "no" for kind in ("metrics", "evaluations")]
        rows.append([f"`{case}`", f"{leaves['equal']}/{leaves['old']}{more}", *equal, f"{leaves['largest']:.3g}"])
        for part in (found, found.get("early")):
            if part is not None and differences(found):
                lines = differences(part) or ["nothing"]
                title = f"`{case}` after {part['steps']:,} steps differs in"
                notes.append("\n".join([title, "", *(f"- {line}" for line in lines)]))
    header = ["preset/agent", "leaves equal", "metrics equal", "evaluations equal", "largest difference of a leaf"]
    same = sum(1 for found in cases.values() if "error" not in found and not differences(found))
    return "\n\n".join([table(header, rows), f"{same} of {len(cases)} cases are the same in every bit.", *notes])


def _final_leaves(run: Path) -> Leaves:
    return load_file(max(run.glob("checkpoints/*/state.safetensors")))


def _rows(path: Path) -> Rows:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _form(leaf: np.ndarray) -> str:
    return f"{leaf.dtype}{list(leaf.shape)}"
