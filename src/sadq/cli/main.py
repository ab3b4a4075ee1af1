"""The command line: `sadq train | resume | compare | reproduce | evaluate | simulate | report | watch | list`.

Bad input ends with one sentence on stderr and exit code 2, a run with a diverged member with exit code 3. JAX is imported
only for a command that may need it.
"""

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import sadq
from sadq.errors import SadqError

BAD_INPUT, DIVERGED, INTERRUPTED = 2, 3, 130

USAGE = """usage: sadq COMMAND ...

  sadq train PRESET [AGENT] [--field value ...]   train a fleet; PRESET may be a Gymnasium id
  sadq resume RUN                                 go on with an interrupted run, bit for bit
  sadq compare PRESET ARM ARM ... [--seeds N]     agents on the same seeds, and a verdict: dqn dqn+sadq dqn+sadq@0.5
  sadq reproduce ARTEFACT [--quick]               a figure or table of the paper, measured
  sadq evaluate RUN                               greedy episodes of a trained run
  sadq evaluate PRESET --policy NAME              episodes of a fixed policy
  sadq simulate CONFIG.json --seconds N --out F   run a CityFlow scenario on its own
  sadq report RUN [RUN ...]                       charts, statistics and verdicts in one page that compares runs
  sadq watch RUN [RUN ...]                        the same page while the runs go on, at http://127.0.0.1
  sadq list [presets|agents|axes|artefacts|...]   what there is

Options and other words come in any order. `sadq COMMAND --help` lists the options of one command; `--import MODULE` first
imports a module of yours, with the environments, agents and entries that it registers."""

TAKES = {
    "train": "a preset and an agent: for instance `sadq train cartpole sadq`; `sadq list` shows what there is",
    "resume": "a run folder: one that `sadq train` made",
    "compare": "a preset and at least two arms: for instance `sadq compare cartpole-quick dqn dqn+sadq --seeds 10`",
    "reproduce": "the name of an artefact: `sadq list artefacts` shows what there is",
    "evaluate": "a run folder, or a preset with --policy",
    "simulate": "a CityFlow scenario's config.json",
    "report": "run folders: those that `sadq train` made",
    "watch": "run folders: those that `sadq train` makes",
    "list": "",
}


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if not arguments or arguments[0] in ("-h", "--help"):
            print(USAGE)
            sys.exit(0 if arguments else BAD_INPUT)
        if arguments[0] == "--version":
            print(f"sadq {sadq.__version__}")
            sys.exit(0)
        while arguments[0].startswith("--import"):  # which may stand before the command
            count = 1 if "=" in arguments[0] else 2
            if len(arguments) <= count:
                raise SadqError("--import was given without a module and a command: write both after it.")
            arguments = [*arguments[count:], *arguments[:count]]
        command = arguments.pop(0)
        if command not in TAKES:
            raise SadqError(f"Unknown command {command!r}: expected {', '.join(TAKES)}; see `sadq --help`.")
        if not arguments and TAKES[command]:
            raise SadqError(f"`sadq {command}` takes {TAKES[command]}.")
        from sadq.cli import commands

        sys.exit(commands.run(command, arguments))
    except SadqError as error:
        print(f"sadq: {error}", file=sys.stderr)
        sys.exit(BAD_INPUT)
    except KeyboardInterrupt:
        print("sadq: stopped at once; a run goes on from its newest checkpoint with `sadq resume`.", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
