"""Checkpoints: one safetensors file and one JSON file, checksummed, put in place atomically, the last two kept.

Nothing here can run code on loading: tensors are read as bytes with a shape, and everything else is JSON.
"""

import contextlib
import errno
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy

from sadq.envs.contract import one_line
from sadq.errors import SadqError
from sadq.experiment import storage
from sadq.experiment.storage import TEMPORARY, as_json, replacing
from sadq.types import PyTree

FORMAT = 2
TENSORS, META = "state.safetensors", "checkpoint.json"
KEPT = 2
RECORDED: dict[str, Any] = {
    "step": int,
    "wall_seconds": int | float,
    "compile_seconds": int | float,
    "exact": bool,
    "origin": int,
    "chunk": int,
    "rows": dict,
}
"""What whoever saves a checkpoint says of it beside its tensors."""
EARLIER: dict[str, Any] = {"origin": 0, "chunk": 0, "rows": {}}
"""What records of format 1 do not say: their runs began at 0, and nobody counted rows."""


def named_leaves(tree: PyTree) -> dict[str, np.ndarray]:
    """The arrays of a state by their path in it."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def fill(
    template: PyTree,
    tensors: dict[str, np.ndarray],
    where: Path,
    padded: Callable[[PyTree], PyTree] = lambda stored: stored,
) -> PyTree:
    """`template`, of arrays or of their shapes, with the stored arrays in its leaves, where the template's lie.

    `padded` adds what the template has beside what is stored: a fleet's idle copies. On the host, so that no device ever
    holds more than its share.
    """
    tensors = padded(tensors)
    leaves, structure = jax.tree_util.tree_flatten_with_path(template)
    places = {jax.tree_util.keystr(path): leaf for path, leaf in leaves}
    kinds, stored = _kinds(places), _kinds(tensors)
    problems = [
        f"{name} should be {kind} but the file has {stored.get(name, 'nothing')}"
        for name, kind in kinds.items()
        if stored.get(name) != kind
    ]
    problems += [f"it holds {name}, for which the run has no place" for name in sorted(stored.keys() - kinds)]
    if problems:
        advice = "resume the run that it was saved by"
        raise SadqError(f"Checkpoint {where} does not belong to this run: {problems[0]}; {advice}.")
    # Bound to a device only where the template is: JAX compiles another program for arguments that are.
    filled = [
        jax.device_put(tensors[name], leaf.sharding)
        if getattr(leaf, "committed", False)
        else jnp.asarray(tensors[name])
        for name, leaf in places.items()
    ]
    return jax.tree.unflatten(structure, filled)


def _kinds(arrays: dict[str, Any]) -> dict[str, str]:
    return {name: f"{array.dtype}{list(array.shape)}" for name, array in arrays.items()}


def save(folder: Path, collect: int, state: PyTree, outside: dict[str, np.ndarray], meta: dict[str, Any]) -> Path:
    """Write the checkpoint after `collect` collects; the previous ones survive if it fails."""
    return write(folder, collect, named_leaves(state), outside, meta)


def write(
    folder: Path, collect: int, state: dict[str, np.ndarray], outside: dict[str, np.ndarray], meta: dict[str, Any]
) -> Path:
    """`save` for arrays by their path in a state, as `load` gives them."""
    final = folder / f"{collect:010d}"
    tensors = {f"state{name}": value for name, value in state.items()}
    tensors |= {f"outside.{name}": np.asarray(value) for name, value in outside.items()}
    content = safetensors.numpy.save({name: np.asarray(value, order="C") for name, value in tensors.items()})
    record = {"format": FORMAT, "collect": collect, "sha256": hashlib.sha256(content).hexdigest(), **meta}
    try:
        storage.make_folders(folder)
        for stale in folder.glob(f".*{TEMPORARY}"):  # of processes that were killed while saving
            storage.remove(stale)
        with replacing(final) as beside:
            storage.make(beside)
            storage.write(beside / TENSORS, content)
            storage.write(beside / META, as_json(record | {"record_sha256": _checksum(record)}))
    except OSError as error:
        reason = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror
        older, size = latest(folder), f"{len(content):,} bytes"
        intact = f"; the previous one, {older}, is intact: make room and resume"
        rest = intact if older else ": make room and start again"
        raise SadqError(f"Could not save a checkpoint of {size} under {folder}: {reason}{rest}.") from error
    for old in _all(folder)[:-KEPT]:
        with contextlib.suppress(OSError):  # the next save tries again
            storage.discard(old)
    return final


def latest(folder: Path) -> Path | None:
    """The newest complete checkpoint."""
    return max(_all(folder), default=None)


def recover(folder: Path) -> None:
    """Put back a checkpoint that a kill left aside while another was to take its place."""
    for aside in folder.glob(f".*{storage.PREVIOUS}"):
        storage.recover(folder / aside.name[1:].removesuffix(storage.PREVIOUS))


def read_record(path: Path) -> dict[str, Any]:
    """What a checkpoint says of itself, verified against its own checksum."""
    try:
        record = json.loads((path / META).read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise SadqError(f"Checkpoint {path} cannot be read ({one_line(error)}): {_advice(path)}") from error
    known = isinstance(record, dict) and record.get("format") in (1, FORMAT)
    earlier = known and record["format"] == 1
    told = {name: value for name, value in record.items() if name != "record_sha256"} if known else {}
    kinds = {name: kind for name, kind in RECORDED.items() if not (earlier and name in EARLIER)}
    kinds |= {"format": int, "collect": int, "sha256": str}
    if told.keys() != kinds.keys() or not all(_is(told[name], kind) for name, kind in kinds.items()):
        raise SadqError(f"{path / META} is not the record of a checkpoint of this version: {_advice(path)}")
    if not earlier and _checksum(told) != record.get("record_sha256"):
        raise SadqError(f"Checkpoint {path} is damaged: {META} does not match its checksum; {_advice(path)}")
    return (EARLIER if earlier else {}) | told


def load(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray], dict[str, np.ndarray]]:
    """(meta, state tensors, outside tensors) of a checkpoint, verified against its checksum."""
    meta = read_record(path)
    try:
        content = (path / TENSORS).read_bytes()
    except OSError as error:
        raise SadqError(f"Checkpoint {path} cannot be read ({one_line(error)}): {_advice(path)}") from error
    if hashlib.sha256(content).hexdigest() != meta["sha256"]:
        raise SadqError(f"Checkpoint {path} is damaged: {TENSORS} does not match its checksum; {_advice(path)}")
    try:
        tensors = safetensors.numpy.load(content)
    except Exception as error:  # of several kinds, some of them from beyond Python
        raise SadqError(f"{path / TENSORS} is not a safetensors file ({one_line(error)}): {_advice(path)}") from error
    state = {name.removeprefix("state"): value for name, value in tensors.items() if name.startswith("state")}
    outside = {name.removeprefix("outside."): value for name, value in tensors.items() if name.startswith("outside.")}
    return meta, state, outside


def _advice(path: Path) -> str:
    return f"delete {path} to resume from the checkpoint before it, or from the start if there is none."


def _is(value: Any, kind: Any) -> bool:
    """Whether a value is of a kind; a bool, to Python an int, is no count."""
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _checksum(record: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def _all(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("[0-9]*") if path.is_dir())
