"""Facts of a training that cannot be derived from its recipe: values, seconds, processors, torch versions."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import NamedTuple

# File of a checkpoint with the facts of its training.
RUN_RECORD = "training_run.json"


class RunRecord(NamedTuple):
    """Facts of all runs of a training: a stopped training that continues has several.

    n_values: observed values that the steps have read. seconds: wall-clock time of the steps. Both are None if an
    earlier version made some of the steps, as it did not record them.
    """

    n_values: int | None = 0
    seconds: float | None = 0.0
    processors: tuple[str, ...] = ()
    torch_versions: tuple[str, ...] = ()

    def extend(self, n_values: int, seconds: float, device: str) -> RunRecord:
        """Return the record with the steps that this process made on a torch device added."""
        import torch

        return RunRecord(
            None if self.n_values is None else self.n_values + n_values,
            None if self.seconds is None else self.seconds + seconds,
            tuple(dict.fromkeys((*self.processors, processor_name(device)))),
            tuple(dict.fromkeys((*self.torch_versions, str(torch.__version__)))),
        )

    def write(self, folder: Path) -> None:
        """Write the record to a checkpoint's folder."""
        (folder / RUN_RECORD).write_text(json.dumps(self._asdict(), indent=2) + "\n", encoding="utf-8")


def processor_name(device: str) -> str:
    """Return the name of the accelerator that a torch device stands for, or of the processor for cpu."""
    import torch

    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        # There is no /proc outside Linux; the short name is sufficient.
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
