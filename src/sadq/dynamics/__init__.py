"""Learned one-step models: what SADQ asks of one, and the paper's two, of vectors and of images; imports `networks`."""

from sadq.dynamics.gaussian import Gaussian, GaussianModel
from sadq.dynamics.protocol import MODELS, DynamicsModel, ModelShape
from sadq.dynamics.rssm import RSSM, RSSMModel
