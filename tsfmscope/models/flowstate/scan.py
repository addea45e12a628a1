"""Linear recurrence of a diagonal state space, computed in chunks."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Complex
from torch.nn import functional


class LinearScan(torch.autograd.Function):
    """h[t] = exp(rate) h[t - 1] + u[t] along the second axis, from h[-1] = 0.

    Autograd of the same products would store one copy of the states per operation, and convolution by FFT, as in
    granite-tsfm, takes twice the length. The gradient is the same recurrence, backwards in time.
    """

    @staticmethod
    def forward(
        ctx: Any, inputs: Complex[torch.Tensor, "window step state"], rate: Complex[torch.Tensor, " state"]
    ) -> Complex[torch.Tensor, "window step state"]:
        states = _scan(inputs, rate)
        ctx.save_for_backward(states, rate)
        return states

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        states, rate = ctx.saved_tensors
        backwards = _scan(gradients[0].flip(1), rate.conj().resolve_conj()).flip(1)
        by_factor = (states[:, :-1].conj() * backwards[:, 1:]).sum(dim=(0, 1))
        return backwards, by_factor * rate.exp().conj()


def _scan(inputs: torch.Tensor, rate: torch.Tensor) -> torch.Tensor:
    """Return all states.

    Chunks of about the root of the length are computed at once; then each passes its last state on to the next.
    """
    windows, steps, width = inputs.shape
    size = max(math.isqrt(steps), 1)
    count = -(-steps // size)
    padded = functional.pad(torch.view_as_real(inputs), (0, 0, 0, 0, 0, count * size - steps))
    # Written to below; `pad` returns its input where there is nothing to pad.
    padded = padded.clone() if padded.data_ptr() == inputs.data_ptr() else padded.contiguous()
    chunks = torch.view_as_complex(padded).view(windows, count, size, width)
    # Powers as exp(k rate), so that rounding does not grow with k.
    powers = torch.exp(rate * torch.arange(1, size + 1, device=rate.device)[:, None])  # [size, state]
    for step in range(1, size):
        chunks[:, :, step].addcmul_(powers[0], chunks[:, :, step - 1])
    for chunk in range(1, count):
        chunks[:, chunk, -1].addcmul_(powers[-1], chunks[:, chunk - 1, -1])
    chunks[:, 1:, :-1].addcmul_(powers[:-1], chunks[:, :-1, -1:])
    return chunks.flatten(1, 2)[:, :steps]
