"""Process that takes part in a training which several processes share; `parallel.start_processes` starts it."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

from tsfmscope.training.options import Recipe
from tsfmscope.training.parallel import Share, destroy_group
from tsfmscope.training.pretraining import take_part


def main() -> None:
    """Take part in the training that standard input's first line describes; end when the input is closed."""
    request = json.loads(sys.stdin.readline())

    def end_with_the_first() -> None:
        # Not sys.stdin: Python needs its lock at exit.
        while os.read(0, 1):
            pass
        os._exit(1)

    threading.Thread(target=end_with_the_first, daemon=True).start()
    ready, sys.stdout = sys.stdout, sys.stderr
    print("ready", file=ready, flush=True)
    share = Share(request["device"], request["rank"], request["of"], request["meeting"])
    take_part(Recipe.model_validate(request["recipe"]), request["embedding"], Path(request["folder"]), share)
    destroy_group()


if __name__ == "__main__":
    main()
