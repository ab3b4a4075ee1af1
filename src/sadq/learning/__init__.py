"""One member's learning, pure: how targets are formed and what changes a `LearnerState`."""
