"""Axes: entries by name, and each refusal in one sentence."""

import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import pytest

from sadq import registry
from sadq.agents import AGENTS, AgentSpec, check_row, parse_agent, register_agent
from sadq.axes import AXES
from sadq.core.ensembles import Agreement
from sadq.errors import SadqError
from sadq.exploration import Best, Never, RandomAction, Thompson, UpperConfidence
from sadq.networks import Bayesian, Categorical, Scalar
from sadq.registry import Axis


@dataclass(frozen=True)
class Small:
    size: int = 3
    share: float = 0.5
    kind: str = "soft"
    layers: tuple[int, ...] = (4,)
    limit: int | None = None


@dataclass(frozen=True)
class Needy:
    size: int


@pytest.fixture
def axis() -> Axis:
    made = Axis("colour", "what a thing looks like")
    made.register("small")(Small)
    made.register("needy")(Needy)
    return made


def test_a_choice_comes_from_itself_its_class_or_its_name(axis):
    own = Small(size=7)
    assert axis.choice(own) is own
    assert axis.choice(Small) == axis.choice("small") == Small()
    assert (list(axis), "small" in axis, "large" in axis) == (["small", "needy"], True, False)
    assert axis.name_of(own) == axis.name_of(Small) == "small"


def test_a_name_or_class_takes_its_settings_from_those_adjusted(axis):
    adjusted = (Needy(1), Small(size=9))
    assert axis.choice("small", adjusted) == axis.choice(Small, adjusted) == Small(size=9)
    assert axis.choice("needy", adjusted) == Needy(1)
    assert axis.choice(Small(size=2), adjusted) == Small(size=2), "what is given as a choice is meant as it is"


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (
            "smal",
            "colour = 'smal' is unknown (did you mean small?): expected small, needy; an entry of your own is known",
        ),
        ("blue", "colour = 'blue' is unknown: expected small, needy;"),
        (3, "colour was given 3, expected one of small, needy or an entry that was registered as colour."),
        (int, "colour was given <class 'int'>, expected one of small, needy"),
        ("needy", "colour needy cannot be chosen by its name: its setting size has no default"),
    ],
)
def test_what_is_no_choice_is_refused_in_a_sentence(axis, value, sentence):
    with pytest.raises(SadqError, match=re.escape(sentence)):
        axis.choice(value)


def test_an_empty_axis_says_so():
    with pytest.raises(SadqError, match="colour = 'blue' is unknown: expected one of your own, which is known once"):
        Axis("colour", "").choice("blue")


def test_a_subclass_is_another_entry(axis):
    @dataclass(frozen=True)
    class Smaller(Small):
        pass

    with pytest.raises(SadqError, match="expected one of small"):
        axis.choice(Smaller())


@pytest.mark.parametrize(
    ("name", "entry", "sentence"),
    [
        ("small", Needy, "colour small is registered already: choose another name, or replace=True."),
        ("a b", Small, "colour 'a b' cannot be registered, expected a name of letters, digits, - and _."),
        ("", Small, "colour '' cannot be registered"),
        ("new", int, "expected a frozen dataclass"),
        ("new", Small(), "expected a frozen dataclass"),
        ("new", dataclasses.make_dataclass("Loose", []), "expected a frozen dataclass"),
    ],
)
def test_what_cannot_be_registered_is_refused(axis, name, entry, sentence):
    with pytest.raises(SadqError, match=re.escape(sentence)):
        axis.register(name)(entry)
    assert list(axis) == ["small", "needy"]


def test_what_lacks_a_part_that_its_axis_asks_for_is_refused():
    made = Axis("shade", "how dark", "size", "__call__", "mixed")
    expected = "without __call__, mixed, which every shade has: add them."
    with pytest.raises(SadqError, match=f"^shade small cannot be registered {expected}$"):
        made.register("small")(Small)
    whole = dataclasses.make_dataclass("Whole", [("size", int)], frozen=True, namespace={"__call__": len})
    with pytest.raises(SadqError, match="without mixed, which every shade has: add it."):
        made.register("whole")(whole)
    heir = dataclasses.make_dataclass("Heir", [], bases=(whole,), frozen=True, namespace={"mixed": 1.0})
    assert made.register("heir")(heir) is heir and list(made) == ["heir"]


