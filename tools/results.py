"""Writes RESULTS.md, its figures and docs/rule.md's tables from the files in results/; `--check` says what is stale."""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "src"), str(Path(__file__).parent)]

from claims import document, never_loses, records  # noqa: E402
from claims.figures import DRAWN, figure_of, rule_figure  # noqa: E402

from sadq.errors import SadqError  # noqa: E402

PAGE, FILES, FINDINGS, RULE_PAGE = "RESULTS.md", "results", "findings.md", "docs/rule.md"
BEGIN, END = "<!-- rule:begin -->", "<!-- rule:end -->"


def page(root: Path) -> str:
    """RESULTS.md as it should be."""
    results = records.load(root / FILES)
    written = root / FILES / FINDINGS
    shown = [name for name, record in results.records.items() if name in DRAWN and record.places]
    rule = document.rule_section(evidence) if (evidence := _evidence(root)) else ()
    return document.document(results, written.read_text() if written.exists() else "", shown, rule)


def rule_page(root: Path) -> str | None:
    """docs/rule.md as it should be: its tables made anew, its words kept; None where there is none."""
    path, evidence = root / RULE_PAGE, _evidence(root)
    if evidence is None or not path.exists():
        return None
    before, _, rest = path.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{never_loses.block(evidence)}\n{END}{after}"


def _evidence(root: Path) -> never_loses.Evidence | None:
    path = root / FILES / records.RULE_FILE
    return never_loses.load(path) if path.exists() else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--root", type=Path, default=ROOT, help="the folder that holds RESULTS.md and results/")
    options = parser.parse_args()
    try:
        pages = {PAGE: page(options.root), RULE_PAGE: rule_page(options.root)}
    except SadqError as error:
        sys.exit(str(error))
    written = {options.root / name: text for name, text in pages.items() if text is not None}
    if options.check:
        stale = [path.name for path, text in written.items() if not path.exists() or path.read_text() != text]
        sys.exit(f"{' and '.join(stale)} is stale: run python tools/results.py." if stale else 0)
    for path, text in written.items():
        path.write_text(text)
    images = {name: figure_of(record) for name, record in records.load(options.root / FILES).records.items()}
    if evidence := _evidence(options.root):
        images["rule"] = rule_figure(evidence)
    for name, image in images.items():
        if image:
            path = options.root / document.FIGURES / f"{name}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(image)


if __name__ == "__main__":
    main()
