"""One writer at a time: the lock of a run folder, which the system lets go with its process, however that ends."""

import contextlib
import errno
import json
import os
import socket
import sys
import time
import weakref
from pathlib import Path
from typing import Any

from sadq.errors import SadqError

try:
    import fcntl
except ImportError:  # on Windows, where what the file says has to do
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"
BUSY = (errno.EWOULDBLOCK, errno.EACCES)


class Lock:
    """Held from its making to `release` or the end of the process; the file says by whom.

    The file that a killed process leaves behind holds nobody up: the lock is the system's, and went with the process. Only
    where a file system has no locks is the file's word taken, as long as the process that it names may be alive.
    """

    def __init__(self, folder: Path):
        self.path = folder / LOCK
        while True:
            # Not through `open`, whose file would be truncated or not be readable.
            self._handle: int | None = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            by_system = self._ask()
            holder = _record(self._handle)
            if by_system is False or (by_system is None and holder and _may_live(holder)):
                self._close()
                over = "" if by_system is False else f", or delete {self.path} if that is over"
                raise SadqError(f"{folder} is in use by {_shown(holder)}: wait until it is done, or stop it{over}.")
            if self._current():
                break
            self._close()  # its holder deleted it between our opening and our locking it
        os.truncate(self._handle, 0)
        os.lseek(self._handle, 0, os.SEEK_SET)
        os.write(self._handle, json.dumps(_own_record()).encode())
        _HELD.add(self)

    def release(self) -> None:
        """Let others write; the file goes first, so that nobody can hold one that is no longer there."""
        if self._handle is not None:
            if self._current():  # and not that of a folder which took this one's place
                with contextlib.suppress(OSError):
                    self.path.unlink()
            self._close()

    def __del__(self) -> None:
        self._close()

    def _ask(self) -> bool | None:
        """Whether the lock is ours now; None where the file system has none."""
        if fcntl is None:
            return None
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # type: ignore[arg-type]
        except OSError as error:
            return False if error.errno in BUSY else None
        return True

    def _current(self) -> bool:
        """Whether the file that we opened is still the one under its name."""
        try:
            return os.path.samestat(os.fstat(self._handle), os.stat(self.path))  # type: ignore[arg-type]
        except (FileNotFoundError, NotADirectoryError):
            return False

    def _close(self) -> None:
        handle, self._handle = getattr(self, "_handle", None), None
        if handle is not None:
            os.close(handle)


_HELD: weakref.WeakSet[Lock] = weakref.WeakSet()


def _forget() -> None:
    """In a forked child: it would hold the lock for as long as it lives."""
    for lock in list(_HELD):
        lock._close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _own_record() -> dict[str, Any]:
    process = os.getpid()
    return {
        "process": process,
        "host": socket.gethostname(),
        "began": _began(process),
        "since": time.strftime("%Y-%m-%d %H:%M:%S"),
        "command": " ".join([Path(sys.argv[0] or "python").name, *sys.argv[1:]])[:200],
    }


def _record(handle: int) -> dict[str, Any]:
    """What the file says; nothing where its writer has not come to that."""
    try:
        found = json.loads(os.read(handle, 10_000))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _shown(holder: dict[str, Any]) -> str:
    if not holder:
        return "another process"
    told = {name: holder.get(name, "?") for name in ("process", "host", "command", "since")}
    return "process {process} on {host} ({command}, since {since})".format(**told)


def _may_live(holder: dict[str, Any]) -> bool:
    """Whether the process of a record may still be there: one on another machine always may."""
    if holder.get("host") != socket.gethostname():
        return True
    return holder.get("began") is not None and _began(holder.get("process")) == holder["began"]


def _began(process: Any) -> str | None:
    """When a process began, counted from which start of the machine; None where there is none, or nobody says."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        # The command's name, in brackets, may hold spaces and brackets of its own.
        return f"{boot} {Path(f'/proc/{process}/stat').read_text().rpartition(')')[2].split()[19]}"
    except (OSError, IndexError):
        return None
