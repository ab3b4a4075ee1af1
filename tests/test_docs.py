"""What the documentation says is so: its table is the code's, its examples run, its commands parse, its links lead on."""

import contextlib
import dataclasses
import importlib.util
import json
import re
import shlex
import sys
from pathlib import Path
from unittest import mock

import jax
import jax.numpy as jnp
import pytest

from sadq import axes
from sadq.agents import AGENTS, REFUSALS, AgentSpec
from sadq.axes import AXES
from sadq.cli.commands import Train
from sadq.cli.listing import COLUMNS, COMBINATIONS, cell, describe_agents
from sadq.cli.main import TAKES
from sadq.cli.options import axis_options, import_modules, parse, read_config, split
from sadq.cli.studies import Compare, Reproduce
from sadq.core import Prediction
from sadq.envs import registry
from sadq.errors import SadqError
from sadq.experiment.config import Config
from sadq.experiment.folder import FORMAT
from sadq.experiment.presets import agent_fields, preset
from sadq.experiment.records import to_json
from sadq.exploration import Rule
from sadq.registry import Axis
from sadq.studies.arms import parse_arms
from sadq.studies.reproduce import plan

ROOT = Path(__file__).parents[1]
DOCS, AXIS_PAGES = ROOT / "docs", ROOT / "docs" / "axes"
PAGES = sorted([ROOT / "README.md", *DOCS.rglob("*.md")])
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MODULE = re.compile(r"# (\w+)\.py\n")
"""What a block begins with that is a module of the reader's own."""
COMMAND = re.compile(r"^sadq (\w+) (.*)$", re.MULTILINE)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def tool(name: str):
    """A program of tools/ as a module."""
    specification = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def generator():
    return tool("agents_table")


def test_imports_point_one_way_and_every_room_says_what_it_may_import():
    assert tool("check_imports").violations() == []


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"core/__init__.py": '"""It imports."""', "core/a.py": "import sadq.errors"}, None),
        (
            {"core/__init__.py": '"""A room; imports nothing."""', "core/a.py": "from sadq.api import SADQ"},
            "may not import api",
        ),
        ({"core/__init__.py": '"""A room."""'}, "must say what the room is and what it may import"),
        ({"core/a.py": ""}, "the room has no __init__.py"),
        (
            {"report/__init__.py": '"""It imports."""', "report/a.py": "import sadq.fleet.members"},
            "may not import fleet",
        ),
        (
            {"report/__init__.py": '"""It imports."""', "report/a.py": "from sadq import learning"},
            "may not import learning",
        ),
        ({"helpers.py": ""}, "helpers has no place in the order of imports"),
        ({"api.py": "from sadq.helpers import x"}, "imports helpers, which has no place"),
    ],
)
def test_an_import_or_a_module_out_of_place_is_found(files, problem, tmp_path, monkeypatch):
    checker = tool("check_imports")
    monkeypatch.setattr(checker, "SOURCE", tmp_path)
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    found = checker.violations()
    assert len(found) == (problem is not None) and all(problem in one for one in found), found


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def config_of(arguments: str) -> Config:
    """What `sadq train` would run."""
    (name, *agent), flags = split(import_modules(shlex.split(arguments, comments=True)))
    base = preset(name)
    return read_config(Train, flags, base, "sadq train", **agent_fields(base, agent[0] if agent else None))[1]


def test_the_page_has_the_agents_of_the_code(generator):
    text = (DOCS / "agents.md").read_text()
    assert generator.updated(text) == text, "run `python tools/agents_table.py`"


def test_the_generator_sees_a_stale_table_and_a_missing_place(generator, tmp_path, monkeypatch, capsys):
    stale = tmp_path / "agents.md"
    monkeypatch.setattr(generator, "PAGE", stale)
    monkeypatch.setattr("sys.argv", ["agents_table.py", "--check"])
    stale.write_text(f"before\n{generator.BEGIN}\nold\n{generator.END}\nafter\n")
    assert generator.main() == 1
    assert "old" in stale.read_text(), "--check writes nothing"
    monkeypatch.setattr("sys.argv", ["agents_table.py"])
    assert generator.main() == 0
    written = stale.read_text()
    assert written.startswith("before\n") and written.endswith("after\n") and "old" not in written
    monkeypatch.setattr("sys.argv", ["agents_table.py", "--check"])
    assert generator.main() == 0
    stale.write_text("no markers")
    assert generator.main() == 2
    assert "expected the lines" in capsys.readouterr().err


def test_the_listing_names_every_agent_combination_and_refusal():
    lines = list(describe_agents())
    shown = "\n".join(lines)
    for name, row in AGENTS.items():
        own = next(line for line in lines if line.split()[0] == name)
        assert re.split(r"  +", own)[1:] == [cell(row, column) for column in COLUMNS]
    for expected in (*REFUSALS, *(one.command for one in COMBINATIONS), "+sadq"):
        assert expected in shown, expected
    assert "n-step 3 in default" in shown


