"""Exit codes of the commands and stages, and the one line that a known error prints."""

from __future__ import annotations

import os
import sys

from stages.config.params import ParamsError
from stages.planning.system_errors import describe, drop_output
from store.errors import StillRunning, StoreError
from store.printable import printable, shorten
from tsfmscope.errors import QueryError, TsfmscopeError
from tsfmscope.extras import EXTRAS, describe_missing

# The work failed; the command, the SQL or params.yaml must be fixed; `certify` needs more tasks; `certify` does not
# certify; Ctrl-C, 128 + SIGINT as in a shell.
FAILED, USAGE, TOO_FEW, NOT_CERTIFIED, INTERRUPTED = 1, 2, 3, 4, 130
# Errors whose message is for the user. Any other exception is a fault of the program and keeps its traceback.
KNOWN = (ParamsError, TsfmscopeError, StoreError, OSError, ModuleNotFoundError)


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
    if isinstance(error, OSError) and not isinstance(error, StoreError):
        message = describe(error)
        drop_output()
    prefix = f"{program}: " if program else ""
    print(shorten(printable(f"{prefix}{message}", keep="\n\t")), file=sys.stderr)
    return USAGE if isinstance(error, ParamsError | QueryError) else FAILED


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
