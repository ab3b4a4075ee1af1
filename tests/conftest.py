"""Helper modules of the tests are importable by name from any test, and a worker stays small."""

import ctypes
import functools
import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compiled programs and what a module remembers of them go with it: no other module asks for them again."""
    yield
    for remembered in vars(request.module).values():
        if isinstance(remembered, functools._lru_cache_wrapper) and remembered.__module__ == request.module.__name__:
            remembered.cache_clear()
    jax.clear_caches()
    gc.collect()
    if give_back is not None:
        give_back(0)


def _trim():
    """glibc keeps what was freed for later; this hands it back. Other C libraries have no such function."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None


give_back = _trim()
