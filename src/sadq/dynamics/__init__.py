"""Learned one-step models: what SADQ asks of one, and the Gaussian of the paper; imports `networks`."""

from sadq.dynamics.gaussian import Gaussian, GaussianModel
from sadq.dynamics.protocol import MODELS, DynamicsModel
