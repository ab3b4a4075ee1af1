"""The command line: reads arguments, calls `experiment` and `report`, prints."""
