"""Learned one-step models: `encode` a state once, `step` it with any action, and a `loss` to learn from."""

from sadq.dynamics.gaussian import GaussianModel

__all__ = ["GaussianModel"]
