"""The table of games, their names, and what is refused before any game is loaded."""

import subprocess
import sys

import numpy as np
import pytest

from sadq.envs import list_environments, make
from sadq.envs.atari import GAMES, AtariSpec, games, human_normalised
from sadq.errors import SadqError


def test_the_table_has_what_ale_says():
    ale_py = pytest.importorskip("ale_py", reason="Atari games need sadq[atari]")
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    assert len(GAMES) == 26
    for game in GAMES.values():
        console = ale_py.ALEInterface()
        console.loadROM(ale_py.roms.get_rom_path(game.rom))
        actions = [action.name for action in console.getMinimalActionSet()]
        assert (len(actions), "FIRE" in actions) == (game.actions, game.fires), game.rom
        assert actions[0] == "NOOP" and (not game.fires or actions[games.FIRE] == "FIRE")


def test_human_normalised_scores():
    assert human_normalised("Breakout", 30.5) == pytest.approx(1)
    assert human_normalised("Pong", -20.7) == pytest.approx(0)
    assert human_normalised("PrivateEye", 24.9 - 69546.4) == pytest.approx(-1)
    np.testing.assert_allclose(human_normalised("Freeway", [0, 14.8, 29.6]), [0, 0.5, 1])


@pytest.mark.parametrize(
    "name", ["Brekout", "breakout", "break_out", "Breakout-v5", "ALE/Breakout-v5", "Breakout-ramNoFrameskip-v4"]
)
def test_an_unknown_game_is_refused_with_what_is_near(name):
    with pytest.raises(SadqError, match="unknown Atari game.*did you mean Breakout"):
        make(f"atari/{name}")


@pytest.mark.parametrize("name,expected", [("ms_pacman", "MsPacman"), ("", "choose from Alien, Amidar")])
def test_other_unknown_games(name, expected):
    with pytest.raises(SadqError, match=expected):
        human_normalised(name, 0)


def test_names_lead_to_specs():
    pytest.importorskip("ale_py", reason="Atari games need sadq[atari]")
    spec = make("atari/Breakout")
    assert spec == AtariSpec(("Breakout",)) and make(spec) is spec and make("atari/Breakout", host=True) == spec
    assert spec.name == "atari/Breakout" and spec.games == ("Breakout",) and spec.action_counts == {"Breakout": 4}
    assert (spec.observation_shape, spec.observation_dtype, spec.action_count) == ((4, 84, 84), np.uint8, 4)
    assert (spec.max_steps, spec.has_masks, spec.action_start, spec.frame_stack) == (27_000, False, 0, 4)
    assert spec.deterministic and hash(spec) == hash(make("atari/Breakout"))
    several = make("atari/Breakout, Pong+Alien")
    assert several.games == ("Breakout", "Pong", "Alien") and several.action_count == 18
    assert several.name == "atari/Breakout,Pong,Alien" and make(several.name) == several


def test_settings():
    pytest.importorskip("ale_py", reason="Atari games need sadq[atari]")
    settings = {"noop_max": 0, "fire_on_reset": False, "max_frames": 401, "sticky": 0.25}
    spec = make("atari/Pong", settings=settings)
    assert spec == AtariSpec(("Pong",), **settings) and spec.max_steps == 101


@pytest.mark.parametrize(
    "setting",
    [
        {"noop_max": -1},
        {"noop_max": 1.5},
        {"fire_on_reset": 1},
        {"max_frames": 0},
        {"max_frames": 2**31},
        {"noop_max": 2**31},
        {"sticky": 1.0},
        {"skip": 4},
        {"actions": 19},
    ],
)
def test_bad_settings_are_refused(setting):
    with pytest.raises(SadqError, match=f"{next(iter(setting))}.*expected.*: choose"):
        make("atari/Pong", settings=setting)


@pytest.mark.parametrize("name", ["atari/", "atari/Pong,Pong", "atari/Pong,"])
def test_bad_names_are_refused(name):
    with pytest.raises(SadqError, match="expected"):
        make(name)


def test_the_games_are_listed():
    names = list_environments(host=True)
    assert {f"atari/{game}" for game in GAMES} <= set(names) and len(set(names)) == len(names)
    with pytest.raises(SadqError, match="atari/Breakout"):
        make("atar/Breakout")


def test_without_the_extra_a_game_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ale_py.vector_env", None)
    with pytest.raises(SadqError, match=r'pip install "sadq\[atari\]"'):
        make("atari/Pong")
    assert AtariSpec.named("atari/Pong", {}).action_count == 6, "what a saved agent acts by needs no emulator"


def test_a_game_without_its_rom_is_refused(monkeypatch, tmp_path):
    """Before anything is played, or even written: a folder of ROMs may lack it, hold another one, or not be there."""
    pytest.importorskip("ale_py", reason="Atari games need sadq[atari]")
    (tmp_path / "pong.bin").write_bytes(b"another game")
    for folder, name in ((tmp_path, "atari/Breakout"), (tmp_path, "atari/Pong"), (tmp_path / "no", "atari/Pong")):
        monkeypatch.setenv("ALE_ROMS_DIR", str(folder))
        with pytest.raises(SadqError, match=r"the ROM of (breakout|pong) cannot be had.*ALE_ROMS_DIR") as refused:
            make(name)
        assert "\n" not in str(refused.value)


def test_the_table_needs_neither_ale_nor_jax():
    code = "import sys, sadq.envs.atari.games; sys.exit(bool({'jax', 'ale_py'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
