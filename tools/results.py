"""Writes RESULTS.md and its figures from the files in results/; `--check` only says whether the page is stale."""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "src"), str(Path(__file__).parent)]

from claims import document, records  # noqa: E402
from claims.figures import DRAWN, figure_of  # noqa: E402

from sadq.errors import SadqError  # noqa: E402

PAGE, FILES, FINDINGS = "RESULTS.md", "results", "findings.md"


def page(root: Path) -> str:
    """RESULTS.md as it should be."""
    results = records.load(root / FILES)
    written = root / FILES / FINDINGS
    shown = [name for name, record in results.records.items() if name in DRAWN and record.places]
    return document.document(results, written.read_text() if written.exists() else "", shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--root", type=Path, default=ROOT, help="the folder that holds RESULTS.md and results/")
    options = parser.parse_args()
    try:
        text = page(options.root)
    except SadqError as error:
        sys.exit(str(error))
    target = options.root / PAGE
    if options.check:
        stale = not target.exists() or target.read_text() != text
        sys.exit(f"{PAGE} is stale: run python tools/results.py." if stale else 0)
    target.write_text(text)
    for name, record in records.load(options.root / FILES).records.items():
        if image := figure_of(record):
            path = options.root / document.FIGURES / f"{name}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(image)


if __name__ == "__main__":
    main()
