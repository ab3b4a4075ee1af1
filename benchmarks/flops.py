"""Floating-point operations of one value update, counted from the layers' shapes: matrix products only.

Element-wise work (activations, Adam, losses, random numbers, gathers) is left out, so the share of the GEMM peak that
follows from this count is what the whole update reaches, with all that element-wise work as its loss. Counted are
single networks with a scalar or categorical head, whose every pass is each layer once; heads that have levels, that skip
part of a layer where only the mean is wanted, or whose last layer is inferred are refused.
"""

import jax

from sadq.axes import AXES
from sadq.core.bootstrap import Double
from sadq.core.gates import Fixed
from sadq.dynamics.gaussian import GaussianModel
from sadq.experiment.build import hyper_of, make_learner, resolve
from sadq.experiment.config import Config
from sadq.networks.layers import Linear
from sadq.networks.network import Network, first_network

HEADS = ("scalar", "categorical")


def layers_of(module: Network | GaussianModel) -> list[Linear]:
    """Every dense layer of a network."""
    leaves = jax.tree.leaves(module, is_leaf=lambda node: isinstance(node, Linear))
    return [leaf for leaf in leaves if isinstance(leaf, Linear)]


def multiplications(module: Network | GaussianModel) -> int:
    """Multiply-adds of one forward pass of one sample."""
    return sum(layer.weight.size for layer in layers_of(module))


def training(batch: int, all_layers: int, first_layer: int) -> int:
    """Forward and backward over a batch: the first layer's inputs need no gradient."""
    return 2 * batch * (all_layers + all_layers + (all_layers - first_layer))


def per_update(config: Config) -> dict[str, int]:
    """The parts of one value update; the model's own updates are spread over the value updates of a collect."""
    row = config.row
    if AXES["head"].name_of(row.head) not in HEADS or row.ensemble.size > 1:
        raise SystemExit(
            f"The products of {config.agent} are not counted: its network is an ensemble or its head is none of "
            f"{', '.join(HEADS)}; choose an agent such as dqn, dueling or c51."
        )
    if config.guided and not isinstance(config.gate, Fixed):
        raise SystemExit(f"gate = {config.gate!r} makes forward passes that are not counted: use 'fixed'.")
    learner = make_learner(config, resolve(config.environment))
    # Shapes alone, so nothing is computed.
    state = jax.eval_shape(learner.init, jax.tree.map(lambda leaf: leaf[0], hyper_of(config)))
    network = jax.eval_shape(first_network, state.online.parameters)
    value, batch = multiplications(network), config.batch_size
    parts = {
        "online_forward_and_backward": training(batch, value, network.encoder.layers[0].weight.size),
        "target_forward": 2 * batch * value,
    }
    if isinstance(learner.bootstrap, Double):
        parts["online_forward_at_next"] = 2 * batch * value
    if state.model is not None:
        model = state.model.parameters
        whole, shared = multiplications(model), model.state_layer.weight.size
        successors = batch * learner.action_count * config.guidance.samples
        parts["rollout_model"] = 2 * (batch * shared + successors * (whole - shared))
        parts["rollout_values"] = 2 * successors * value
        trained = training(config.guidance.batch_size, whole, shared)
        parts["model_update"] = trained * config.guidance.updates_per_collect // config.updates_per_collect
    return parts
