"""One small fault in one file."""

import difflib
from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One fault: bytes [start, end) of a file replaced."""

    path: str  # relative to the package
    line: int
    column: int
    operator: str
    before: str
    after: str
    start: int
    end: int
    source_line: str
    function: int | None  # the line where the innermost function around it begins
    number: int = 0  # among those that are otherwise named the same

    @property
    def id(self) -> str:
        return f"{self.path}:{self.line}:{self.column}:{self.operator}" + (f":{self.number}" if self.number else "")

    @property
    def key(self) -> tuple[str, str, str]:
        """What names it although lines move: the file, the line's text, and the change."""
        return (
            self.path,
            one_line(self.source_line),
            f"{self.operator}: {one_line(self.before)} -> {one_line(self.after)}",
        )

    def applied(self, source: str) -> str:
        raw = source.encode()
        return (raw[: self.start] + self.after.encode() + raw[self.end :]).decode()

    def diff(self, source: str) -> str:
        """Only the lines that change."""
        lines = difflib.unified_diff(source.splitlines(), self.applied(source).splitlines(), n=0, lineterm="")
        return "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))


def one_line(text: str) -> str:
    return " ".join(text.split())
