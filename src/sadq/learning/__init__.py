"""One member's learning, pure: how targets are formed, and all that changes a `LearnerState`; imports `replay`, `dynamics`."""
