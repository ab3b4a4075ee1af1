"""Small array idioms that stay cheap inside a batched scan: unchecked gathers, and packing the few that matter."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from sadq.types import Array, PyTree

_WORD = 32


@jax.custom_batching.custom_vmap
def take(values: Array, index: Array) -> Array:
    """`values[index]` of a one-dimensional array, for an index known to be in bounds."""
    return values.at[index].get(mode="promise_in_bounds")


@take.def_vmap
def _take_batched(size: int, batched: list[bool], values: Array, index: Array) -> tuple[Array, bool]:
    """A batch is one long array: XLA gathers from that several times faster than from rows."""
    if not batched[0]:
        return take(values, index), True
    shape = index.shape[1:] if batched[1] else index.shape
    start = jnp.arange(size, dtype=index.dtype).reshape(size, *(1,) * len(shape)) * values.shape[1]
    return take(values.reshape(-1), index + start), True


@jax.custom_batching.custom_vmap
def put(values: Array, index: Array, new: Array) -> Array:
    """One-dimensional `values` with `new` at `index`; an index past the end drops its entry."""
    return values.at[index].set(new, mode="drop")


@jax.custom_batching.custom_vmap
def lower(values: Array, index: Array, new: Array) -> Array:
    """One-dimensional `values` with the least of it and of all that `new` has for an index there."""
    return values.at[index].min(new, mode="drop")


@put.def_vmap
def _put_batched(size: int, batched: list[bool], values: Array, index: Array, new: Array) -> tuple[Array, bool]:
    return _flat(put, size, batched, values, index, new)


@lower.def_vmap
def _lower_batched(size: int, batched: list[bool], values: Array, index: Array, new: Array) -> tuple[Array, bool]:
    return _flat(lower, size, batched, values, index, new)


def _flat(
    write: Callable, size: int, batched: list[bool], values: Array, index: Array, new: Array
) -> tuple[Array, bool]:
    values, index, new = (
        part if is_batched else jnp.broadcast_to(part, (size, *jnp.shape(part)))
        for part, is_batched in zip((values, index, new), batched, strict=True)
    )
    width = values.shape[1]
    start = jnp.arange(size, dtype=index.dtype)[:, None] * width
    at = jnp.where(index < width, index + start, size * width)
    return write(values.reshape(-1), at.reshape(-1), new.reshape(-1)).reshape(values.shape), True


def stored(*arrays: Array) -> tuple[Array, ...]:
    """The same arrays, computed once and stored; the first must be numeric.

    XLA's CPU compiler repeats cheap expressions in every loop that reads them, and a loop with a gather or a sum in it
    does not vectorise. It does not look through a condition, though, even one that always holds.
    """
    return _stored(*arrays) if on_cpu() else arrays


@jax.custom_batching.custom_vmap
def _stored(*arrays: Array) -> tuple[Array, ...]:
    holds = arrays[0].reshape(-1)[0] > -(2**30)
    return jax.lax.cond(holds, lambda *same: same, lambda *same: tuple(map(jnp.zeros_like, same)), *arrays)


@_stored.def_vmap
def _stored_batched(size: int, batched: list[bool], *arrays: Array) -> tuple[tuple[Array, ...], tuple[bool, ...]]:
    return _stored(*arrays), tuple(batched)


def on_cpu() -> bool:
    """Whether the program is compiled for a CPU, which wants less work where an accelerator wants fewer kernels."""
    return jax.default_backend() == "cpu"


def either(one: Callable[[Any], Any], other: Callable[[Any], Any], condition: Array, given: PyTree) -> PyTree:
    """`one(given)` where the condition holds, else `other(given)`, for two that differ in nothing but their cost.

    A batch takes `one` for all where it holds for any, instead of both for each.
    """

    @jax.custom_batching.custom_vmap
    def run(condition: Array, given: PyTree) -> PyTree:
        return jax.lax.cond(condition, one, other, given)

    @run.def_vmap
    def _batched(size: int, batched: list[PyTree], condition: Array, given: PyTree) -> tuple[PyTree, PyTree]:
        axes = jax.tree.map(lambda is_batched: 0 if is_batched else None, batched[1])
        every, each = jax.vmap(one, in_axes=(axes,)), jax.vmap(other, in_axes=(axes,))
        result = either(every, each, jnp.any(condition), given)
        return result, jax.tree.map(lambda _: True, result)

    return run(condition, given)


def repeat(
    body: Callable[[Any, Any], Any], unfinished: Callable[[Any], Array], constants: PyTree, carry: PyTree, most: int
) -> tuple[PyTree, Array]:
    """(`carry = body(constants, carry)` while any of `unfinished(carry)`, whether that was cut short after `most` times).

    The body must leave a finished carry as it is. Then a batch can run until its last member is done, without the
    selects on the whole carry that a batched `while_loop` makes in every round. On an accelerator, where to ask whether
    to go on costs more than a round, all `most` are made; only there can they be too few.
    """
    if on_cpu():
        return _repeat(body, unfinished, constants, carry), jnp.bool_(False)
    for _ in range(most):
        carry = body(constants, carry)
    return carry, jnp.any(unfinished(carry))


def _repeat(
    body: Callable[[Any, Any], Any], unfinished: Callable[[Any], Array], constants: PyTree, carry: PyTree
) -> PyTree:
    @jax.custom_batching.custom_vmap
    def run(constants: PyTree, carry: PyTree) -> PyTree:
        return jax.lax.while_loop(lambda c: jnp.any(unfinished(c)), lambda c: body(constants, c), carry)

    @run.def_vmap
    def _batched(size: int, batched: list[PyTree], constants: PyTree, carry: PyTree) -> tuple[PyTree, PyTree]:
        axes = jax.tree.map(lambda is_batched: 0 if is_batched else None, batched[0])
        carry = jax.tree.map(
            lambda part, is_batched: part if is_batched else jnp.broadcast_to(part, (size, *jnp.shape(part))),
            carry,
            batched[1],
        )
        result = _repeat(jax.vmap(body, in_axes=(axes, 0)), jax.vmap(unfinished), constants, carry)
        return result, jax.tree.map(lambda _: True, result)

    return run(constants, carry)


def bit_words(mask: Array) -> Array:
    """bool[V], V a multiple of 32, as u32[V / 32]; entry i is bit i // (V / 32) of word i % (V / 32)."""
    bits = jnp.left_shift(jnp.uint32(1), jnp.arange(_WORD, dtype=jnp.uint32))
    return jnp.sum(jnp.where(mask.reshape(_WORD, -1), bits[:, None], jnp.uint32(0)), axis=0, dtype=jnp.uint32)


