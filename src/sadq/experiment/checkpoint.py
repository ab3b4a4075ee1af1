"""Checkpoints: one safetensors file and one JSON file, checksummed, put in place atomically, the last two kept.

Nothing here can run code on loading: tensors are read as bytes with a shape, and everything else is JSON.
"""

import errno
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from sadq.errors import SadqError
from sadq.types import PyTree

FORMAT = 1
TENSORS, META = "state.safetensors", "checkpoint.json"
KEPT = 2
RECORDED = {"step", "wall_seconds", "compile_seconds", "exact"}
"""What whoever saves a checkpoint says of it beside its tensors."""


def write_atomically(path: Path, content: bytes) -> None:
    """Replace `path` by `content`, or leave it as it was."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, data: Any) -> None:
    """JSON, atomically."""
    write_atomically(path, (json.dumps(data, indent=2, allow_nan=False) + "\n").encode())


def named_leaves(tree: PyTree) -> dict[str, np.ndarray]:
    """The arrays of a state by their path in it."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def fill(template: PyTree, tensors: dict[str, np.ndarray], where: Path) -> PyTree:
    """`template` with the stored arrays in its leaves, on the devices where the template's are."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(template)
    filled = []
    for path, leaf in leaves:
        name = jax.tree_util.keystr(path)
        stored = tensors.get(name)
        if stored is None or stored.shape != leaf.shape or stored.dtype != leaf.dtype:
            found = "nothing" if stored is None else f"{stored.dtype}{list(stored.shape)}"
            raise SadqError(
                f"Checkpoint {where} does not belong to this run: {name} should be {leaf.dtype}{list(leaf.shape)} "
                f"but the file has {found}; resume the run that it was saved by."
            )
        # Bound to a device only where the template is: JAX compiles another program for arguments that are.
        filled.append(jax.device_put(stored, leaf.sharding) if leaf.committed else jnp.asarray(stored))
    unknown = tensors.keys() - {jax.tree_util.keystr(path) for path, _ in leaves}
    if unknown:
        raise SadqError(
            f"Checkpoint {where} does not belong to this run: it holds {min(unknown)}, for which the run has no place; "
            "resume the run that it was saved by."
        )
    return jax.tree.unflatten(structure, filled)


def save(folder: Path, collect: int, state: PyTree, outside: dict[str, np.ndarray], meta: dict[str, Any]) -> Path:
    """Write the checkpoint after `collect` collects; the previous ones survive if it fails."""
    final = folder / f"{collect:010d}"
    temporary = folder / f".{final.name}.{os.getpid()}.tmp"
    tensors = {f"state{name}": value for name, value in named_leaves(state).items()}
    tensors |= {f"outside.{name}": np.asarray(value) for name, value in outside.items()}
    content = save_tensors({name: np.asarray(value, order="C") for name, value in tensors.items()})
    record = {"format": FORMAT, "collect": collect, "sha256": hashlib.sha256(content).hexdigest(), **meta}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for stale in folder.glob(".*.tmp"):  # of processes that were killed while saving
            shutil.rmtree(stale, ignore_errors=True)
        temporary.mkdir()
        write_atomically(temporary / TENSORS, content)
        write_json(temporary / META, record)
        if final.exists():
            shutil.rmtree(final)
        os.replace(temporary, final)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        reason = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror
        older = latest(folder)
        rest = (
            f"; the previous one, {older}, is intact: make room and resume" if older else ": make room and start again"
        )
        raise SadqError(
            f"Could not save a checkpoint of {len(content):,} bytes under {folder}: {reason}{rest}."
        ) from error
    for old in _all(folder)[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return final


def latest(folder: Path) -> Path | None:
    """The newest complete checkpoint."""
    found = _all(folder)
    return found[-1] if found else None


def load(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray], dict[str, np.ndarray]]:
    """(meta, state tensors, outside tensors) of a checkpoint, verified against its checksum."""
    try:
        meta = json.loads((path / META).read_text())
        content = (path / TENSORS).read_bytes()
    except (OSError, ValueError) as error:
        raise SadqError(f"Checkpoint {path} cannot be read ({error}): {_advice(path)}") from error
    if (
        not isinstance(meta, dict)
        or meta.get("format") != FORMAT
        or not isinstance(meta.get("collect"), int)
        or not meta.keys() >= RECORDED
    ):
        raise SadqError(f"{path / META} is not the record of a checkpoint of this version: {_advice(path)}")
    if hashlib.sha256(content).hexdigest() != meta.get("sha256"):
        raise SadqError(f"Checkpoint {path} is damaged: {TENSORS} does not match its checksum; {_advice(path)}")
    try:
        tensors = load_tensors(content)
    except SafetensorError as error:
        raise SadqError(f"{path / TENSORS} is not a safetensors file ({error}): {_advice(path)}") from error
    state = {name.removeprefix("state"): value for name, value in tensors.items() if name.startswith("state")}
    outside = {name.removeprefix("outside."): value for name, value in tensors.items() if name.startswith("outside.")}
    return meta, state, outside


def _all(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("[0-9]*") if path.is_dir()) if folder.is_dir() else []


def _advice(path: Path) -> str:
    return f"delete {path} to resume from the checkpoint before it, or from the start if there is none."
