"""Writing a report: the page, its numbers and its figures appear together, or what was there before stays."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from sadq.errors import SadqError
from sadq.report.contents import Report

FIGURES = ("png", "pdf")


def write_report(
    runs: Sequence[Path | str],
    out: Path | str,
    title: str | None = None,
    *,
    seed: int = 0,
    against: str | None = None,
    threshold: float | None = None,
    arms: Sequence[str] | None = None,
    bases: Mapping[str, str] | None = None,
    figures: Sequence[str] = (),
) -> Path:
    """Writes the report and gives the page's path.

    `out` is a folder, for index.html and report.json, or a file that ends in .html, for the page alone. `figures` names
    formats, png or pdf, in which the charts are written beside it too. All else is as `Report.of` has it.
    """
    out = Path(out)
    alone = out.suffix.lower() in (".html", ".htm")
    folder, page = (out.parent, out.name) if alone else (out, "index.html")
    for name in figures:
        if name not in FIGURES:
            raise SadqError(f"Figures cannot be written as {name!r}: expected {' or '.join(FIGURES)}.")
    report = Report.of(runs, title, seed, against, threshold, arms, bases)
    files: dict[str, bytes] = {}
    if figures:
        from sadq.report.plots import figures_of  # matplotlib takes a second to load, and a page does without

        files |= figures_of(report, figures)
    if not alone:
        files["report.json"] = json.dumps(report.as_dict(), indent=1, ensure_ascii=False).encode()
    files[page] = report.html().encode("utf-8", "replace")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Put in place once all are written, and the page last: no reader meets half a file.
        with TemporaryDirectory(dir=folder, prefix=".") as written:
            for name, content in files.items():
                Path(written, name).write_bytes(content)
            for name in files:
                os.replace(Path(written, name), folder / name)
    except OSError as error:
        raise SadqError(f"The report cannot be written to {out} ({error.strerror}): choose another folder.") from error
    return folder / page
