"""Helper modules of the tests are importable by name from any test."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
