"""A worker's whole life: build a group of environments, then do to it what comes in, until the input ends."""

import mmap
import os
import pickle
import signal
import traceback
import warnings
from typing import Any

from sadq.envs import contract, shared
from sadq.envs.channel import Channel
from sadq.envs.group import EnvironmentGroup, Part
from sadq.errors import SadqError


def serve(descriptor: int) -> None:
    """Serve the parent at the other end of the standard streams, on the board behind `descriptor`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is for the parent, which then closes us
    channel = Channel(os.dup(0), os.dup(1))
    # What an environment prints or reads must not mix with the messages.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    group: EnvironmentGroup | None = None
    patience = 0.0
    try:
        while True:
            request = channel.receive()
            try:
                if group is None:
                    (group, patience), value = _group(descriptor, request), None
                elif isinstance(request, int):
                    group.receive(Part(request))
                    channel.signal(request)
                    if patience:
                        channel.watch(patience)
                    continue
                else:
                    method, arguments = pickle.loads(request)
                    value = getattr(group, method)(*arguments)
                reply: tuple[bool, Any] = True, value
            except SadqError as error:
                reply = False, (str(error), traceback.format_exc())
            channel.post(pickle.dumps(reply))
    except (EOFError, BrokenPipeError):
        if group is not None:
            warnings.simplefilter("ignore")  # what fails in close was said where the environment was described
            group.close()


def _group(descriptor: int, request: Any) -> tuple[EnvironmentGroup, float]:
    """The environments that the parent asks for, and for how long to look out for its next step before sleeping."""
    try:
        spec, slots, purpose, count, rows, second, patience = pickle.loads(request)
    except Exception as error:
        raise SadqError(
            f"an environment could not be rebuilt in a worker process ({contract.one_line(error)}): use workers=0."
        ) from error
    memory = mmap.mmap(descriptor, shared.board_size(spec, count))
    os.close(descriptor)
    return EnvironmentGroup(spec, slots, purpose, shared.board_on(memory, spec, count), rows, second), patience