def test_the_columns_are_the_fields_of_a_row():
    assert set(COLUMNS) == {field.name for field in dataclasses.fields(AgentSpec)}
    assert cell(AgentSpec(AXES["head"].entry("quantile")(7)), "head") == "quantile (quantiles 7)"


def test_the_table_follows_from_the_registries(generator, monkeypatch):
    for axis in AXES.values():
        monkeypatch.setattr(axis, "_entries", dict(axis._entries))

    @AXES["deviation"].register("sideways")
    @dataclasses.dataclass(frozen=True)
    class Sideways(Rule):
        """A user's own."""

    with mock.patch.dict(AGENTS, crab=AgentSpec("scalar", deviation="sideways", source="Nobody, 2030")):
        section = generator.section()
    assert "| `crab` | scalar | - | - | greedy | best | sideways | uniform | 1 | single | Nobody, 2030 |" in section
    assert re.search(r"\| `--deviation` \| .*sideways \|", section)


@pytest.mark.parametrize("combination", COMBINATIONS, ids=lambda one: one.arguments)
def test_a_worked_combination_is_accepted_and_departs_from_its_row(combination):
    config = config_of(combination.arguments)
    name, agent = combination.arguments.split()[:2]
    assert config.row != preset(name, agent).row
    if combination.meaning.startswith("teg"):
        assert dataclasses.replace(config.row, source=AGENTS["teg"].source) == preset(name, "teg").row


REFUSED = {
    "acrobot dqn --intended ucb": "intended ucb",
    "acrobot dqn --intended thompson": "intended thompson",
    "acrobot sunrise --noisy True": "noisy layers",
    "acrobot dqn --deviation never": "deviation never",
    "acrobot bdqn --dueling True": "head bayesian infers",
    "acrobot bdqn --ensemble agreement": "head bayesian is a distribution",
}


@pytest.mark.parametrize("arguments", REFUSED)
def test_a_refused_combination_gets_the_sentence_that_is_listed(arguments):
    sentence = next(sentence for sentence in REFUSALS if sentence.startswith(REFUSED[arguments]))
    with pytest.raises(SadqError, match=re.escape(sentence)):
        config_of(arguments)


def test_every_refusal_has_an_example():
    assert all(any(sentence.startswith(start) for start in REFUSED.values()) for sentence in REFUSALS)


PAGE_OF = {
    "head": "network.md",
    "encoder": "network.md",
    "bootstrap": "bootstrap.md",
    "intended": "exploration.md",
    "deviation": "exploration.md",
    "exploration": "exploration.md",
    "replay": "replay.md",
    "ensemble": "ensemble.md",
    "gate": "gate.md",
    "model": "dynamics.md",
    "pacing": "dynamics.md",
    "optimiser": "optimiser.md",
}


def table_lines(page: str) -> list[str]:
    return [line for line in (AXIS_PAGES / page).read_text().splitlines() if line.startswith("|")]


@pytest.mark.parametrize("axis", PAGE_OF)
def test_every_entry_of_an_axis_is_on_its_page(axis):
    """In a table's first cell, where a reader looks; words like greedy occur elsewhere too."""
    cells = [line.split("|")[1] for line in table_lines(PAGE_OF[axis])]
    for name in AXES[axis]:
        assert any(re.search(rf"(^|[\s`]){re.escape(name)}`", cell) for cell in cells), name


@pytest.mark.parametrize("axis", ["head", "bootstrap", "intended", "deviation"])
def test_every_agent_is_on_the_page_of_each_of_its_choices(axis):
    """The tables say who uses what."""
    for name in {cell(row, axis) for row in AGENTS.values()}:
        line = next(line for line in table_lines(PAGE_OF[axis]) if line.startswith(f"| `{name}` "))
        users = {agent for agent, row in AGENTS.items() if cell(row, axis) == name}
        assert users == set(re.findall(r"[\w-]+", line.split("|", 2)[2])) & set(AGENTS), name


def options(part: object = Config, prefix: str = "--") -> set[str]:
    """Every option of a config, by the names that the command line has for its fields."""
    found = set()
    for field in dataclasses.fields(part):
        option = prefix + field.name.replace("_", "-")
        parts = [AXES[field.name].entry(name) for name in AXES.get(field.name, ())]
        parts += [field.default] if dataclasses.is_dataclass(field.default) else []
        found |= {option}.union(*(options(one, f"{option}.") for one in parts))
    return found | {"--import"}


def test_the_options_known_here_are_those_of_the_command_line():
    assert {option for option, _ in axis_options()} <= options()
    assert {"--head.atoms", "--guidance.optimiser.weight-decay", "--epsilon.start"} <= options()


