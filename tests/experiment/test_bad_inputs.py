"""A thousand bad inputs from a seeded generator: each is refused in one sentence or does no harm, at once, on no disk."""

import contextlib
import dataclasses
import json
import random
import signal
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import tiny_runs
from odd_environments import Drift
from stub_runs import gone_on

from sadq import SADQ
from sadq.axes import AXES
from sadq.dynamics import Gaussian
from sadq.envs.host import HostEnvironments
from sadq.envs.registry import make
from sadq.errors import SadqError
from sadq.experiment.config import Config, Epsilon, GuidanceSettings
from sadq.experiment.lock import LOCK
from sadq.experiment.opening import reopen
from sadq.experiment.records import from_json, to_json
from sadq.networks import Dense

SECONDS = 10.0
FIELDS, TABLES, FILES, ENVIRONMENTS = 450, 200, 230, 120  # a thousand


class Unspeakable:
    """Something that cannot even be shown."""

    def __repr__(self):
        raise RuntimeError("no words")


PLAIN: list[Any] = [None, True, False, 0, 1, -1, 3, 2.5, 1e308, 10**400, 2**63, "", "text", "64", "a\nb", "x" * 10_000]
NUMBERS = [float("nan"), float("inf"), -float("inf")]
JSON = [
    *PLAIN,
    [],
    [1, "a"],
    [[1]],
    {},
    {"kind": "dense"},
    {"kind": []},
    {"kind": "nothing", "x": 1},
    [None],
    [0.5, -1],
]
JUNK = [
    *JSON,
    *NUMBERS,
    (),
    (None,),
    (1, "a"),
    (0.5, float("nan")),
    (3, 3),
    set(),
    {1.5},
    b"bytes",
    3j,
    object(),
    Unspeakable(),
    lambda: None,
    int,
    Dense,
    Dense(),
    Gaussian(),
    Epsilon(),
    range(3),
    iter([1]),
    Path("a"),
    np.float32("nan"),
    np.int64(-1),
    np.zeros(0),
    np.ones((2, 2)),
    np.array("text"),
    np.array([None]),
    np.array([1, 2**40]),
]


@contextlib.contextmanager
def at_once():
    """What takes longer than it may is a failure of its own."""

    def late(*_):
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def refused(attempt, told: str) -> bool:
    """Whether an attempt was refused; anything but a sentence fails the test."""
    try:
        with at_once():
            attempt()
    except SadqError as error:
        sentence = str(error)
        assert sentence and "\n" not in sentence and len(sentence) < 12_000, told
        return True
    except BaseException as error:
        raise AssertionError(f"{told} ended in {type(error).__name__}: {error}") from error
    return False


def settings() -> list[tuple[Any, str]]:
    """Every class with settings, and the name of one."""
    entries = [axis.entry(name) for axis in AXES.values() for name in axis]
    return [(kind, field.name) for kind in (Epsilon, GuidanceSettings, *entries) for field in dataclasses.fields(kind)]


def let_in(config: Config, name: str, value: Any) -> None:
    """A field changed; what is let in can be written and read again."""
    made = dataclasses.replace(config, **{name: value})
    assert from_json(Config, json.loads(json.dumps(to_json(made)))) == made


def test_fields_of_every_kind(stub_loops):
    moments, count = random.Random(1), 0
    names = [field.name for field in dataclasses.fields(Config)]
    for number in range(FIELDS):
        value = moments.choice(JUNK)
        if number % 3 == 0:
            kind, name = moments.choice(settings())
            attempt = partial(kind, **{name: value})
        elif number % 3 == 1:
            kind, name = Config, moments.choice(names)
            attempt = partial(let_in, tiny_runs.TINY, name, value)
        else:
            kind, name = SADQ, moments.choice([*names, "env", "agent", "alpha", "seeds", "preset"])
            value = 3 if isinstance(value, Unspeakable) and name == "env" else value
            attempt = partial(SADQ, **{"env": "BitFlip-3"} | {name: value})
        told = f"{kind.__name__} with {name} = {'Unspeakable' if isinstance(value, Unspeakable) else repr(value)[:80]}"
        count += refused(attempt, told)
    assert count > 0.7 * FIELDS


def places(data: Any, at: tuple = ()) -> list[tuple]:
    """The way to every value in JSON data."""
    inside = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [at, *(place for key, value in inside for place in places(value, (*at, key)))]