def test_every_built_in_axis_says_what_it_asks_for():
    assert all(axis.asks for axis in AXES.values())
    lacking = dataclasses.make_dataclass("Lacking", [], frozen=True)
    for axis in AXES.values():
        with pytest.raises(SadqError, match=f"without {', '.join(axis.asks)}, which every {axis.name} has"):
            axis.register("lacking")(lacking)


def test_a_class_of_the_same_name_from_another_module_replaces_nothing(axis):
    other = dataclasses.make_dataclass("Small", [], frozen=True)
    other.__qualname__, other.__module__ = Small.__qualname__, "my_module"
    with pytest.raises(SadqError, match="colour small is registered already: choose another name, or replace=True."):
        axis.register("small")(other)
    assert axis.entry("small") is Small
    axis.register("small", replace=True)(other)
    assert axis.entry("small") is other


def test_an_entry_replaces_itself_as_after_a_reload_and_others_when_asked(axis):
    again = type("Small", (), {"__qualname__": Small.__qualname__, "__annotations__": {}})
    again = dataclasses.dataclass(frozen=True)(again)
    assert axis.register("small")(again) is again and axis.entry("small") is again
    axis.register("small", replace=True)(Needy)
    assert axis.entry("small") is Needy


def test_changes_are_the_settings_that_are_not_defaults():
    assert registry.changes(Small(size=3, share=0.1, limit=4)) == {"share": 0.1, "limit": 4}
    assert registry.changes(Needy(3)) == {"size": 3}


CHECKS = [
    (lambda own: registry.at_least(own, 1, "size"), {"size": 1}, [{"size": 0}, {"size": 1.5}, {"size": True}]),
    (lambda own: registry.at_least(own, 1, "limit", or_none=True), {"limit": None}, [{"limit": 0}, {"limit": "x"}]),
    (lambda own: registry.positive(own, "share"), {"share": 0.1}, [{"share": bad} for bad in (0.0, -1.0, 1e39, None)]),
    (lambda own: registry.positive(own, "limit", or_none=True), {"limit": None}, [{"limit": 0}, {"limit": -1}]),
    (lambda own: registry.not_negative(own, "share"), {"share": 0}, [{"share": -0.1}, {"share": float("nan")}]),
    (lambda own: registry.share(own, "share"), {"share": 1}, [{"share": 1.1}, {"share": -0.1}, {"share": "x"}]),
    (lambda own: registry.one_of(own, "kind", "soft", "hard"), {"kind": "hard"}, [{"kind": "odd"}]),
    (
        lambda own: registry.layer_sizes(own, "layers"),
        {"layers": (1,)},
        [{"layers": ()}, {"layers": (8, 0)}, {"layers": 8}, {"layers": (8.0,)}],
    ),
]


@pytest.mark.parametrize("number", range(len(CHECKS)))
def test_a_check_lets_pass_what_is_fine_and_names_what_is_not(number):
    check, fine, bad = CHECKS[number]
    check(Small(**fine))
    for settings in bad:
        ((name, value),) = settings.items()
        with pytest.raises(SadqError, match=re.escape(f"Small: {name} = {value!r} must ")) as refusal:
            check(Small(**settings))
        assert "\n" not in str(refusal.value)


class Sketch(Protocol):
    def draw(self) -> None: ...


def test_types_are_checked_as_far_as_annotations_tell_them(axis):
    @axis.register("loose")
    @dataclass(frozen=True)
    class Loose:
        nothing: int = None  # a default may be anything
        anything: Any = 3
        sketch: Sketch = None
        named: dict[str, int] = dataclasses.field(default_factory=dict)
        pair: tuple[int, str] = (1, "a")
        call: Callable[[int], int] = abs

    assert Loose(None, object, 7, {"a": "b"}, [2, "b"], len).pair == (2, "b")
    for settings, expected in [
        ({"nothing": "x"}, "Loose: nothing = 'x' must be a whole number."),
        ({"named": 3}, "Loose: named = 3 must be of type dict."),
        ({"pair": (1, 2)}, "Loose: pair = (1, 2) must be a tuple of 2 whole numbers."),
        ({"call": 3}, "Loose: call = 3 must be of type Callable."),
    ]:
        with pytest.raises(SadqError, match=re.escape(expected)):
            Loose(**settings)
    with pytest.raises(TypeError, match="unexpected keyword argument|unexpected 'odd'|got an"):
        Loose(odd=3)


def test_annotations_that_cannot_be_resolved_are_not_held_against_an_entry(axis):
    @axis.register("later")
    @dataclass(frozen=True)
    class Later:
        size: "Unknown" = 3  # noqa: F821

    assert Later("x").size == "x"


