"""Compiled programs kept on the disk, so that the next process has them."""

import contextlib
import os
from pathlib import Path

import jax


def keep_compiled(smallest_seconds: float = 0.5) -> None:
    """Keep programs that took as long to compile in the user's cache folder; a folder that was chosen already stays."""
    if getattr(jax.config, "jax_compilation_cache_dir", None) is not None:
        return
    try:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:  # whoever runs this has no home
        return
    jax.config.update("jax_compilation_cache_dir", str(Path(home) / "sadq" / "xla"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", smallest_seconds)
    with contextlib.suppress(ImportError, AttributeError):
        from jax.experimental.compilation_cache.compilation_cache import reset_cache

        reset_cache()  # whoever compiled before us has made JAX remember that there is none
