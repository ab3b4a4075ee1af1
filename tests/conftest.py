"""Helper modules of the tests are importable by name from any test, and a worker stays small: a laptop runs three."""

import ctypes
import functools
import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest
from jax.experimental.compilation_cache.compilation_cache import reset_cache

sys.path.insert(0, str(Path(__file__).parent))

import shared_programs  # noqa: E402
from sadq.experiment import evaluate, run  # noqa: E402
from sadq.fleet.devices import Programs  # noqa: E402

LARGE = 1_500  # MB
AGAIN = 500  # MB more than what could not be given back the last time

# Tracing makes millions of objects that live until their program is compiled: looking for cycles among them again and
# again takes a sixth of the time. `forget` looks for them after each module.
gc.set_threshold(100_000, 50, 1000)

# Where in the source each operation came from is written into every program that is compiled, and read by nobody here.
for setting, value in (("jax_include_full_tracebacks_in_locations", False), ("jax_traceback_in_locations_limit", 0)):
    jax.config.update(setting, value)
    os.environ[setting.upper()] = str(int(value))

OPTIMISED = ("thresholds", "test_rssm_learns.py", "test_gaussian.py")
"""What runs for so long that it is worth optimising."""
UNOPTIMISED = "jax_disable_most_optimizations"
LONG = (
    "test_agents.py",
    "experiment/test_atari.py",
    "test_docs.py",
    "test_vectorised.py",
    "test_on_ray.py",
    "test_host_loop_turns.py",
    "cityflow/test_properties.py",
    "test_user_modules.py",
    "test_recordings.py",
    "test_resume.py",
    "test_fleet.py",
    "experiment/test_divergence.py",
    "test_loops.py",
    "test_rssm.py",
    "test_rssm_learns.py",
    "test_predicting.py",
    "ocloud/test_environment.py",
    "cityflow/test_environment.py",
    "cityflow/test_drawing.py",
    "test_cli.py",
    "test_compare.py",
)
"""The longest first, so that no worker is left alone with one."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(LONG)}

    def place(item: pytest.Item) -> int:
        name, parent = item.path.name, item.path.parent.name
        return places.get(name, places.get(f"{parent}/{name}", len(LONG)))

    items.sort(key=place)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Most programs here are large and run for an instant: optimising them would be most of the time that tests take.

    What must give the same bits is compiled as a user's programs are, unless all programs are to be compiled quickly.
    """
    named = {item.path.name, item.path.relative_to(Path(__file__).parent).parts[0]}
    exactly = item.get_closest_marker("exact") is not None and "fusion_emitters=false" not in os.getenv("XLA_FLAGS", "")
    quickly = not named & set(OPTIMISED) and not exactly
    jax.config.update(UNOPTIMISED, quickly)
    os.environ[UNOPTIMISED.upper()] = str(quickly)  # processes that a test starts compute the same bits


@pytest.fixture(scope="session", autouse=True)
def a_cache_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Programs that took long to compile are kept among the tests' files: other modules, the other worker, and processes
    that tests start ask for some of them again."""
    base = tmp_path_factory.getbasetemp()
    kept = os.environ.get("TESTS_CACHE")  # of whoever runs the same tests many times
    home = Path(kept) if kept else (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(home))
        jax.config.update("jax_compilation_cache_dir", str(home / "sadq" / "xla"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0 if kept else 0.3)
        reset_cache()  # modules that compiled while they were imported have made JAX remember that there is none
        yield


@pytest.fixture(scope="session", autouse=True)
def programs_are_shared() -> Iterator[None]:
    """Runs of the same config have the same programs, however often it is resumed and evaluated."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Programs, "timed", shared_programs.timed)
        for module in (run, evaluate):
            patch.setattr(module, "make_loop", shared_programs.make_loop)
        yield


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compiled programs, and what a module's caches remember, go with it: no other module asks for them again.

    Those of whole runs are kept by `shared_programs`, for the next modules' runs are often of the same config.
    """
    yield
    for remembered in vars(request.module).values():
        if isinstance(remembered, functools._lru_cache_wrapper) and remembered.__module__ == request.module.__name__:
            remembered.cache_clear()
    forget()


@pytest.fixture(autouse=True)
def a_large_worker_forgets() -> Iterator[None]:
    """Within a module that compiles a lot they go when they have become too much, and are built again where needed."""
    yield
    if resident() > max(LARGE, forget.left + AGAIN):
        shared_programs.forget()
        forget()


def forget() -> None:
    """Drop what JAX has compiled, and hand the memory back."""
    jax.clear_caches()
    gc.collect()
    if hasattr(C_LIBRARY, "malloc_trim"):  # glibc keeps what was freed for later
        C_LIBRARY.malloc_trim(0)
    forget.left = resident()


forget.left = 0
C_LIBRARY = ctypes.CDLL(None) if os.name == "posix" else None


def resident() -> float:
    """MB of memory in use, where the system tells."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