def running(counts: Array) -> Array:
    """The sum of all entries up to each one, itself included, i32[n].

    By blocks, within each and then over their sums: linear, and unlike a scan a few loops that vectorise.
    """
    size = len(counts)
    if size <= _WORD:
        index = jnp.arange(size)
        return jnp.sum(jnp.where(index[:, None] <= index, counts[:, None], 0), axis=0, dtype=jnp.int32)
    blocks = jnp.pad(counts, (0, -size % _WORD)).reshape(-1, _WORD)
    index = jnp.arange(_WORD)
    within = jnp.sum(jnp.where(index[:, None] <= index, blocks[:, :, None], 0), axis=1, dtype=jnp.int32)
    before = running(within[:, -1]) - within[:, -1]
    return (within + before[:, None]).reshape(-1)[:size]


def pack(words: Array, start: Array | int, size: int, fill: int) -> tuple[Array, Array]:
    """(indices of the set bits number `start` to `start + size`, padded with `fill`; how many are set in all).

    The n-th set bit is searched for by counting: a sort over all entries would cost several times the rest of a step.
    The order is fixed, but not that of the entries.
    """
    counts = jax.lax.population_count(words).astype(jnp.int32)
    (through,) = stored(running(counts))
    wanted = start + jnp.arange(size, dtype=jnp.int32)
    word = jnp.zeros_like(wanted)
    for width in (1 << bit for bit in reversed(range(len(words).bit_length()))):  # the first word that goes beyond
        there = jnp.minimum(word + width, len(words)) - 1
        word = jnp.where((word + width <= len(words)) & (take(through, there) <= wanted), word + width, word)
    exists = word < len(words)
    word = jnp.minimum(word, len(words) - 1)
    remaining = wanted - (take(through, word) - take(counts, word))
    bit, content = jnp.zeros_like(wanted), take(words, word)
    for width in (16, 8, 4, 2, 1):
        low = jax.lax.population_count(content & jnp.uint32((1 << width) - 1)).astype(jnp.int32)
        skip = remaining >= low
        remaining = jnp.where(skip, remaining - low, remaining)
        content = jnp.where(skip, content >> width, content)
        bit = bit + jnp.where(skip, width, 0)
    return jnp.where(exists, bit * len(words) + word, fill), through[-1]


def ranks(mask: Array) -> Array:
    """How many are set before each entry of bool[n]."""
    return running(mask.astype(jnp.int32)) - mask
