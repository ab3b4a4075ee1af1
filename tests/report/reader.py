"""Reads a page as a strict browser would: every tag closed, every name unique, and what it says."""

from html.parser import HTMLParser
from pathlib import Path

VOID = ("meta", "img", "link", "br", "hr", "input")
SELF_CLOSED = ("path",)


class Reader(HTMLParser):
    """The page's text, its tags, and whether every tag that was opened was closed."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source, self.text = source, ""
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(source)
        assert not self.open
        named = [attributes["id"] for _, attributes in self.tags if "id" in attributes]
        assert len(set(named)) == len(named)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert tag in SELF_CLOSED
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data if self.open[-1:] not in (["style"], ["script"]) else ""

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    def of_class(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for _, attributes in self.tags if name in (attributes.get("class") or "").split()]


def read(path: Path) -> Reader:
    return Reader(path.read_text(encoding="utf-8"))
