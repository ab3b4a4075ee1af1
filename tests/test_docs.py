"""What the documentation says is so: its table is the code's, its examples run, its commands parse, its links lead on."""

import dataclasses
import importlib.util
import re
import shlex
import typing
from pathlib import Path
from unittest import mock

import pytest

from sadq.agents import AGENTS, BOOTSTRAPS, EXPLORATIONS, HEADS, REFUSALS, REPLAYS, AgentSpec
from sadq.cli.main import Train
from sadq.core.bootstrap import RULES
from sadq.core.gates import GATES
from sadq.errors import SadqError
from sadq.experiment.config import Config, Model
from sadq.experiment.presets import preset
from sadq.cli.listing import AXES, COMBINATIONS, FLAG, SOURCES, describe_agents
from sadq.cli.options import parse, split

ROOT = Path(__file__).parents[1]
DOCS, AXIS_PAGES = ROOT / "docs", ROOT / "docs" / "axes"
PAGES = sorted([ROOT / "README.md", *DOCS.rglob("*.md")])
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


@pytest.fixture(scope="module")
def generator():
    specification = importlib.util.spec_from_file_location("agents_table", ROOT / "tools" / "agents_table.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def config_of(arguments: str) -> Config:
    """What `sadq train` would run."""
    positional, flags = split(shlex.split(arguments))
    return parse(Train, flags, Train(preset(*positional)), "sadq train").config


def test_the_readme_has_the_agents_of_the_code(generator):
    text = (ROOT / "README.md").read_text()
    assert generator.updated(text) == text, "run `python tools/agents_table.py`"


def test_the_generator_sees_a_stale_table_and_a_missing_place(generator, tmp_path, monkeypatch, capsys):
    stale = tmp_path / "README.md"
    monkeypatch.setattr(generator, "README", stale)
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


def test_the_listing_names_every_agent_value_combination_and_refusal():
    lines = list(describe_agents())
    shown = "\n".join(lines)
    for name, row in AGENTS.items():
        own = next(line.split() for line in lines if line.split()[0] == name)
        assert own[1 : 1 + len(AXES)] == [axis.cell(row) for axis in AXES]
    for expected in (*(axis.option for axis in AXES), *REFUSALS, *(one.command for one in COMBINATIONS), "+sadq"):
        assert expected in shown, expected
    assert "n-step 3 in default" in shown
    assert set(SOURCES) == set(AGENTS)


def test_the_axes_listed_are_those_that_the_command_line_takes():
    hints = typing.get_type_hints(Config)
    assert {axis.name for axis in AXES} == {field.name for field in dataclasses.fields(AgentSpec)}
    for axis in AXES:
        taken = next(option for option in typing.get_args(hints[axis.name]) if option is not type(None))
        if typing.get_origin(taken) is typing.Literal:
            assert typing.get_args(taken) == axis.values, axis.name
        elif taken is bool:
            assert axis.values == FLAG, axis.name
        else:
            assert taken is int and axis.values[0] == "1", axis.name


@pytest.mark.parametrize("combination", COMBINATIONS, ids=lambda one: one.arguments)
def test_a_worked_combination_is_accepted_and_departs_from_its_row(combination):
    config = config_of(combination.arguments)
    assert config.row != AGENTS[config.agent.removesuffix("+sadq")]
    if combination.meaning.startswith("teg"):
        assert config.row == AGENTS["teg"]


REFUSED = {
    "acrobot dqn --exploration ucb": "exploration ucb",
    "acrobot dqn --exploration thompson": "exploration thompson",
    "acrobot sunrise --noisy True": "noisy layers",
    "acrobot dqn --exploration greedy": "exploration greedy",
    "acrobot bdqn --dueling True": "head bayesian infers",
    "acrobot bdqn --ensemble 5": "head bayesian is a distribution",
}


@pytest.mark.parametrize("arguments", REFUSED)
def test_a_refused_combination_gets_the_sentence_that_is_listed(arguments):
    sentence = next(sentence for sentence in REFUSALS if sentence.startswith(REFUSED[arguments]))
    with pytest.raises(SadqError, match=re.escape(sentence)):
        config_of(arguments)


def test_every_refusal_has_an_example():
    assert all(any(sentence.startswith(start) for start in REFUSED.values()) for sentence in REFUSALS)


@pytest.mark.parametrize(
    ("page", "values"),
    [
        ("network.md", HEADS),
        ("bootstrap.md", (*BOOTSTRAPS, *RULES)),
        ("exploration.md", EXPLORATIONS),
        ("replay.md", REPLAYS),
        ("gate.md", (*GATES, *typing.get_args(typing.get_type_hints(Model)["gate"]))),
    ],
)
def test_every_value_of_an_axis_is_on_its_page(page, values):
    """In a table's first cell, where a reader looks; words like greedy occur elsewhere too."""
    text = (AXIS_PAGES / page).read_text()
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("|")]
    for value in values:
        assert any(re.search(rf"(^|[\s`]){re.escape(value)}`", cell) for cell in cells), value


