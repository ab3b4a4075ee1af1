"""Where members run: equal shares over all devices, idle copies that nobody sees, and no second copy of a fleet."""

import dataclasses
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_runs
from tiny_runs import TINY, copied

from sadq.experiment.build import hyper_of, make_learner, resolve
from sadq.fleet import devices
from sadq.fleet.answers import LIGHT, evaluating
from sadq.fleet.devices import LEVEL, Placement, Program
from sadq.networks import Dense
from small_fleets import scan_fleet
from tiny import config, difference

HERE = Path(__file__).parent


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("members", [1, 2, 3, 4, 5, 8, 9])
def test_members_lie_in_equal_shares_with_as_few_idle_copies_as_that_takes(members, count):
    placement = Placement(members, tuple(range(count)))  # type: ignore[arg-type]
    assert len(placement.mesh) == min(members, count)
    assert placement.share == -(-members // min(members, count))
    assert placement.share * len(placement.mesh) == members + placement.idle
    assert 0 <= placement.idle < len(placement.mesh)
    tree = {"own": jnp.arange(members) + 10, "wide": jnp.arange(2.0 * members).reshape(members, 2)}
    padded = placement.padded(tree)
    assert all(leaf.shape[0] == members + placement.idle for leaf in jax.tree.leaves(padded))
    np.testing.assert_array_equal(padded["own"][members:], tree["own"][-1])
    assert difference(placement.real(padded), tree) == 0


class Compiler:
    """Stands in for a program that is yet to be compiled, and notes for what."""

    def __init__(self, fails=False):
        self.asked, self.fails, self.options = [], fails, None

    def lower(self, *arguments):
        self.asked.append(arguments)
        if self.fails:
            raise ValueError("too large")
        return self

    def compile(self, compiler_options=None):
        self.options = compiler_options
        return lambda *arguments: arguments


def threads_end():
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(10)


def test_a_program_is_compiled_once_ahead_of_its_call_or_by_it():
    waits: list[float] = []
    called, prepared = (Program(Compiler(), waits.append) for _ in range(2))
    assert called(1, 2) == called(1, 2) == (1, 2)
    assert called._program.asked == [(1, 2)] and len(waits) == 1
    prepared.prepare(jnp.zeros((2, 3)), [np.int32(4)])
    threads_end()
    shapes = jax.ShapeDtypeStruct((2, 3), np.float32), [jax.ShapeDtypeStruct((), np.int32)]
    assert prepared._program.asked == [shapes]
    assert prepared("it runs") == ("it runs",)
    assert prepared._program.asked == [shapes] and len(waits) == 1, "nobody waited for it"


def test_what_cannot_be_compiled_ahead_fails_where_it_is_called():
    program = Program(Compiler(fails=True), lambda seconds: None)
    program.prepare(np.int32(1))
    threads_end()
    with pytest.raises(ValueError, match="too large"):
        program(1)
    assert len(program._program.asked) == 2


@pytest.fixture
def optimising():
    """Switches what JAX itself knows of how hard compilers try."""
    before = jax.config.read("jax_disable_most_optimizations")
    yield lambda wanted: jax.config.update("jax_disable_most_optimizations", not wanted)
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.mark.parametrize(
    ("flags", "wanted", "options"), [("", True, {LEVEL: 2}), (f"--{LEVEL}=1", True, None), ("", False, None)]
)
def test_on_a_cpu_compilers_try_less_hard_unless_someone_chose(monkeypatch, optimising, flags, wanted, options):
    monkeypatch.setenv("XLA_FLAGS", flags)
    optimising(wanted)
    program = Program(compiler := Compiler(), lambda seconds: None)
    assert program(1) == (1,) and compiler.options == options


def test_few_multiplications_beside_training_are_left_to_the_host():
    accelerator = Placement(3, (SimpleNamespace(platform="cuda"),))  # type: ignore[arg-type]
    on_host = evaluating(accelerator, LIGHT)
    assert [device.platform for device in on_host.mesh] == ["cpu"] and on_host.members == 3
    assert evaluating(accelerator, LIGHT + 1) is accelerator
    here = Placement(3)
    assert evaluating(here, 1) is here


FLEET = dataclasses.replace(TINY, seeds=(3, 1, 4, 15, 9), steps=TINY.steps // 10, evaluations=4)

FOUR = "--xla_force_host_platform_device_count=4"
ON_FOUR_DEVICES = """
import json, sys
import jax, numpy as np
sys.path[:0] = {paths!r}
import tiny_runs
from pathlib import Path
from test_devices import FLEET
from sadq.experiment.opening import reopen

folder, saved, save = Path({folder!r}), [], tiny_runs.checkpoint.save

def watched(path, collect, state, *rest):
    saved.extend(type(leaf).__module__ for leaf in jax.tree.leaves(state))
    return save(path, collect, state, *rest)

tiny_runs.checkpoint.save = watched
experiment = tiny_runs.train(folder / "four", FLEET)
leaves = jax.tree.leaves(experiment.state)
found = {{
    "devices": jax.device_count(),
    "used": sorted({{len(leaf.sharding.device_set) for leaf in leaves}}),
    "members": sorted({{leaf.shape[0] for leaf in leaves}}),
    "shares": sorted({{shard.data.shape[0] for leaf in leaves for shard in leaf.addressable_shards}}),
    "busy": sorted({{shard.device.id for shard in leaves[0].addressable_shards}}),
    "saved": sorted(set(saved)),
}}
tiny_runs.train(folder / "half on four", FLEET, tiny_runs.stop_at(FLEET.steps // 2))
resumed = reopen(folder / "half on one")
resumed.begin()
fresh = resumed.loop.start()
found["placed"] = [one.sharding == other.sharding for one, other in
                   zip(jax.tree.leaves(resumed.state), jax.tree.leaves(fresh), strict=True)]
resumed.close()
tiny_runs.resume(folder / "half on one")
print(json.dumps(found))
"""


def test_five_members_use_all_four_devices_and_checkpoints_are_the_members_alone(tmp_path):
    """What is saved on four devices goes on on one, and the other way round, to the end of a run on one."""
    tiny_runs.train(tmp_path / "one", FLEET)
    tiny_runs.train(tmp_path / "half on one", FLEET, tiny_runs.stop_at(FLEET.steps // 2))
    paths = [str(HERE), str(HERE.parent), str(HERE.parent / "experiment"), str(HERE.parent / "envs")]
    compiled_once = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache"), tiny_runs.SMALLEST.upper(): "0"}
    done = subprocess.run(
        [sys.executable, "-c", ON_FOUR_DEVICES.format(paths=paths, folder=str(tmp_path))],
        env=os.environ | {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {FOUR}"} | compiled_once,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert all(found.pop("placed"))
    # A part of what lies on four devices would be whole on each, so that what is saved is cut on the host.
    spread = {"devices": 4, "used": [4], "members": [8], "shares": [2], "busy": [0, 1, 2, 3], "saved": ["numpy"]}
    assert found == spread
    tiny_runs.resume(copied(tmp_path / "half on four", tmp_path / "back on one"))
    one = tiny_runs.tensors(tmp_path / "one")
    assert {value.shape[0] for value in one.values()} == {5}
    for run in ("four", "half on one", "back on one"):
        other = tiny_runs.tensors(tmp_path / run)
        assert other.keys() == one.keys()
        for name, value in one.items():
            # Another number of devices may round a sum otherwise; nothing else differs.
            np.testing.assert_allclose(other[name], value, rtol=1e-4, atol=1e-6, err_msg=name)
        steps = [[row["step"] for row in tiny_runs.lines(tmp_path / each / "metrics.jsonl")] for each in (run, "one")]
        assert steps[0] == steps[1]


@pytest.mark.exact
@pytest.mark.parametrize("agent", ["dqn", pytest.param("teg", marks=pytest.mark.thorough)])
def test_a_chunk_holds_no_second_copy_of_its_members(agent):
    """`lax.map` would: it cannot write a member back to where it was read. Both compute the same bits."""
    sizes = {"encoder": Dense((8,)), "batch_size": 4, "updates_per_collect": 2, "n_step": None}
    made = config(agent, "BitFlip-4", buffer_size=40_000, seeds=tuple(range(8)), **sizes)
    fleet, hyper = scan_fleet(made), hyper_of(made)
    replay = make_learner(made, resolve(made.environment)).store.nbytes

    def program(stacked):
        chunk = lambda member, own: fleet.chunk(member, own, jnp.int32(0), 2)  # noqa: E731
        return jax.jit(lambda member, own: stacked(chunk, member, own), donate_argnums=0)

    start = jax.jit(jax.vmap(fleet.init))
    compiled = {
        stacked: program(stacked).lower(jax.eval_shape(start, hyper), hyper).compile()
        for stacked in (devices._in_place, devices._one_by_one)
    }
    held, doubled = (one.memory_analysis().temp_size_in_bytes for one in compiled.values())
    assert held < 2 * replay < 8 * replay < doubled
    assert compiled[devices._in_place].memory_analysis().alias_size_in_bytes > 8 * replay
    (state, metrics), expected = (one(start(hyper), hyper) for one in compiled.values())
    assert difference((state, metrics), expected) == 0
    assert difference(state.learner.online, start(hyper).learner.online) > 0