def test_an_entry_that_makes_itself_keeps_doing_so(axis):
    @axis.register("own")
    @dataclass(frozen=True)
    class Own:
        size: int = 3

        def __init__(self, twice: float = 4.0):
            object.__setattr__(self, "size", int(twice / 2))

    assert (Own().size, Own(8.0).size) == (2, 4)
    axis.register("own")(Own)
    assert Own(6).size == 3


@pytest.mark.parametrize("axis", AXES)
def test_every_built_in_entry_can_be_chosen_by_its_name_and_explains_itself(axis):
    for name in AXES[axis]:
        choice = AXES[axis].choice(name)
        assert AXES[axis].name_of(choice) == name
        assert (choice.__doc__ or "").strip() and not choice.__doc__.startswith(f"{type(choice).__name__}(")
        assert hash(choice) == hash(AXES[axis].choice(name))
    assert AXES[axis].meaning


# Rows.


@pytest.fixture
def agents(monkeypatch):
    for name in set(AGENTS):
        monkeypatch.setitem(AGENTS, name, AGENTS[name])
    before = set(AGENTS)
    yield AGENTS
    for name in set(AGENTS) - before:
        del AGENTS[name]


def test_a_row_takes_choices_classes_and_names():
    assert (
        AgentSpec("scalar")
        == AgentSpec(Scalar)
        == AgentSpec(Scalar())
        == dataclasses.replace(AGENTS["dqn"], source="-")
    )
    with pytest.raises(SadqError, match="head = 'nope' is unknown"):
        AgentSpec("nope")
    with pytest.raises(SadqError, match="n_step = 0 must be a whole number of at least 1"):
        AgentSpec("scalar", n_step=0)


def test_a_registered_agent_takes_the_suffix_and_may_be_registered_again(agents):
    row = AgentSpec(Categorical(atoms=21), n_step=2)
    register_agent("mine-2", row)
    register_agent("mine-2", row)
    assert (parse_agent("mine-2"), parse_agent("Mine-2+SADQ")) == (("mine-2", False), ("mine-2", True))


@pytest.mark.parametrize(
    ("name", "row", "sentence"),
    [
        ("dqn", AgentSpec("quantile"), "Agent dqn is registered already"),
        ("sadq", AgentSpec("quantile"), "Agent sadq is registered already"),
        ("dqn+sadq", AgentSpec("quantile"), "expected a name of small letters, digits, - and _"),
        ("Mine", AgentSpec("quantile"), "expected a name of small letters"),
        ("", AgentSpec("quantile"), "expected a name of small letters"),
        ("mine", "quantile", "Agent mine was registered with 'quantile', expected a row: an AgentSpec."),
        ("mine", AgentSpec("scalar", intended="ucb"), "Agent mine cannot be combined like that: intended ucb needs"),
    ],
)
def test_an_agent_that_cannot_be_registered_is_refused(agents, name, row, sentence):
    before = dict(AGENTS)
    with pytest.raises(SadqError, match=re.escape(sentence)):
        register_agent(name, row)
    assert before == AGENTS


@pytest.mark.parametrize("name", AGENTS)
def test_every_row_makes_sense_and_names_its_source(name):
    check_row(AGENTS[name], name)
    assert re.search(r", \d{4}[ab]?$", AGENTS[name].source)


def test_the_rows_behave_as_their_papers_say():
    behaviour = {name: (type(row.intended), type(row.deviation)) for name, row in AGENTS.items()}
    assert behaviour["sunrise"] == (UpperConfidence, RandomAction), "epsilon applies"
    assert behaviour["bdqn"] == (Thompson, Never)
    assert behaviour["rainbow"] == (Best, Never)
    assert AGENTS["sunrise"].ensemble == Agreement(5)
    assert isinstance(AGENTS["bdqn"].head, Bayesian)


def test_an_exploration_of_the_users_own_is_exempt_from_what_behaviour_alone_is_refused_for():
    for choices in ({"deviation": "never"}, {"intended": "ucb"}, {"intended": "thompson", "noisy": True}):
        check_row(AgentSpec("scalar", **choices), "mine", own_exploration=True)
    with pytest.raises(SadqError, match="neither dueling nor noisy"):
        check_row(AgentSpec("bayesian", dueling=True), "mine", own_exploration=True)
