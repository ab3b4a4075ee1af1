"""Files that a kill or a power cut leaves whole: written beside their place, synced, moved there, their folder synced.

Everything that a run writes goes through the seven verbs at the end of this module, so a test can cut the power after each.
"""

import contextlib
import ctypes
import errno
import functools
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

TEMPORARY, PREVIOUS = ".tmp", ".previous"
UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
"""What a file system answers that does not know an operation."""


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A place beside `path` for a file or folder, moved to it when all went well; else what was there stays.

    At every moment `path` is the old or the new one, whole; a replaced folder is deleted only once the new one is safe.
    """
    beside = temporary(path)
    remove(beside)
    try:
        yield beside
        _sync_all(beside)
        if beside.is_dir() and path.is_dir():
            _swap(beside, path)
        else:
            move(beside, path)
        sync(path.parent)
        remove(_previous(path))
    finally:
        remove(beside)


def temporary(path: Path) -> Path:
    """Where what is to be `path`, or was, lies beside it while it is not whole."""
    return path.with_name(f".{path.name}.{os.getpid()}{TEMPORARY}")


def recover(path: Path) -> None:
    """Put back what a kill between the two halves of a swap left aside."""
    if _previous(path).exists():
        if path.exists():
            remove(_previous(path))
        else:
            move(_previous(path), path)
            sync(path.parent)


def discard(path: Path) -> None:
    """Delete a folder that stays recognisable as deleted wherever that is interrupted."""
    aside = temporary(path)
    remove(aside)
    move(path, aside)
    remove(aside)


def write_atomically(path: Path, content: bytes) -> None:
    """Replace the file `path` by `content`, or leave it as it was."""
    with replacing(path) as beside:
        write(beside, content)


def write_json(path: Path, data: Any) -> None:
    write_atomically(path, as_json(data))


def as_json(data: Any) -> bytes:
    return (json.dumps(data, indent=2, allow_nan=False) + "\n").encode()


def make_folders(path: Path) -> None:
    """A folder and the missing ones above it, each known to the one that it lies in."""
    if not path.is_dir():
        make_folders(path.parent)
        make(path)
        sync(path.parent)


def remove(path: Path) -> None:
    """Delete a file, or a folder with all that is in it; nothing where there is nothing."""
    if path.is_dir() and not path.is_symlink():
        for inside in sorted(path.iterdir()):
            remove(inside)
        drop(path)
    elif path.is_symlink() or path.exists():
        drop(path)


def _sync_all(path: Path) -> None:
    """A file or folder with all that is in it, the inner parts first."""
    if path.is_dir():
        for inside in sorted(path.iterdir()):
            _sync_all(inside)
    sync(path)


def _swap(beside: Path, path: Path) -> None:
    """Two folders change places: at once where the file system can, else by two moves that `recover` can take back."""
    try:
        exchange(beside, path)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
        remove(_previous(path))
        move(path, _previous(path))
        move(beside, path)


def _previous(path: Path) -> Path:
    return path.with_name(f".{path.name}{PREVIOUS}")


# The verbs: nothing else in a run changes a file.


def write(path: Path, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)


def append(path: Path, content: bytes) -> None:
    with open(path, "ab") as file:
        file.write(content)


def make(path: Path) -> None:
    path.mkdir(exist_ok=True)


def move(source: Path, target: Path) -> None:
    os.replace(source, target)


def exchange(one: Path, other: Path) -> None:
    """Two paths change what they name, in one step."""
    call, *arguments = _exchanging()
    first, second = os.fsencode(one), os.fsencode(other)
    places = (arguments[0], first, arguments[0], second) if arguments[0] is not None else (first, second)
    if call(*places, arguments[1]) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(one), None, str(other))


def drop(path: Path) -> None:
    """Delete one file or empty folder."""
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on the disk."""
    folder = path.is_dir()
    if folder and os.name == "nt":  # which keeps such lists by itself, and opens no folders
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if not folder or error.errno not in UNSUPPORTED:
            raise
    finally:
        os.close(handle)


@functools.cache
def _exchanging() -> tuple[Callable[..., int], int | None, int]:
    """(the system's call, its first argument before each path if it takes one, its flag)."""
    library: Any = ctypes.CDLL(None, use_errno=True) if os.name == "posix" else None
    if sys.platform.startswith("linux") and hasattr(library, "renameat2"):
        return library.renameat2, -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    if sys.platform == "darwin" and hasattr(library, "renamex_np"):
        return library.renamex_np, None, 2  # RENAME_SWAP
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
