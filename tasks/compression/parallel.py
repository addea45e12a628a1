"""Data-parallel training: the processes of one job share every batch (torch's DistributedDataParallel).

The first is the job's own. It starts the others, on the GPUs of its actor one each, or on CPUs, and they end when it
does, however it ends: each reads a pipe that it alone holds open.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks.sweep.jobs import PLACE, Place, place

if TYPE_CHECKING:
    import torch

    from tasks.models.base import Family

Loss = Callable[["torch.Tensor", "torch.Tensor"], "torch.Tensor"]
PATIENCE_S = 10.0  # for processes to end by themselves


class Share:
    """The part of every batch that one of several processes works on; of a process alone, all of it."""

    def __init__(
        self, rank: int = 0, of: int = 1, meeting: str = "", others: Sequence[subprocess.Popen[str]] = ()
    ) -> None:
        self.rank, self.of = rank, of
        self._meeting, self._others = meeting, others

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and tells."""
        return self.rank == 0

    def loss(self, family: Family) -> Loss:
        """The family's loss, whose gradients are, after backward, means over the processes; all begin as the first.

        It waits until every process is here: ConnectionError where one ended. ValueError for a family whose batches
        cannot be shared.
        """
        if self.of == 1:
            return family.loss
        if family.apart:
            raise ValueError(f"processes: got {self.of}, expected 1 for {family.name}: {family.apart}")
        import torch
        from torch import distributed

        for rank, other in enumerate(self._others, 1):
            assert other.stdout is not None
            if not other.stdout.readline():
                raise ConnectionError(_ended(rank, self.of, other.wait()))
        on_gpu = torch.device(place().device).type == "cuda"
        if on_gpu:
            torch.cuda.set_device(place().device)
        distributed.init_process_group(
            "nccl" if on_gpu else "gloo", init_method=self._meeting, rank=self.rank, world_size=self.of
        )
        whole: Loss = torch.nn.parallel.DistributedDataParallel(_whole(family))
        return whole

    def part(self, past: np.ndarray, future: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """Every so-many-th window [B, T] of a batch, and what its mean loss counts for in that of the batch.

        By windows: where a loss is a mean over observed steps, those of a part with few of them count for more.
        ValueError for a batch of fewer windows than there are processes.
        """
        if len(past) < self.of:
            raise ValueError(
                f"processes: got {self.of}, expected at most {len(past)}, the windows of a batch; raise batch_steps "
                "of the recipe, or lower resources.tasks.pretrain.processes"
            )
        mine = slice(self.rank, None, self.of)
        weight = len(past[mine]) * self.of / len(past)
        return np.ascontiguousarray(past[mine]), np.ascontiguousarray(future[mine]), weight

    def mean(self, value: torch.Tensor) -> torch.Tensor:
        """The mean over the processes, the same in all of them."""
        total = value.detach()
        if self.of > 1:
            from torch import distributed

            total = total.clone()
            distributed.all_reduce(total)
            total /= self.of
        return total


@contextmanager
def shared(spec: Mapping[str, Any], folder: Path) -> Iterator[Share]:
    """Inside, the others of `place().processes` take part in the training of `spec` in `folder`, where rank 0 writes.

    ConnectionError, which passes, where one of them ended before its time.
    """
    processes = place().processes
    if processes == 1:
        yield Share()
        return
    import torch

    threads = torch.get_num_threads()
    with tempfile.TemporaryDirectory(prefix="tsfm-lens-") as temporary:
        meeting = Path(temporary, "meeting").as_uri()
        asked = {"spec": dict(spec), "folder": str(folder), "of": processes, "meeting": meeting}
        each = max(1, threads // processes)
        others = [_start({**asked, "rank": rank}, each) for rank in range(1, processes)]
        torch.set_num_threads(each)
        try:
            yield Share(0, processes, meeting, others)
        except RuntimeError as error:  # a process that is gone is met with in torch's own
            for rank, other in enumerate(others, 1):
                with suppress(subprocess.TimeoutExpired):
                    if status := other.wait(PATIENCE_S / processes):
                        raise ConnectionError(_ended(rank, processes, status)) from error
            raise
        finally:
            torch.set_num_threads(threads)
            _leave()
            for other in others:
                _end(other)


def _start(asked: Mapping[str, Any], threads: int) -> subprocess.Popen[str]:
    device = place().device
    if device != "cpu":
        device = f"cuda:{asked['rank']}"
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    started = subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,  # Ctrl-C is the first's to answer
    )
    assert started.stdin is not None
    with suppress(BrokenPipeError):  # it is told of where they meet
        started.stdin.write(json.dumps({**asked, "device": device}) + "\n")
        started.stdin.flush()
    return started


def _end(other: subprocess.Popen[str]) -> None:
    assert other.stdin is not None and other.stdout is not None
    with suppress(BrokenPipeError):
        other.stdin.close()
    try:
        other.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        other.kill()
        other.wait()
    other.stdout.close()


def _ended(rank: int, of: int, status: int) -> str:
    return f"process {rank} of the {of} that share the training ended with exit status {status}; its log says why"


def _leave() -> None:
    from torch import distributed

    if distributed.is_initialized():
        distributed.destroy_process_group()


def _whole(family: Family) -> torch.nn.Module:
    """The loss as a module, since gradients are exchanged for a module's call: families call parts of theirs."""
    import torch

    class Whole(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = family.network

        def forward(self, past: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
            return family.loss(past, future)

    return Whole()


def main() -> None:
    """Take part, as the line on standard input says; end when that is closed."""
    asked = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_the_first, daemon=True).start()
    ready, sys.stdout = sys.stdout, sys.stderr
    PLACE.set(Place(asked["device"], processes=asked["of"]))
    from tasks.compression.pretraining import take_part

    print("ready", file=ready, flush=True)
    take_part(asked["spec"], Path(asked["folder"]), Share(asked["rank"], asked["of"], asked["meeting"]))
    _leave()


def _end_with_the_first() -> None:
    while os.read(0, 1):  # not sys.stdin, whose lock Python wants as it ends
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
