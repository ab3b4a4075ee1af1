"""A value network, an encoder and a head, and the ensemble axis K that every learner's networks have.

Encoder and head are callable apart, so that a model may live in the encoder's space. Nothing here is random until it is
drawn: `drawn(key)` draws the noise of all noisy layers, once for a batch; `sampled(key)` what every sample has of its own.
"""

from collections.abc import Callable
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp

from sadq import keys
from sadq.core.returns import Return
from sadq.errors import SadqError
from sadq.networks.heads import Head, Mover
from sadq.networks.layers import draw_layers
from sadq.networks.precision import Compute, in_precision
from sadq.registry import shown
from sadq.types import Array, Key, Mask, PyTree


class Network(eqx.Module):
    """The return of every action at one observation."""

    encoder: Any  # observation -> f32[H]
    head: Head
    compute: Compute = eqx.field(static=True, default="float32")
    """In which precision it learns; as it is, it computes in float32."""

    def encode(self, observation: Array) -> Array:
        return self.encoder(observation)

    def __call__(self, observation: Array, mask: Mask = None) -> Return:
        return self.head(self.encode(observation), mask)

    def mean(self, observation: Array, mask: Mask = None) -> Array:
        """Only the expectation: f32[A]."""
        return self.head.mean(self.encode(observation), mask)

    def drawn(self, key: Key) -> Self:
        """The network with one draw of every noisy layer, in the precision that it computes in."""
        return draw_layers(self, key).computing()

    def computing(self) -> Self:
        """The network in the precision that it computes in."""
        return in_precision(self, self.compute)

    def sampled(self, key: Key) -> Self:
        """The network as one sample sees it."""
        return self.with_head(self.head.sampled(key))

    def settled(self) -> Self:
        """The network that evaluation acts by and targets are made with, whatever its head keeps drawn."""
        return self.with_head(self.head.settled())

    def with_head(self, head: Head) -> Self:
        return self if head is self.head else eqx.tree_at(lambda network: network.head, self, head)

    def movers(self) -> PyTree:
        """For every parameter, what changes it."""
        marks = jax.tree.map(lambda _: Mover.RUN, self)
        marks = eqx.tree_at(lambda network: network.head, marks, self.head.movers())
        if not hasattr(self.encoder, "movers"):
            return marks
        return eqx.tree_at(lambda network: network.encoder, marks, self.encoder.movers())


def of_parameters(what: str, module: Any, kind: type = object) -> Any:
    """The module, refused where it is of another kind, or a leaf of it no array of floats, which all that learns is."""
    if not isinstance(module, kind):
        raise SadqError(f"{what} {type(module).__name__} is no {kind.__name__}: let its class be a subclass of that.")
    for path, leaf in jax.tree_util.tree_leaves_with_path(module):
        if not (hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating)):
            expected = "expected an array of floats: mark what is no parameter as eqx.field(static=True)"
            raise SadqError(f"{what} has {shown(leaf)} in {jax.tree_util.keystr(path)}, {expected}.")
    return module


def ensemble_keys(key: Key, size: int) -> Key:
    """A key for every network of an ensemble; one network alone takes the key itself: key[K]."""
    return key[None] if size == 1 else keys.range_of(key, 0, size)


def over_networks(function: Callable, *stacked: PyTree) -> PyTree:
    """`function` for every network of an ensemble: arguments and result have the axis K on every leaf.

    One network alone is computed without that axis, which costs nothing, while compilers round batched products otherwise.
    """
    if jax.tree.leaves(stacked)[0].shape[0] > 1:
        return jax.vmap(function)(*stacked)
    alone = jax.tree.map(lambda leaf: leaf.reshape(leaf.shape[1:]), stacked)
    return jax.tree.map(lambda leaf: leaf[None], function(*alone))


def make_ensemble(make: Callable[[Key], Network], key: Key, size: int) -> Network:
    """Networks of one shape with initial weights of their own: every leaf has the leading axis K."""
    return over_networks(make, ensemble_keys(key, size))


def ensemble_means(networks: Network, observation: Array, mask: Mask = None) -> Array:
    """The expectation by network: f32[K, A] at one observation."""
    return over_networks(lambda network: network.mean(observation, mask), networks)


def settled(networks: Network) -> Network:
    """Every network at its mean: what evaluation acts by and targets are made with."""
    return over_networks(lambda network: network.settled(), networks)


def first_network(stacked: PyTree) -> PyTree:
    """The first of an ensemble, where there is only one or one is enough."""
    return jax.tree.map(lambda leaf: leaf[0], stacked)
