"""How a process and its worker talk: a byte for what happens at every step, a pickled message for anything rarer."""

import os
import select
import time

MESSAGE = 255
"""The byte that announces a message; any smaller one is a signal by itself."""
_SIGNALS = [bytes([number]) for number in range(MESSAGE)]


class Channel:
    """One end of a pair of pipes, unbuffered, so that nothing waits for more."""

    def __init__(self, incoming: int, outgoing: int):
        self._incoming, self._outgoing = incoming, outgoing

    def signal(self, number: int) -> None:
        """Send one of the numbers below `MESSAGE`."""
        os.write(self._outgoing, _SIGNALS[number])

    def post(self, payload: bytes) -> None:
        """Send a message."""
        rest = memoryview(bytes([MESSAGE]) + len(payload).to_bytes(8, "little") + payload)
        while rest:
            rest = rest[os.write(self._outgoing, rest) :]

    def receive(self) -> int | bytes:
        """The next signal, or the next message's payload; EOFError where the other end is gone."""
        number = self._exactly(1)[0]
        return self._exactly(int.from_bytes(self._exactly(8), "little")) if number == MESSAGE else number

    def watch(self, seconds: float) -> None:
        """Look out for something to receive, for so long at most, without going to sleep: waking up takes longer."""
        incoming = select.poll()
        incoming.register(self._incoming, select.POLLIN)
        end = time.perf_counter() + seconds
        while not incoming.poll(0) and time.perf_counter() < end:
            os.sched_yield()

    def _exactly(self, size: int) -> bytes:
        piece = os.read(self._incoming, size)
        if len(piece) == size:
            return piece
        pieces = [piece]
        while piece and (size := size - len(piece)):
            piece = os.read(self._incoming, size)
            pieces.append(piece)
        if not piece:
            raise EOFError
        return b"".join(pieces)
