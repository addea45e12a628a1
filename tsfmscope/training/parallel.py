"""Data-parallel training: the processes of one job share every batch (torch's DistributedDataParallel).

The first process is the job's own. It starts the others, one per GPU of its actor, or on CPUs. They end when
the first process ends, however it ends: each reads a pipe that only the first process holds open.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tsfmscope.training.options import Recipe

if TYPE_CHECKING:
    import torch

    from tsfmscope.models.base import Family

# Arguments: context, future, and dates if the family reads them.
Loss = Callable[..., "torch.Tensor"]
# Seconds for processes to end by themselves before they are killed.
PATIENCE_S = 10.0
# Module that a further process runs.
PROCESS = "tsfmscope.training.pretraining"


@dataclass(frozen=True)
class Share:
    """Part of every batch that one process works on: all of it if there is one process.

    others: the further processes, for the first process only.
    """

    device: str
    rank: int = 0
    of: int = 1
    rendezvous: str = ""
    others: Sequence[subprocess.Popen[str]] = ()

    @property
    def first(self) -> bool:
        """Return whether this is the process that writes files and reports progress."""
        return self.rank == 0

    def loss(self, family: Family) -> Loss:
        """Return the family's loss; after `backward`, its gradients are means over the processes.

        All processes begin with the weights of the first. The call waits until every process is ready.
        ConnectionError if one of them has ended. ValueError for a family whose batches cannot be shared.
        """
        if self.of == 1:
            return family.loss
        if family.no_ddp_reason:
            raise ValueError(f"processes: got {self.of}, expected 1 for {family.name}: {family.no_ddp_reason}")
        import torch
        from torch import distributed

        for rank, process in enumerate(self.others, 1):
            assert process.stdout is not None
            if not process.stdout.readline():
                raise ConnectionError(_describe_end(rank, self.of, process.wait()))
        on_gpu = torch.device(self.device).type == "cuda"
        if on_gpu:
            torch.cuda.set_device(self.device)
        if sys.platform == "linux":
            # The processes share one machine, so nothing has to listen on its other interfaces.
            os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
        distributed.init_process_group(
            "nccl" if on_gpu else "gloo", init_method=self.rendezvous, rank=self.rank, world_size=self.of
        )
        loss: Loss = family.loss

        # torch exchanges gradients for calls of the wrapped module only; families call parts of it.
        class LossModule(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.network = family.network

            def forward(self, *batch: torch.Tensor) -> torch.Tensor:
                return loss(*batch)

        parallel: Loss = torch.nn.parallel.DistributedDataParallel(LossModule())
        return parallel

    def part(self, past: np.ndarray, *others: np.ndarray) -> tuple[Any, ...]:
        """Return this process's slice of every array of a batch, then the weight of its mean loss.

        past, others: arrays whose first axis is the windows of the batch, such as [B, T]. With N processes,
        process r takes windows r, r + N, r + 2N, ...; the weight is its number of windows times N / B.
        The weight counts windows. Where a loss is a mean over observed steps, the steps of a part with few of
        them therefore count for more. ValueError for a batch of fewer windows than there are processes.
        """
        if len(past) < self.of:
            raise ValueError(
                f"processes: got {self.of}, expected at most {len(past)}, the windows of a batch; raise batch_steps "
                "of the recipe, or lower resources.tasks.pretrain.processes"
            )
        own = slice(self.rank, None, self.of)
        weight = len(past[own]) * self.of / len(past)
        return (*(np.ascontiguousarray(array[own]) for array in (past, *others)), weight)

    def mean(self, value: torch.Tensor) -> torch.Tensor:
        """Return the mean over the processes, which is equal in all of them."""
        total = value.detach()
        if self.of > 1:
            from torch import distributed

            total = total.clone()
            distributed.all_reduce(total)
            total /= self.of
        return total


@contextmanager
def start_processes(
    recipe: Recipe, embedding: Mapping[str, str] | None, folder: Path, *, device: str, processes: int
) -> Iterator[Share]:
    """Start the other ones of several processes for a training, and end them on exit.

    device: torch device of this process; the others take the next GPUs, or the CPU.

    Only rank 0, the calling process, writes to `folder`. ConnectionError if one of the others ended early;
    the sweep counts that error as transient and tries again.
    """
    if processes == 1:
        yield Share(device)
        return
    import torch

    threads = torch.get_num_threads()
    with tempfile.TemporaryDirectory(prefix="tsfmscope-") as temporary:
        rendezvous = Path(temporary, "meeting").as_uri()
        request: dict[str, Any] = {"recipe": recipe.to_dict(), "embedding": embedding, "folder": str(folder)}
        request |= {"of": processes, "meeting": rendezvous}
        per_process = max(1, threads // processes)
        others = [_start({**request, "rank": rank}, device, per_process) for rank in range(1, processes)]
        torch.set_num_threads(per_process)
        try:
            yield Share(device, 0, processes, rendezvous, others)
        # torch raises a RuntimeError of its own when another process is gone.
        except RuntimeError as error:
            for rank, process in enumerate(others, 1):
                with suppress(subprocess.TimeoutExpired):
                    if status := process.wait(PATIENCE_S / processes):
                        raise ConnectionError(_describe_end(rank, processes, status)) from error
            raise
        finally:
            torch.set_num_threads(threads)
            destroy_group()
            for process in others:
                _end(process)


def _start(request: Mapping[str, Any], device: str, threads: int) -> subprocess.Popen[str]:
    if device != "cpu":
        device = f"cuda:{request['rank']}"
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(
        [sys.executable, "-m", PROCESS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        # Ctrl-C must reach the first process only, which then ends the others.
        start_new_session=True,
    )
    assert process.stdin is not None
    # Share.loss, where all processes meet, reports a process that has ended already.
    with suppress(BrokenPipeError):
        process.stdin.write(json.dumps({**request, "device": device}) + "\n")
        process.stdin.flush()
    return process


def _end(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None and process.stdout is not None
    with suppress(BrokenPipeError):
        process.stdin.close()
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()


def _describe_end(rank: int, of: int, status: int) -> str:
    return f"process {rank} of {of} of the training ended with exit status {status}; see the traceback in its log"


def destroy_group() -> None:
    from torch import distributed

    if distributed.is_initialized():
        distributed.destroy_process_group()
