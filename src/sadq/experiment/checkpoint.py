"""Checkpoints: one safetensors file and one JSON file, checksummed, put in place atomically, the last two kept.

Nothing here can run code on loading: tensors are read as bytes with a shape, and everything else is JSON.
"""

import contextlib
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy

from sadq.errors import SadqError
from sadq.types import PyTree

FORMAT = 1
TENSORS, META = "state.safetensors", "checkpoint.json"
KEPT = 2
RECORDED = {"step", "wall_seconds", "compile_seconds", "exact"}
"""What whoever saves a checkpoint says of it beside its tensors."""


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A place beside `path` for a file or folder, moved to it when all went well; else what was there stays."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield beside
        if path.is_dir():
            shutil.rmtree(path)
        os.replace(beside, path)
    finally:
        if beside.is_dir():
            shutil.rmtree(beside, ignore_errors=True)
        else:
            beside.unlink(missing_ok=True)


def write_atomically(path: Path, content: bytes) -> None:
    """Replace `path` by `content`, or leave it as it was."""
    with replacing(path) as beside, open(beside, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def write_json(path: Path, data: Any) -> None:
    write_atomically(path, (json.dumps(data, indent=2, allow_nan=False) + "\n").encode())


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
    """`template` with the stored arrays in its leaves, on the devices where the template's are.

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
        jax.device_put(tensors[name], leaf.sharding) if leaf.committed else jnp.asarray(tensors[name])
        for name, leaf in places.items()
    ]
    return jax.tree.unflatten(structure, filled)


def _kinds(arrays: dict[str, Any]) -> dict[str, str]:
    return {name: f"{array.dtype}{list(array.shape)}" for name, array in arrays.items()}


def save(folder: Path, collect: int, state: PyTree, outside: dict[str, np.ndarray], meta: dict[str, Any]) -> Path:
    """Write the checkpoint after `collect` collects; the previous ones survive if it fails."""
    final = folder / f"{collect:010d}"
    tensors = {f"state{name}": value for name, value in named_leaves(state).items()}
    tensors |= {f"outside.{name}": np.asarray(value) for name, value in outside.items()}
    content = safetensors.numpy.save({name: np.asarray(value, order="C") for name, value in tensors.items()})
    record = {"format": FORMAT, "collect": collect, "sha256": hashlib.sha256(content).hexdigest(), **meta}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for stale in folder.glob(".*.tmp"):  # of processes that were killed while saving
            shutil.rmtree(stale, ignore_errors=True)
        with replacing(final) as beside:
            beside.mkdir()
            write_atomically(beside / TENSORS, content)
            write_json(beside / META, record)
    except OSError as error:
        reason = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror
        older, size = latest(folder), f"{len(content):,} bytes"
        intact = f"; the previous one, {older}, is intact: make room and resume"
        rest = intact if older else ": make room and start again"
        raise SadqError(f"Could not save a checkpoint of {size} under {folder}: {reason}{rest}.") from error
    for old in _all(folder)[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return final


def latest(folder: Path) -> Path | None:
    """The newest complete checkpoint."""
    return max(_all(folder), default=None)


def load(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray], dict[str, np.ndarray]]:
    """(meta, state tensors, outside tensors) of a checkpoint, verified against its checksum."""
    advice = f"delete {path} to resume from the checkpoint before it, or from the start if there is none."
    try:
        meta = json.loads((path / META).read_text())
        content = (path / TENSORS).read_bytes()
    except (OSError, ValueError) as error:
        raise SadqError(f"Checkpoint {path} cannot be read ({error}): {advice}") from error
    known = isinstance(meta, dict) and meta.keys() >= RECORDED and meta.get("format") == FORMAT
    if not known or not isinstance(meta.get("collect"), int):
        raise SadqError(f"{path / META} is not the record of a checkpoint of this version: {advice}")
    if hashlib.sha256(content).hexdigest() != meta.get("sha256"):
        raise SadqError(f"Checkpoint {path} is damaged: {TENSORS} does not match its checksum; {advice}")
    try:
        tensors = safetensors.numpy.load(content)
    except safetensors.SafetensorError as error:
        raise SadqError(f"{path / TENSORS} is not a safetensors file ({error}): {advice}") from error
    state = {name.removeprefix("state"): value for name, value in tensors.items() if name.startswith("state")}
    outside = {name.removeprefix("outside."): value for name, value in tensors.items() if name.startswith("outside.")}
    return meta, state, outside


def _all(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("[0-9]*") if path.is_dir())
