"""The command line: reads arguments, calls `experiment` and `report`, prints; it may import everything."""
