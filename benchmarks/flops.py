"""Floating-point operations of one value update, counted from the layers' shapes: matrix products only.

Element-wise work (activations, Adam, losses, random numbers, gathers) is left out, so the share of the GEMM peak that
follows from this count is what the whole update reaches, with all that element-wise work as its loss.
"""

import jax

from sadq.dynamics.gaussian import GaussianModel
from sadq.experiment.config import Config
from sadq.learner import Learner
from sadq.nets.layers import Linear
from sadq.nets.value import ValueNetwork


def layers_of(module: ValueNetwork | GaussianModel) -> list[Linear]:
    """Every dense layer of a network."""
    leaves = jax.tree.leaves(module, is_leaf=lambda node: isinstance(node, Linear))
    return [leaf for leaf in leaves if isinstance(leaf, Linear)]


def multiplications(module: ValueNetwork | GaussianModel) -> int:
    """Multiply-adds of one forward pass of one sample."""
    return sum(layer.weight.size for layer in layers_of(module))


def training(batch: int, all_layers: int, first_layer: int) -> int:
    """Forward and backward over a batch: the first layer's inputs need no gradient."""
    return 2 * batch * (all_layers + all_layers + (all_layers - first_layer))


def per_update(config: Config, learner: Learner, network: ValueNetwork, model: GaussianModel | None) -> dict[str, int]:
    """The parts of one value update; the model's own updates are spread over the value updates of a collect."""
    value, batch = multiplications(network), config.batch_size
    parts = {
        "online_forward_and_backward": training(batch, value, network.encoder.layers[0].weight.size),
        "target_forward": 2 * batch * value,
    }
    if learner.rule == "double":
        parts["online_forward_at_next"] = 2 * batch * value
    if model is not None:
        if config.model.gate != "fixed":
            raise ValueError(f"gate = {config.model.gate!r} makes forward passes that are not counted: use 'fixed'.")
        whole, shared = multiplications(model), model.state_layer.weight.size
        successors = batch * learner.ring.action_count * config.model.samples
        parts["rollout_model"] = 2 * (batch * shared + successors * (whole - shared))
        parts["rollout_values"] = 2 * successors * value
        trained = training(config.model.batch_size, whole, shared)
        parts["model_update"] = trained * config.model.updates_per_collect // config.updates_per_collect
    return parts