def test_tables_of_every_kind():
    moments, count = random.Random(2), 0
    sound = json.dumps(to_json(dataclasses.replace(tiny_runs.TINY, adjusted=(Dense((3,)),))))
    for _ in range(TABLES):
        data = json.loads(sound)
        *way, key = moments.choice(places(data)[1:])
        part = data
        for step in way:
            part = part[step]
        value = moments.choice([*JSON, *NUMBERS])
        if isinstance(part, dict) and moments.random() < 0.2:
            part[moments.choice(["more", "kind", "axis", ""])] = value
        else:
            part[key] = value
        count += refused(lambda data=data: from_json(Config, data), f"{way} {key} = {str(value)[:80]}")
    assert count > 0.5 * TABLES


def spoiled(content: bytes, moments: random.Random) -> bytes:
    """A file after an accident."""
    place = moments.randrange(len(content))
    return {
        "flip": content[:place] + bytes([content[place] ^ (1 << moments.randrange(8))]) + content[place + 1 :],
        "byte": content[:place] + bytes([moments.randrange(256)]) + content[place + 1 :],
        "cut": content[:place],
        "hole": content[:place] + bytes(min(50, len(content) - place)) + content[place + 50 :],
        "twice": content[:place] + content,
    }[moments.choice(["flip", "flip", "flip", "byte", "cut", "hole", "twice"])]


def test_files_with_flipped_bytes(stub_loops, tmp_path, monkeypatch):
    monkeypatch.setattr("os.fsync", lambda _: None)
    path, moments, count = tmp_path / "run", random.Random(3), 0
    gone_on(path, callback=tiny_runs.stop_at(16))
    sound = {each: each.read_bytes() for each in sorted(path.rglob("*")) if each.is_file()}
    newest = [each for each in sound if each.parent.name.isdigit()][-2:]
    files = [each for each in sound if each.parent == path] + newest * 2
    for number in range(FILES):
        for each in list(path.rglob("*")):
            if each.is_file():
                each.unlink()
        for each, content in sound.items():
            each.write_bytes(content)
        victim = moments.choice(files)
        victim.write_bytes(spoiled(sound[victim], moments))
        before = {each: each.read_bytes() for each in path.rglob("*") if each.is_file()}

        def attempt():
            experiment = reopen(path)
            try:
                experiment.begin()
            finally:
                experiment.close()

        if refused(attempt, f"number {number}, {victim.name}"):
            count += 1
            assert before == {each: each.read_bytes() for each in path.rglob("*") if each.is_file()}, victim
        assert not (path / LOCK).exists()
    assert count > 0.3 * FILES


class Broken(Drift):
    """Breaks the contract of an environment in one place."""

    def __init__(self, place: str, value: Any):
        self.place, self.value = place, value
        if place in ("observation_space", "action_space"):
            setattr(self, place, value)

    def reset(self, *, seed=None, options=None):
        result = super().reset(seed=seed)
        return self.spoil("reset", result)

    def step(self, action):
        return self.spoil("step", super().step(action))

    def spoil(self, call, result):
        if self.place == call:
            return self.value
        if self.place.startswith(f"{call} "):
            index = int(self.place.split()[1])
            return (*result[:index], self.value, *result[index + 1 :])
        return result


def test_environments_that_break_their_contract():
    moments, count = random.Random(4), 0
    where = ["reset", "step", "reset 0", "reset 1", "step 0", "step 1", "step 2", "step 3", "step 4"]
    where += ["observation_space", "action_space"]
    spaces = gymnasium.spaces
    odd = [
        spaces.Discrete(3),
        spaces.Box(0, 1, (0,)),
        spaces.Box(0, 1, ()),
        spaces.Text(3),
        spaces.Dict({}),
        spaces.MultiBinary(2),
    ]
    junk = [value for value in JUNK if not isinstance(value, Unspeakable)]
    masks = [{"action_mask": value} for value in (None, [], [1], [0, 0], "ab", np.zeros(2), [True, True, True])]
    for number in range(ENVIRONMENTS):
        place = moments.choice(where)
        value = moments.choice([*junk, *odd, *masks])

        def attempt(place=place, value=value):
            environments = HostEnvironments(make(lambda: Broken(place, value)), [0], 2, workers=0)
            try:
                environments.reset()
                for _ in range(4):
                    environments.step(np.zeros((1, 2), np.int32))
            finally:
                environments.close()

        count += refused(attempt, f"number {number}: {place} = {str(value)[:80]}")
    assert count > 0.6 * ENVIRONMENTS


def test_there_are_a_thousand():
    assert FIELDS + TABLES + FILES + ENVIRONMENTS == 1000
