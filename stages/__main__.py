"""Run one stage: `python -m stages NAME`, which dvc.yaml calls. Users have the command `tsfmscope`."""

from __future__ import annotations

import sys
from contextlib import suppress

from stages import BY_NAME
from stages.planning.dvc_folder import protect_site_cache
from stages.planning.run_stage import run_stage
from tsfmscope.errors import KNOWN, USAGE, report_error, report_interrupt


def main(arguments: list[str]) -> int:
    """Run the stage that the only argument names and return the exit code."""
    if len(arguments) != 1 or arguments[0] not in BY_NAME:
        print(
            f"expected the name of one stage, got {' '.join(arguments) or 'none'}: name one of {', '.join(BY_NAME)}; "
            "every other command is one of `tsfmscope --help`",
            file=sys.stderr,
        )
        return USAGE
    # For those who call `dvc repro` themselves; its first stage runs each time.
    with suppress(OSError):
        protect_site_cache()
    try:
        run_stage(arguments[0])
    except KeyboardInterrupt as error:
        return report_interrupt(error)
    except KNOWN as error:
        return report_error(error)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
