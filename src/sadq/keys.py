"""Random keys folded by purpose: a feature that is off consumes no randomness of the others."""

import zlib

import jax

from sadq.types import Array, Key


def member_key(seed: int | Array) -> Key:
    """The root key of a fleet member: everything random in it descends from its seed."""
    return jax.random.key(seed)


def purpose(key: Key, name: str) -> Key:
    """The stream of `key` for one named purpose, independent of which other purposes exist."""
    return jax.random.fold_in(key, zlib.crc32(name.encode()))


def at(key: Key, *counters: int | Array) -> Key:
    """The key of `key`'s stream at the given counters, for instance a step and an environment index."""
    for counter in counters:
        key = jax.random.fold_in(key, counter)
    return key


def range_of(key: Key, start: int | Array, count: int) -> Key:
    """Keys `at(key, start) ... at(key, start + count - 1)`, made in one call: key[count]."""
    return jax.vmap(lambda index: at(key, index))(start + jax.numpy.arange(count))
