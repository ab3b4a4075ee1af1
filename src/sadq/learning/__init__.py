"""One member's learning, pure: how targets are formed, all that changes a `LearnerState`; imports `replay`, `dynamics`."""
