"""A run folder on a worker that shares no disk with the sweep, kept in step with the folder where results are gathered."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sadq.experiment.checkpoint import latest
from sadq.experiment.folder import CHECKPOINTS, CONFIG, EVALUATIONS, METRICS, RESULT
from sadq.experiment.storage import replacing, write_atomically

SECONDS_BETWEEN_PUSHES = 15.0
FILES = (CONFIG, METRICS, EVALUATIONS, RESULT)
"""In the order in which they are sent: a result is there only when all before it is."""


class Keeper:
    """Where results are gathered: it lives on the sweep's machine, and workers call it."""

    def __init__(self, out: str):
        self.out = Path(out)
        self._news: list[tuple[str, tuple[Any, ...]]] = []

    def tell(self, name: str, event: tuple[Any, ...]) -> None:
        """Something about a job, for the display."""
        self._news.append((name, event))

    def news(self) -> list[tuple[str, tuple[Any, ...]]]:
        """What was told since this was last asked."""
        news, self._news = self._news, []
        return news

    def stored(self, folder: str) -> tuple[dict[str, bytes], str | None, dict[str, bytes]]:
        """(the files of a run, the newest checkpoint's name, the files in it), as far as there are any."""
        path = self.out / folder
        files = {name: (path / name).read_bytes() for name in FILES if (path / name).exists()}
        saved = latest(path / CHECKPOINTS)
        inside = {} if saved is None else {each.name: each.read_bytes() for each in saved.iterdir()}
        return files, None if saved is None else saved.name, inside

    def store_file(self, folder: str, name: str, content: bytes) -> None:
        (self.out / folder).mkdir(parents=True, exist_ok=True)
        write_atomically(self.out / folder / name, content)

    def store_checkpoint(self, folder: str, name: str, files: dict[str, bytes]) -> None:
        """Put in place whole, the ones before the last two dropped."""
        checkpoints = self.out / folder / CHECKPOINTS
        write_checkpoint(checkpoints / name, files)
        for old in sorted(path for path in checkpoints.glob("[0-9]*"))[:-2]:
            for file in old.iterdir():
                file.unlink()
            old.rmdir()


class Mirror:
    """The worker's side: takes up what is stored, and sends what is new."""

    def __init__(self, path: Path, folder: str, ask: Callable[..., Any]):
        self.path, self.folder, self.ask = path, folder, ask  # ask(method of the keeper, *arguments) -> its answer
        self._sent: dict[str, tuple[int, float]] = {}
        self._saved: str | None = None
        self._pushed = time.monotonic()

    def fetch(self) -> None:
        """Begin where the last worker left off."""
        files, saved, inside = self.ask("stored", self.folder)
        self.path.mkdir(parents=True)
        for name, content in files.items():
            write_atomically(self.path / name, content)
        if saved is not None:
            write_checkpoint(self.path / CHECKPOINTS / saved, inside)
            self._saved = saved

    def push(self, everything: bool = False) -> None:
        """Send what changed: at once after a checkpoint, else now and then."""
        saved = latest(self.path / CHECKPOINTS)
        fresh = saved is not None and saved.name != self._saved
        if not (everything or fresh or time.monotonic() - self._pushed >= SECONDS_BETWEEN_PUSHES):
            return
        self._pushed = time.monotonic()
        for name in FILES:
            path = self.path / name
            if path.exists() and (state := (path.stat().st_size, path.stat().st_mtime)) != self._sent.get(name):
                self.ask("store_file", self.folder, name, path.read_bytes())
                self._sent[name] = state
        if saved is not None and fresh:
            inside = {each.name: each.read_bytes() for each in saved.iterdir()}
            self.ask("store_checkpoint", self.folder, saved.name, inside)
            self._saved = saved.name


def write_checkpoint(path: Path, files: dict[str, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as beside:
        beside.mkdir()
        for name, content in files.items():
            (beside / name).write_bytes(content)
