"""Numbers of the engine's files, against the same rules written out digit by digit."""

import json
import random
from pathlib import Path

import pytest

from sadq.envs.cityflow.engine_numbers import read_number, read_whole
from sadq.envs.cityflow.json_nodes import load


def digit_by_digit(text: str) -> float:
    """The engine's reader as a machine that takes one digit after the other."""
    minus, rest = text.startswith("-"), text.lstrip("-").lower()
    mantissa, _, exponent = rest.partition("e")
    whole, _, fraction = mantissa.partition(".")
    integer, double, significant, scale, fraction_digits = int(whole[0]), None, 0, 0, list(fraction)
    for digit in map(int, whole[1:]):
        if double is None and integer * 10 + digit > (2**63 if minus else 2**64 - 1):
            double = float(integer)
        if double is None:
            integer, significant = integer * 10 + digit, significant + 1
        else:
            double = double * 10 + digit
    if double is None:
        while fraction_digits and integer <= 2**53 - 1:
            integer, scale = integer * 10 + int(fraction_digits.pop(0)), scale - 1
            significant += integer > 0
        double = float(integer)
    for digit in map(int, fraction_digits):
        if significant < 17:
            double, scale = double * 10.0 + digit, scale - 1
            significant += double > 0
    power = scale + int(exponent or 0)
    double = double * float(f"1e{power}") if power >= 0 else double / float(f"1e{-power}")
    return -double if minus else double


def test_any_digits_become_the_engine_s_double() -> None:
    rng = random.Random(0)
    unlike = 0
    for _ in range(20_000):
        whole = str(rng.randrange(10 ** rng.randrange(21)))
        fraction = "0" * rng.randrange(4) + "".join(rng.choice("0123456789") for _ in range(rng.randrange(1, 22)))
        exponent = f"e{rng.randrange(-280, 280)}" if rng.random() < 0.2 else ""
        text = rng.choice(["", "-"]) + f"{whole}.{fraction}{exponent}"
        assert read_number(text) == digit_by_digit(text), text
        unlike += read_number(text) != float(text)
    assert unlike > 2_000  # correct rounding would pass none of this


def test_some_by_hand() -> None:
    # 20880000000000006 is no double: 20880000000000008 is the even one of the nearest two, and is divided by 1e15.
    assert read_number("20.880000000000006") == 20880000000000008 / 1e15 != 20.880000000000006
    assert [read_number(text) for text in ("16.67", "-0.5", "1e3", "2.5E-1", "0.0")] == [16.67, -0.5, 1000.0, 0.25, 0.0]
    assert read_number("1.5e-400") == 0.0 and read_number("3e-309") == pytest.approx(3e-309)
    assert read_number("1.5e400") == float("inf")  # which no reader of a file accepts


def test_whole_numbers_are_exact_as_far_as_64_bits_go() -> None:
    assert [read_whole(text) for text in ("0", "-7", "18446744073709551615")] == [0, -7, 2**64 - 1]
    assert read_whole("-9223372036854775808") == -(2**63)
    beyond = read_whole("18446744073709551616")
    assert isinstance(beyond, float) and beyond == 1844674407370955161.0 * 10 + 6
    assert read_whole("-9223372036854775809") == -9223372036854775808.0


def test_files_are_read_by_it(tmp_path: Path) -> None:
    (tmp_path / "file.json").write_text(json.dumps({"x": 20.880000000000006, "n": 3}))
    node = load(tmp_path / "file.json")
    assert node.number("x") == 20.880000000000006 + 2**-48 and node.integer("n") == 3
