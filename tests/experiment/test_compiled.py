"""Programs that are compiled once: by this process, for the next."""

from pathlib import Path

import jax
import pytest
from jax.experimental.compilation_cache.compilation_cache import reset_cache

from sadq.experiment.compiled import keep_compiled

NAMES = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")


@pytest.fixture
def no_cache():
    before = {name: getattr(jax.config, name) for name in NAMES}
    jax.config.update(NAMES[0], None)
    reset_cache()
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    reset_cache()


def test_programs_are_kept_in_the_users_cache(no_cache, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    jax.jit(lambda x: x + 1)(1.0)  # when there was none
    keep_compiled(0.0)
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "sadq" / "xla")
    jax.jit(lambda x: x * 3 + 1)(1.0)
    assert list((tmp_path / "sadq" / "xla").iterdir())


def test_without_a_home_there_is_no_cache(no_cache, monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    keep_compiled()
    assert jax.config.jax_compilation_cache_dir is None


def test_a_cache_that_was_chosen_stays(no_cache, tmp_path):
    jax.config.update(NAMES[0], str(tmp_path / "chosen"))
    keep_compiled()
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "chosen")
