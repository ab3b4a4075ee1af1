"""Whether the two halves of a fleet's environments take turns: what is faster is found by trying both.

Nothing but the time depends on it, so that collects are made either way until their times are known.
"""

import time

TRIALS = 5
"""Timed collects of each kind."""


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
                # Without the first ones, which compile; the shortest of the rest, for other work only lengthens them.
                self.taken = min(self._seconds[True][1:]) < min(self._seconds[False][1:])
