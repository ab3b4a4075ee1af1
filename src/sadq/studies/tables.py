"""Results that are tables: in a terminal, and as a page of their own that needs no second file and no network."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

STYLE = (
    ":root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;"
    "padding:0 1rem}.scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "th,td{text-align:left;padding:.4rem .8rem;border-bottom:1px solid color-mix(in srgb,currentColor 25%,transparent)}"
)


@dataclass(frozen=True)
class Table:
    """Rows of cells below their titles, and what a reader must know of them."""

    titles: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str]

    def lines(self) -> list[str]:
        every = [list(self.titles), *map(list, self.rows)]
        widths = [max(map(len, column)) for column in zip(*every, strict=True)]
        aligned = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in every]
        return ["  ".join(row).rstrip() for row in aligned] + list(self.notes)


def page(title: str, table: Table) -> str:
    """One HTML file."""
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in table.titles)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows)
    notes = "".join(f"<p>{escape(note)}</p>" for note in table.notes)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body><main><h1>{escape(title)}</h1>\n"
        f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>\n'
        f"{notes}</main></body></html>\n"
    )


def theory_table(rows: Sequence[dict[str, Any]]) -> Table:
    cells = [
        (row["claim"], row["quantity"], f"{row['found']:.2g}", "holds" if row["holds"] else "does not hold")
        for row in rows
    ]
    notes = [
        f"{rows[0]['mdps']} random MDPs in double precision; an equality holds where it is met to 1e-8.",
        "The two that do not hold are no part of the theorem: values must be Bellman-consistent, and the score expected.",
    ]
    return Table(("claim", "quantity", "found", "verdict"), cells, notes)


def runtime_table(rows: Sequence[dict[str, Any]]) -> Table:
    cells = [
        (
            row["arm"],
            f"{row['steady_steps_per_second']:,.1f}",
            f"{row['minutes_100k']:,.1f}",
            _known(row["paper_minutes_100k"]),
            f"{row['minutes_10m']:,.0f}",
            _known(row["paper_minutes_10m"]),
        )
        for row in rows
    ]
    first = rows[0]
    notes = [
        f"100K steps: {first['minutes_100k_is']}.",
        f"10M steps: {first['minutes_10m_is']}.",
        f"Networks: {first['networks']}. The paper's minutes are those of its own machine, an RTX 5090.",
    ]
    return Table(("arm", "env steps/s", "100K, min", "paper", "10M, min", "paper"), cells, notes)


def _known(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"
