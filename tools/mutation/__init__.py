"""Mutation testing, for `tools/mutants.py`: where faults can be, and the processes that try them."""
