"""Runs: from a config to folders, checkpoints and results; it may import all of the library but report, api and cli."""