def test_every_agent_is_on_the_page_of_each_of_its_choices():
    """The tables say who uses what."""
    choices = [("network.md", "head"), ("bootstrap.md", "bootstrap"), ("exploration.md", "exploration")]
    for page, axis in choices:
        text = (AXIS_PAGES / page).read_text()
        for value in {getattr(row, axis) for row in AGENTS.values()}:
            line = next(line for line in text.splitlines() if line.startswith(f"| `{value}` "))
            users = {name for name, row in AGENTS.items() if getattr(row, axis) == value}
            beside = line.split("|", 2)[2]
            assert users == set(re.findall(r"[\w-]+", beside)) & set(AGENTS), (page, value)


def options(kind: type, prefix: str = "--") -> set[str]:
    """Every option of a config, by the names that the command line has for its fields."""
    found = set()
    for name, hint in typing.get_type_hints(kind).items():
        option = prefix + name.replace("_", "-")
        found |= options(hint, f"{option}.") if dataclasses.is_dataclass(hint) else {option}
    return found


@pytest.mark.parametrize("page", sorted(AXIS_PAGES.glob("*.md")), ids=named)
def test_every_option_on_a_page_exists(page):
    """Also where only its end is given, as in `--epsilon.start`, `.end`."""
    known, text = options(Config), page.read_text()
    for option in re.findall(r"`(--[\w.-]+)", text):
        assert option in known, option
    for end in re.findall(r"`(\.[a-z][a-z-]*)`", text):
        assert any(option.endswith(end) for option in known), end


@pytest.mark.parametrize("page", [DOCS / "README.md", *sorted(AXIS_PAGES.glob("*.md"))], ids=named)
def test_every_file_on_a_page_exists(page):
    for name in re.findall(r"`([\w/]+(?:\.py|/))`", page.read_text()):
        assert (ROOT / "src" / "sadq" / name).exists(), name


@pytest.mark.parametrize("page", [DOCS / "README.md", *sorted(AXIS_PAGES.glob("*.md"))], ids=named)
def test_the_examples_run(page):
    """Blocks of a page run in order, as a reader would paste them; what they register is taken back."""
    scope: dict[str, object] = {"__name__": page.stem}
    with mock.patch.dict(AGENTS), mock.patch.dict(RULES), mock.patch.dict(GATES):
        text = page.read_text()
        for block in BLOCK.finditer(text):
            # Blank lines before it make a traceback show the page's own lines.
            above = "\n" * text.count("\n", 0, block.start(1))
            exec(compile(above + block.group(1), named(page), "exec"), scope)


def test_every_axis_has_a_page_with_an_example():
    pages = {page.name for page in AXIS_PAGES.glob("*.md")}
    assert {axis.page for axis in AXES} <= pages
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
