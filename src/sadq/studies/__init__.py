"""Studies: many fleets that answer one question; it may import experiment, report and what they do."""
