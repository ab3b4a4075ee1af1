"""JSON values that know their place in a file, so that a complaint about one can name it."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

from sadq.envs.cityflow.engine_numbers import read_number, read_whole
from sadq.errors import SadqError


def load(path: Path) -> "Node":
    """The content of a file, its numbers as the engine reads them."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"), parse_float=read_number, parse_int=read_whole)
        return Node(content, path, "")
    except OSError as error:
        raise SadqError(f"{path}: cannot be read ({error.strerror}); check the path.") from None
    except UnicodeDecodeError:
        raise SadqError(f"{path}: is not a text file in UTF-8; expected JSON.") from None
    except json.JSONDecodeError as error:
        raise SadqError(f"{path}: is not JSON at line {error.lineno}, column {error.colno}: {error.msg}.") from None


@dataclasses.dataclass(frozen=True)
class Node:
    """A value of a JSON file that knows its place, so that a complaint can name it."""

    value: Any
    path: Path
    place: str

    def error(self, problem: str, at: str = "") -> SadqError:
        place = "/".join(part for part in (self.place, at) if part)
        return SadqError(f"{self.path}: {place + ': ' if place else ''}{problem}.")

    def object(self, key: str) -> "Node":
        child = self._child(key)
        if not isinstance(child.value, dict):
            raise self._wrong(key, "an object")
        return child

    def items(self, key: str) -> list["Node"]:
        if not isinstance(self._child(key).value, list):
            raise self._wrong(key, "a list")
        return self._child(key).elements()

    def elements(self) -> list["Node"]:
        if not isinstance(self.value, list):
            raise self.error("expected a list")
        return [Node(value, self.path, f"{self.place}[{index}]") for index, value in enumerate(self.value)]

    def text(self, key: str) -> str:
        if not isinstance(self._child(key).value, str):
            raise self._wrong(key, "a text")
        return self.value[key]

    def flag(self, key: str) -> bool:
        if not isinstance(self._child(key).value, bool):
            raise self._wrong(key, "true or false")
        return self.value[key]

    def integer(self, key: str) -> int:
        if not _is_integer(self._child(key).value):
            raise self._wrong(key, "a whole number")
        return self.value[key]

    def number(self, key: str) -> float:
        value = self._child(key).value
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self._wrong(key, "a number")
        return float(value)

    def positive(self, key: str) -> float:
        if self.number(key) <= 0.0:
            raise self._wrong(key, "a number above 0")
        return self.number(key)

    def non_negative(self, key: str) -> float:
        if self.number(key) < 0.0:
            raise self._wrong(key, "a number from 0")
        return self.number(key)

    def optional(self, key: str, default: Any, read: Any) -> Any:
        return read(key) if isinstance(self.value, dict) and key in self.value else default

    def as_text(self) -> str:
        if not isinstance(self.value, str):
            raise self.error(f"expected a text, not {_shown(self.value)}")
        return self.value

    def as_integer(self) -> int:
        if not _is_integer(self.value):
            raise self.error(f"expected a whole number, not {_shown(self.value)}")
        return self.value

    def _child(self, key: str) -> "Node":
        if not isinstance(self.value, dict):
            raise self.error(f"expected an object, not {_shown(self.value)}")
        if key not in self.value:
            raise self.error(f"`{key}` is missing")
        return Node(self.value[key], self.path, f"{self.place}/{key}" if self.place else key)

    def _wrong(self, key: str, expected: str) -> SadqError:
        return self.error(f"`{key}` is {_shown(self.value[key])}; expected {expected}")


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."
