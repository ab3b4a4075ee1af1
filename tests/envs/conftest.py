"""Lets the tests here, and the worker processes that they start, import `sample_environments`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
