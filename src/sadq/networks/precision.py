"""In which precision layers multiply: their weights are cast here, and everything else stays float32.

Parameters are kept, and moved by optimisers, in float32. A network that computes in bfloat16 is a copy of them whose
layers have weights of that type: a layer casts its inputs to the type of its weights, and the last layer of a head or of
a model keeps its sums in float32, for values differ by less than bfloat16 can tell.
"""

from typing import Any, Literal

import jax
import jax.numpy as jnp

from sadq.networks.layers import Linear
from sadq.types import PyTree

Compute = Literal["float32", "bfloat16"]


def in_precision(tree: PyTree, compute: Compute) -> PyTree:
    """The network or model as it computes; itself in float32."""
    if compute == "float32":
        return tree

    def cast(node: Any) -> Any:
        return node.replaced(node.weight.astype(jnp.bfloat16), node.bias) if isinstance(node, Linear) else node

    return jax.tree.map(cast, tree, is_leaf=lambda node: isinstance(node, Linear))
