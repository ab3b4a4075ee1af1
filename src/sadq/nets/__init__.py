"""Networks: layers, encoders, heads, and the value network made of them."""

from sadq.nets.encoders import VectorEncoder
from sadq.nets.heads import ScalarHead
from sadq.nets.layers import Linear
from sadq.nets.value import ValueNetwork

__all__ = ["Linear", "ScalarHead", "ValueNetwork", "VectorEncoder"]
