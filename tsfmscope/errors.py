"""Exceptions, the exit codes of commands and stages, and the one line that a known error prints.

The exceptions are picklable because they cross process borders. `stages` and `store` add their own.

TsfmscopeError
├── ArgumentError       a name, file or value that the caller gave is not valid
├── DataError           a series, file or folder cannot be used
├── ModelError          a checkpoint or family cannot be used
│   └── HubError        the model hub does not answer, or refuses
│       └── MissingOnHubError  the hub has no such repository, revision or file
├── HealthError         hidden states or forecasts are invalid (NaN, all zero, wrong count)
├── StaleInputError     an input changed between planning and the start of a job
├── QueryError          a query, or the database that it reads, cannot be used
└── SweepError          the cluster, or the code on it, would make every further job fail
"""

from __future__ import annotations

import errno
import os
import re
import sys

from tsfmscope.extras import EXTRAS, describe_missing


class TsfmscopeError(Exception):
    """Root of the tree. The message states what was expected, what was found, where, and how to fix it."""

    # Exit code of a command that ends with the error: 1 if the work failed, 2 if the command must be fixed.
    exit_code = 1


class ArgumentError(TsfmscopeError, ValueError):
    """A name, file or value that the caller gave is not valid."""

    exit_code = 2


class DataError(TsfmscopeError):
    """A series, file or folder cannot be used."""


class ModelError(TsfmscopeError):
    """A checkpoint or family cannot be used."""


class HubError(ModelError):
    """The model hub does not answer, or refuses."""


class MissingOnHubError(HubError):
    """The model hub has no such repository, revision or file."""


class HealthError(TsfmscopeError):
    """Hidden states or forecasts are invalid: NaN, all zero, or the wrong count."""


class StaleInputError(TsfmscopeError):
    """An input changed between planning and the start of a job."""


class QueryError(TsfmscopeError):
    """A query, or the database that it reads, cannot be used."""

    exit_code = 2


class SweepError(TsfmscopeError):
    """The cluster, or the code on it, would make every further job fail."""


class StillRunning(KeyboardInterrupt):
    """Interrupt of a statement that DuckDB did not stop in time; its connection stays busy."""


# Fixes of errors of the operating system.
HINTS = {
    errno.ENOSPC: "free some of that disk",
    errno.EROFS: "name another place, or make it writable",
    errno.EACCES: "name another place, or ask for the permission",
    errno.ELOOP: "a link leads to itself: replace it",
}
# The work failed; the command, the SQL or params.yaml must be fixed; `certify` needs more tasks; `certify` does not
# certify; Ctrl-C, 128 + SIGINT as in a shell.
FAILED, USAGE, TOO_FEW, NOT_CERTIFIED, INTERRUPTED = 1, 2, 3, 4, 130
# Errors whose message is for the user. Any other exception is a fault of the program and keeps its traceback.
KNOWN = (TsfmscopeError, OSError, ModuleNotFoundError)

# Control characters (Unicode C0, C1, DEL) and the marks that reverse the direction of text.
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

# Characters of a line of an error: no message of this project has as many, unless it repeats a long input.
LONGEST = 1200


def report_error(error: Exception, program: str = "") -> int:
    """Print a known error as one line on stderr and return the exit code.

    program: the name that begins the line. Raises BrokenPipeError, since nobody reads the output then, and
    ModuleNotFoundError for a module that no extra installs.
    """
    if isinstance(error, BrokenPipeError):
        raise error
    message = str(error)
    if isinstance(error, ModuleNotFoundError):
        if (error.name or "").partition(".")[0] not in EXTRAS:
            raise error
        message = describe_missing(error)
    if isinstance(error, OSError) and not isinstance(error, TsfmscopeError):
        file_text = f"{error.filename}: " if error.filename else ""
        hint = HINTS.get(error.errno or 0, "check the path, or name another place")
        message = f"{file_text}{error.strerror or error}; {hint}"
        try:
            sys.stdout.flush()
        except OSError:
            # Otherwise Python would fail on standard output again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    prefix = f"{program}: " if program else ""
    print(shorten(printable(f"{prefix}{message}", keep="\n\t")), file=sys.stderr)
    return error.exit_code if isinstance(error, TsfmscopeError) else FAILED


def report_interrupt(error: KeyboardInterrupt, program: str = "") -> int:
    """Print one line on stderr after Ctrl-C and return the exit code.

    An error with a message has been reported already. If a statement still runs in another thread, the process
    ends here, because it would wait for that thread.
    """
    if not str(error):
        print(f"{program}: interrupted" if program else "interrupted", file=sys.stderr, flush=True)
    if isinstance(error, StillRunning):
        os._exit(INTERRUPTED)
    return INTERRUPTED


def printable(text: str, *, keep: str = "") -> str:
    r"""Replace control characters by visible escapes such as \x1b, so that a value cannot control a terminal.

    keep: control characters that stay, such as "\n".
    """
    return UNPRINTABLE.sub(
        lambda match: match[0] if match[0] in keep else match[0].encode("unicode_escape").decode("ascii"), text
    )


def shorten(text: str) -> str:
    """Return the text with the middle of every line of more than LONGEST characters left out."""
    kept = LONGEST // 2
    return "\n".join(
        f"{line[:kept]} … {len(line) - LONGEST:,} characters … {line[-kept:]}" if len(line) > LONGEST else line
        for line in text.split("\n")
    )
