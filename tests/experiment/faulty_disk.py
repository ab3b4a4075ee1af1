"""A disk whose power can be cut: what would be left after every single change that a run makes to its files."""

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from sadq.experiment import storage

VERBS = ("write", "append", "make", "move", "exchange", "drop", "sync")


class File:
    """What a file holds now, and what it held when it was last synced: nothing, if it never was."""

    def __init__(self):
        self.now, self.safe = b"", b""


class Folder:
    """The names that a folder holds now, and those that it held when it was last synced."""

    def __init__(self):
        self.now: dict[str, File | Folder] = {}
        self.safe: dict[str, File | Folder] = {}


class Disk:
    """Follows the verbs of `storage` below a folder; each change adds the states that a cut may leave to `states`."""

    def __init__(self, root: Path, seed: int = 0):
        self.root, self.tree, self.random = root, Folder(), random.Random(seed)
        self.states: dict[tuple, str] = {}
        """Distinct states, (path, content or None for a folder) each, with the cut that left them."""
        self.changes = 0

    def find(self, path: Path) -> tuple[Folder, str]:
        """(the folder that a path lies in, its name there)."""
        *above, name = path.relative_to(self.root).parts
        folder = self.tree
        for part in above:
            folder = folder.now[part]
        return folder, name

    def node(self, path: Path) -> File | Folder:
        folder, name = self.find(path) if path != self.root else (Folder(), "")
        return folder.now[name] if name else self.tree

    def write(self, path, content):
        folder, name = self.find(path)
        folder.now.setdefault(name, File()).now = content

    def append(self, path, content):
        folder, name = self.find(path)
        folder.now.setdefault(name, File()).now += content

    def make(self, path):
        folder, name = self.find(path)
        folder.now.setdefault(name, Folder())

    def move(self, source, target):
        (before, old), (after, new) = self.find(source), self.find(target)
        after.now[new] = before.now.pop(old)

    def exchange(self, one, other):
        (left, mine), (right, theirs) = self.find(one), self.find(other)
        left.now[mine], right.now[theirs] = right.now[theirs], left.now[mine]

    def drop(self, path):
        folder, name = self.find(path)
        folder.now.pop(name, None)

    def sync(self, path):
        node = self.node(path)
        node.safe = dict(node.now) if isinstance(node, Folder) else node.now

    def cut(self, told: str) -> None:
        """Add what may be left if all ends here."""
        self.changes += 1

        def choose(_):
            return self.random.choice(("now", "safe"))

        ways = {
            "killed": (lambda _: "now", lambda _: "now"),
            "killed in the middle": (lambda _: "now", lambda _: "half"),
            "power cut": (lambda _: "safe", lambda _: "safe"),
            "power cut, names kept": (lambda _: "now", lambda _: "safe"),
            "power cut, contents kept": (lambda _: "safe", lambda _: "now"),
            "power cut, chance": (choose, lambda _: self.random.choice(("now", "safe", "half"))),
        }
        for way, (names, contents) in ways.items():
            self.states.setdefault(tuple(self._left(self.tree, Path(), names, contents)), f"{told}: {way}")

    def _left(self, folder: Folder, at: Path, names, contents) -> Iterator[tuple[str, bytes | None]]:
        for name, node in sorted(getattr(folder, names(folder)).items()):
            if isinstance(node, Folder):
                yield str(at / name), None
                yield from self._left(node, at / name, names, contents)
            else:
                yield str(at / name), _content(node, contents(node))


def _content(file: File, kept: str) -> bytes:
    """Of what was not synced, none, half or all."""
    if kept != "half":
        return getattr(file, kept)
    common = len(file.safe) if file.now.startswith(file.safe) else 0
    return file.now[: common + (len(file.now) - common) // 2]


@contextlib.contextmanager
def watched(root: Path, seed: int = 0) -> Iterator[Disk]:
    """A disk that follows all that is written below `root` meanwhile, from what is there now, all of it synced."""
    disk = Disk(root, seed)
    for path in sorted(root.rglob("*")):
        folder, name = disk.find(path)
        folder.now[name] = Folder() if path.is_dir() else File()
        if path.is_file():
            folder.now[name].now = path.read_bytes()
    for path in [root, *sorted(root.rglob("*"))]:
        disk.sync(path)

    def following(verb: str):
        real = getattr(storage, verb)

        def act(*given):
            real(*given)
            getattr(disk, verb)(*given)
            disk.cut(f"after {verb} of {', '.join(one.name for one in given if isinstance(one, Path))}")

        return act

    with pytest.MonkeyPatch.context() as patch:
        for verb in VERBS:
            patch.setattr(storage, verb, following(verb))
        yield disk


def lay_out(state: tuple, folder: Path) -> Path:
    """A state in a folder of its own."""
    folder.mkdir()
    for name, content in state:
        if content is None:
            (folder / name).mkdir()
        else:
            (folder / name).write_bytes(content)
    return folder
