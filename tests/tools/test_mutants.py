"""The mutation tester: what it changes, what it leaves alone, and that it tells what is noticed from what is not."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
TOOL = ROOT / "tools" / "mutants.py"


@pytest.fixture(scope="module")
def tool():
    specification = importlib.util.spec_from_file_location("mutants_tool", TOOL)
    module = importlib.util.module_from_spec(specification)
    sys.modules["mutants_tool"] = module
    specification.loader.exec_module(module)
    return module


def changes(tool, source: str) -> set[str]:
    """Every mutant of a source, as the text it becomes."""
    return {mutant.applied(source) for mutant in tool.mutants("core/some.py", source)}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = a + b", ["x = (a - b)", "x = a", "x = b"]),
        ("x = a ** b", ["x = (a * b)", "x = a"]),
        ("x = a < b", ["x = (a <= b)", "x = (a > b)"]),
        ("x = a and not b", ["x = (a or not b)", "x = a and b"]),
        ("x = 1.0", ["x = 0.0", "x = 2.0", "x = (-1.0)"]),
        ("x = -a", ["x = a"]),
        ("x = ~a[i:]", ["x = a[i:]", "x = ~a[(i + 1):]"]),
        ("x = y if a is None else z", ["x = y if (a is not None) else z"]),
        ("x = f(a) if b else c", ["x = f(a) if (not b) else c"]),
        ("x = jnp.where(c, a, b)", ["x = jnp.where(c, b, a)"]),
        ("x = jnp.max(a, axis=-1)", ["x = jnp.min(a, axis=-1)", "x = jnp.max(a, axis=0)"]),
        ("x = jax.lax.stop_gradient(a)", ["x = a"]),
        ("x = a.at[i].set(b)", ["x = a"]),
        ("x = state._replace(a=b)", ["x = state"]),
        ("x = best(q, mask)", ["x = best(q, None)"]),
        ("def f(a=2): ...", ["def f(a=3): ..."]),
        ("def f(a) -> Array:\n    return a", ["def f(a) -> Array:\n    return (2 * a)"]),
        ("def f(a):\n    a = g(a)", ["def f(a):\n    pass"]),
        ("def f(a):\n    a += b", ["def f(a):\n    pass", "def f(a):\n    a -= b"]),
        ("def f(online_q, target_q):\n    g(target_q)", ["def f(online_q, target_q):\n    g(online_q)"]),
    ],
)
def test_what_is_changed(tool, before, after):
    assert changes(tool, before) == set(after)


@pytest.mark.parametrize(
    "source",
    [
        '"""One and two."""',
        'x = purpose(key, "levels")',
        "Both = Callable[[Array | None], Array]",
        "def f(a: Array | None, b: tuple[int, Literal[1]]) -> Array | None: ...",
        "raise SadqError(f'{1 + 2} is wrong')",
        "assert a + b > 1",
        "@partial(jit, static_argnums=(4,))\ndef f(): ...",
        "class Rule(Protocol):\n    size: int = 1",
        "x = isinstance(a, int | float)",
        "x = einsum(a, precision=1, dtype=2)",
    ],
)
def test_what_is_left_alone(tool, source):
    assert changes(tool, source) == set()


def test_a_sample_is_drawn_by_seed_and_spread_over_files(tool):
    text = "x = a + b + c + d\n" * 10
    candidates = {name: tool.mutants(name, text) for name in ("core/a.py", "core/b.py", "core/c.py")}
    candidates["core/c.py"] = candidates["core/c.py"][:9]
    drawn = tool.sample_of(candidates, 20, 0)
    assert drawn == tool.sample_of(candidates, 20, 0) != tool.sample_of(candidates, 20, 1)
    assert len({mutant.id for mutant in drawn}) == 20
    sizes = [sum(mutant.path == name for mutant in drawn) for name in candidates]
    assert sizes[0] in (9, 10) and sizes[1] in (9, 10) and sizes[2] == 1
    assert len(tool.sample_of(candidates, 10**6, 0)) == sum(map(len, candidates.values()))


def test_what_was_accepted_as_equivalent_still_is_there_and_says_why(tool):
    accepted, sources = tool.accepted(ROOT), tool.sources_of(ROOT, tool.STAGES)
    named = {name for name, *_ in accepted} & set(sources)
    possible = {mutant.key for name in named for mutant in tool.mutants(name, sources[name])}
    for key, reason in accepted.items():
        assert key in possible, f"{key} is no mutant any more: remove it from {tool.EQUIVALENT}"
        assert len(reason.split()) > 3, key


def test_it_tells_what_is_noticed_from_what_is_not(tmp_path):
    """A tiny project whose one test calls the second function without looking, and never the third."""
    package, tests = tmp_path / "src" / "sadq" / "core", tmp_path / "tests" / "core"
    package.mkdir(parents=True)
    tests.mkdir(parents=True)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\nmarkers = learning: slow\n")
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "some.py").write_text(
        "def asked(a):\n    return a * 3\n\n\ndef ignored(a):\n    return a % 3\n\n\ndef never(a):\n    return a - 3\n"
    )
    (tests / "test_some.py").write_text(
        "from sadq.core.some import asked, ignored\n\n\ndef test_some():\n    ignored(1)\n    assert asked(2) == 6\n"
    )
    out = tmp_path / "out.json"
    command = [sys.executable, TOOL, "--root", tmp_path, "--out", out]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    outcomes = {row["id"]: row["outcome"] for row in json.loads(out.read_text())["mutants"]}
    for name, outcome in outcomes.items():
        assert outcome == ("killed" if name.startswith("core/some.py:2:") else "survived"), name
    assert len(outcomes) == 4 + 3 + 3
    assert "core/some.py:6" in done.stdout and "-    return a % 3\n+    return a" in done.stdout
    assert "killed 4 of 10" in done.stdout

    (tests / "test_some.py").write_text("def test_some():\n    assert False\n")
    broken = subprocess.run(command, capture_output=True, text=True, check=False)
    assert broken.returncode == 2 and "Mend these tests first" in broken.stdout
