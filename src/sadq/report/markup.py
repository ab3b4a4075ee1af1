"""HTML in small pieces: everything that comes from a file is escaped here, and nowhere else turned into markup."""

import re
from collections.abc import Iterable, Sequence
from html import escape


def unbroken(text: str) -> str:
    """The text as HTML in which no line ends inside a number and its interval; longer brackets, of settings, may break."""
    return re.sub(
        r"\S{1,16} \[[^]]{1,28}\]|\b(?:p|α) (?:=|&lt;) [\d.]+", r'<span class="whole">\g<0></span>', escape(text)
    )


def table(head: Iterable[str], rows: Iterable[Sequence[str]], caption: str, corner: bool = True) -> str:
    """A table that scrolls by itself where it is too wide; the first cell of a row names it."""
    top = "".join(f'<th scope="col">{escape(cell)}</th>' if cell else "<td></td>" for cell in head)
    body = ""
    for row in rows:
        first = f'<th scope="row">{escape(row[0])}</th>' if corner else f"<td>{escape(row[0])}</td>"
        body += f"<tr>{first}{''.join(f'<td>{escape(cell)}</td>' for cell in row[1:])}</tr>"
    return scrolled(
        f"<table><caption>{escape(caption)}</caption><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>",
        caption,
    )


def scrolled(content: str, label: str) -> str:
    """What may be wider than the page, in a box that is scrolled by keyboard too."""
    return f'<div class="scroll" tabindex="0" role="group" aria-label="{escape(label)}">{content}</div>'


def folded(summary: str, content: str, opened: bool = False) -> str:
    """Content behind its summary."""
    return f"<details{' open' * opened}><summary>{escape(summary)}</summary>{content}</details>"


def slug_of(text: str, taken: set[str]) -> str:
    """A name for links and files, another one each time."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60] or "environment"
    slug, index = plain, 2
    while slug in taken:
        slug, index = f"{plain}-{index}", index + 1
    taken.add(slug)
    return slug
