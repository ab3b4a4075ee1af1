"""Writes RESULTS.md, its figures and docs/rule.md's tables from the files in results/; `--check` says what is stale."""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "src"), str(Path(__file__).parent)]

from claims import document, never_loses, records  # noqa: E402
from claims.figures import DRAWN, figure_of, rule_figure  # noqa: E402

from sadq.errors import SadqError  # noqa: E402

HEARING, ALLOWANCE = never_loses.RULES
PAGE, FILES, FINDINGS, RULE_PAGE = "RESULTS.md", "results", "findings.md", "docs/rule.md"


def page(root: Path) -> str:
    """RESULTS.md as it should be."""
    results = records.load(root / FILES)
    written = root / FILES / FINDINGS
    shown = [name for name, record in results.records.items() if name in DRAWN and record.places]
    rule = document.rule_section(evidence) if (evidence := _evidence(root, HEARING)) else ()
    return document.document(results, written.read_text() if written.exists() else "", shown, rule)


def rule_page(root: Path) -> str | None:
    """docs/rule.md as it should be: its tables made anew, its words kept; None where there is none."""
    path, earlier = root / RULE_PAGE, _evidence(root, ALLOWANCE)
    text = path.read_text() if path.exists() else None
    for name in never_loses.RULES:
        evidence = _evidence(root, name)
        if evidence is None or text is None:
            return None
        begin, end = marks(name)
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        block = never_loses.block(evidence, earlier if name == HEARING else None)
        text = f"{before}{begin}\n{block}\n{end}{after}"
    return text


def marks(name: str) -> tuple[str, str]:
    """Between which a rule's tables stand."""
    return f"<!-- {name}:begin -->", f"<!-- {name}:end -->"


def _evidence(root: Path, name: str) -> never_loses.Evidence | None:
    path = root / FILES / "rule" / f"{name}.json"
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
    evidence, earlier = (_evidence(options.root, name) for name in (HEARING, ALLOWANCE))
    if evidence and earlier:
        images["rule"] = rule_figure(evidence, earlier)
    for name, image in images.items():
        if image:
            path = options.root / document.FIGURES / f"{name}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(image)


if __name__ == "__main__":
    main()
