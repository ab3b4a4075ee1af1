"""Whether the two halves of a fleet's environments take turns: what is faster is found by trying both.

Nothing but the time depends on it, so that collects are made either way until their times are known.
"""

import time

TRIALS = 9
"""Timed collects of each kind."""
WORTHWHILE = 0.9
"""The share of the time without turns that they must stay under: they take more of the machine, and times are rough."""


class Turns:
    """While one half of the environments steps, the other is acted for, at the price of acting twice as often."""

    def __init__(self, possible: bool):
        self.taken: bool | None = None if possible else False
        """Whether turns are taken; None until that is known."""
        self._seconds: dict[bool, list[float]] = {False: [], True: []}
        self._began = 0.0

    def begin(self) -> bool:
        """A collect begins; whether in turns."""
        self._began = time.perf_counter()
        return len(self._seconds[True]) < len(self._seconds[False]) if self.taken is None else self.taken

    def end(self, taken: bool) -> None:
        """It is over."""
        if self.taken is None:
            self._seconds[taken].append(time.perf_counter() - self._began)
            if len(self._seconds[True]) > TRIALS:
                whole, halves = (sorted(self._seconds[way][1:]) for way in (False, True))  # the first ones compile
                # Both the shortest and the middle one: other work on the machine lengthens some, and may go on or not.
                self.taken = all(halves[place] < WORTHWHILE * whole[place] for place in (0, TRIALS // 2))
