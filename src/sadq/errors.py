"""What went wrong, in one sentence a user can act on: the command line prints it and exits with code 2."""

import warnings


class SadqError(Exception):
    """Bad input or an impossible request; its text says what was wrong, what was expected and what to do."""

    def __str__(self) -> str:
        return super().__str__().replace("\n", "\\n")  # what a sentence names, such as a path, may have line breaks


class SadqWarning(UserWarning):
    """What a user should know of a run that goes on: a member that diverged, a resume that is not exact."""


def warn(sentence: str) -> None:
    """Say it as Python programs are told such things."""
    warnings.warn(sentence, SadqWarning, stacklevel=2)
