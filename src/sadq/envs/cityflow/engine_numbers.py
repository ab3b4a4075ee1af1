"""Numbers of a JSON file as CityFlow's engine reads them: to a few units in the last place, not correctly rounded.

Queues amplify a difference of 1e-15 m until another vehicle goes first, so the same digits must become the same double.
"""

_EXACT = 2**53 - 1  # up to here digits are gathered in an integer, and added to a double beyond
_SIGNIFICANT = 17  # digits of a fraction that count; the first digit before the point is not among them
_SHORT = 15  # digits that never reach beyond `_EXACT`: both ways of reading agree on them
_LONGEST_WHOLE = 18  # digits that 64 bits always hold
_LEAST_EXPONENT = -308
_POWERS = [float(f"1e{power}") for power in range(_SIGNIFICANT + 1)]


def read_number(text: str) -> float:
    """A number with a fraction or an exponent."""
    if "e" not in text and "E" not in text:
        if len(text) <= _SHORT + 1:
            return float(text)
        if (quickly := _usual(text)) is not None:
            return quickly
    digits, _, exponent = text.lower().lstrip("-").partition("e")
    whole, _, fraction = digits.partition(".")
    gathered, used = abs(read_whole(text[: text.startswith("-")] + whole)), 0
    counted = 0 if whole == "0" else len(whole) - 1
    if isinstance(gathered, int):
        if used := min(max(0, _SHORT - len(whole)), len(fraction)):
            gathered = int(whole + fraction[:used])
            counted = counted + used if counted or whole != "0" else len(str(gathered)) * (gathered != 0)
        while used < len(fraction) and gathered <= _EXACT:
            gathered = gathered * 10 + int(fraction[used])
            used += 1
            counted += gathered != 0
    value, scale = float(gathered), -used
    for digit in fraction[used:]:
        if counted < _SIGNIFICANT:
            value = value * 10.0 + int(digit)
            scale -= 1
            counted += value > 0.0
    value = _scaled(value, scale + int(exponent or 0))
    return -value if text[0] == "-" else value


def _usual(text: str) -> float | None:
    """A number of sixteen or seventeen digits that does not begin with 0, as programs write most of them."""
    whole, _, fraction = text.partition(".")
    digits = whole + fraction
    if text[0] == "-":
        digits = digits[1:]
    if digits[0] == "0" or not _SHORT < len(digits) <= _SIGNIFICANT or len(whole) > _SHORT:
        return None
    if len(digits) == _SIGNIFICANT and int(digits[:-1]) > _EXACT:
        return None
    value = float(int(digits)) / _POWERS[len(fraction)]
    return -value if text[0] == "-" else value


def read_whole(text: str) -> int | float:
    """A number without either: exact as far as 64 bits hold it, then a double."""
    if len(text) <= _LONGEST_WHOLE:
        return int(text)
    digits = text.lstrip("-")
    value, most = 0, 2**63 if text[0] == "-" else 2**64 - 1
    for place, digit in enumerate(digits):
        if value * 10 + int(digit) > most:
            rest = float(value)
            for more in digits[place:]:
                rest = rest * 10.0 + int(more)
            return -rest if text[0] == "-" else rest
        value = value * 10 + int(digit)
    return -value if text[0] == "-" else value


def _scaled(value: float, exponent: int) -> float:
    """The value times a power of ten, by one multiplication or division with the nearest double to the power."""
    if exponent < _LEAST_EXPONENT:
        return value / 1e308 / float(f"1e{min(-exponent - 308, 309)}")
    if exponent < 0:
        return value / float(f"1e{-exponent}")
    return value * float(f"1e{exponent}")