@pytest.mark.parametrize("page", sorted(AXIS_PAGES.glob("*.md")), ids=named)
def test_every_option_on_a_page_exists(page):
    """Also where only its end is given, as in `--epsilon.start`, `.end`."""
    known, text = options(), page.read_text()
    for option in re.findall(r"`(--[\w.-]+)", text):
        assert option in known, option
    for end in re.findall(r"`(\.[a-z][a-z-]*)`", text):
        assert any(option.endswith(end) for option in known), end


@pytest.mark.parametrize(
    "page", [DOCS / "extending.md", DOCS / "architecture.md", *sorted(AXIS_PAGES.glob("*.md"))], ids=named
)
def test_every_file_on_a_page_exists(page):
    for name in re.findall(r"`([\w/]+(?:\.py|/))`", page.read_text()):
        assert (ROOT / "src" / "sadq" / name).exists(), name


OF_THE_READER = {
    "model_step": lambda context, action, key: Prediction(action * 1.0, context),
    "target_values": lambda successor: jnp.arange(3.0),
    "context": jnp.zeros(2),
    "action_count": 3,
    "key": jax.random.key(0),
    "online_q": jnp.arange(3.0),
    "target_q": jnp.arange(3.0),
    "mask": None,
}
"""What the README's agent of one's own has."""
LONG, SHORT = "50_000", "64"  # env steps of the README's first example


@pytest.fixture
def taken_back():
    """What a page registers is taken back after it."""
    known = set(sys.modules)
    with mock.patch.dict(AGENTS), mock.patch.dict(registry._FACTORIES), contextlib.ExitStack() as stack:
        for axis in AXES.values():
            stack.enter_context(mock.patch.dict(axis._entries))
        yield
    for name in set(sys.modules) - known:
        if name.startswith("my_") or (ROOT / "examples" / f"{name}.py").exists():
            del sys.modules[name]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if COMMAND.search(page.read_text()) or BLOCK.search(page.read_text())], ids=named
)
def test_the_examples_run(page, taken_back, tmp_path, monkeypatch):
    """Blocks run in order, as a reader would paste them, modules as modules; then the commands are read."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(ROOT / "examples")
    monkeypatch.syspath_prepend(tmp_path)
    if any("sadq.sb3" in block for block in BLOCK.findall(page.read_text())):
        pytest.importorskip("stable_baselines3", reason="needs the extra sb3: make sb3")
    scope, text = OF_THE_READER | {"__name__": page.stem}, page.read_text().replace(LONG, SHORT)
    for block in BLOCK.finditer(text):
        if module := MODULE.match(block.group(1)):
            Path(f"{module.group(1)}.py").write_text(block.group(1))
            importlib.import_module(module.group(1))
        else:
            # Blank lines before it make a traceback show the page's own lines.
            above = "\n" * text.count("\n", 0, block.start(1))
            exec(compile(above + block.group(1), named(page), "exec"), scope)
    for command, arguments in COMMAND.findall(text.replace("\\\n", "")):  # of commands that go on in the next line
        assert command in TAKES
        words = shlex.split(arguments, comments=True)
        if command == "train":
            config_of(arguments)
        elif command == "compare":
            (name, *arms), flags = split(words)
            shared = read_config(Compare, flags, preset(name), "sadq compare")[1]
            assert [arm.config(shared) for arm in parse_arms(arms)]
        elif command == "reproduce":
            asked = parse(Reproduce, words, None, "sadq reproduce")
            if asked.artefact != "theory":
                assert plan(asked.artefact, asked.quick, asked.seeds, asked.only, asked.beside)


@pytest.mark.parametrize(
    ("name", "axis"), [(name, axis) for name, axis in vars(axes).items() if isinstance(axis, Axis)]
)
def test_the_page_of_an_axis_adds_an_entry_in_a_short_module(name, axis):
    blocks = BLOCK.findall((AXIS_PAGES / PAGE_OF[axis.name]).read_text())
    modules = [block for block in blocks if MODULE.match(block)]
    assert any(f"@{name}.register(" in module for module in modules)
    assert all(module.count("\n") < 40 for module in modules)


def test_the_config_that_is_shown_is_what_its_command_writes():
    text = (DOCS / "run-folders.md").read_text()
    shown = json.loads(re.search(r"^```json\n(.*?)^```$", text, re.MULTILINE | re.DOTALL).group(1))
    written = to_json(config_of(re.search(r"`sadq train (.*?)` writes", text).group(1)))
    assert shown == {name: written[name] for name in shown}
    assert f"`format` is {FORMAT}." in text


def test_every_axis_has_a_page_with_an_example():
    pages = {page.name for page in AXIS_PAGES.glob("*.md")}
    assert set(PAGE_OF.values()) <= pages
    assert pages == {page.name for page in AXIS_PAGES.glob("*.md") if BLOCK.search(page.read_text())}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page):
    for target in LINK.findall(page.read_text()):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{named(page)} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", found.read_text(), flags=re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}, target
