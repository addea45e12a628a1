"""Network of FlowState (Graf et al. 2025): S5 layers over steps, and a decoder that forecasts continuous functions.

Module and parameter names are those of tsfm_public/models/flowstate of granite-tsfm 0.3.11. The computations are
written from that code's arithmetic, except that the recurrence is computed in chunks, not by FFT.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Bool, Complex, Float
from torch import nn
from torch.nn import functional

from tsfmscope.models.common.layers import PlacedModule

# Epsilon of the RMS norm in an MLP, and inner width over width, as in the package.
EPSILON, MLP_RATIO = 1e-6, 2
# Range of the step lengths of a new layer, as in the package.
STEP_LENGTHS = (0.001, 0.1)
# Interval of the basis functions that a forecast of decoder_patch_len steps covers, by decoder_type.
INTERVALS = {"legs": (-1.0, 0.95), "hlegs": (0.0, 0.95), "four": (0.0, 1.0)}


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


class FlowStateNetwork(PlacedModule):
    """Network from scaled steps to scaled quantiles of the steps after each of them.

    config: keys of config.json, with defaults. The parameters of the S5 layers are not set; see `initialize`.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        # A step and whether it is missing.
        self.embed = nn.ModuleDict({"embed": nn.Linear(2, config["embedding_feature_dim"])})
        layers = nn.ModuleList(S5Layer(config) for _ in range(config["encoder_num_layers"]))
        self.encoder = nn.ModuleDict({"layers": layers})
        self.decoder = Decoder(config)

    def initialize(self) -> FlowStateNetwork:
        """Draw the parameters of the S5 layers as the package does, with torch's generator; return the network."""
        for layer in self.layers:
            layer.ssm.initialize()
        return self

    @property
    def layers(self) -> list[S5Layer]:
        """Layers of the encoder, first to last."""
        return cast(list[S5Layer], list(cast(nn.ModuleList, self.encoder["layers"])))

    def forward(
        self,
        values: Float[torch.Tensor, "window token"],
        missing: Float[torch.Tensor, "window token"],
        attended: Bool[torch.Tensor, "window token"],
        factor: float,
    ) -> Float[torch.Tensor, "window token width"]:
        """Return the output of the last layer.

        values: scaled steps, 0 where a step is missing or masked. missing: 1 there, else 0. attended: False before the
        first step of a series; such rows change no other row. factor: scale factor of the time axis.
        """
        states: torch.Tensor = self.embed["embed"](torch.stack((values, missing), dim=-1))
        mask = None if bool(attended.all()) else attended[..., None]
        for layer in self.layers:
            states = layer(states, mask, factor)
        return states


class S5Layer(nn.Module):
    """S5 block and gate or MLP; the normed output is added to the states."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        width = config["embedding_feature_dim"]
        self.ssm = S5Block(config)
        is_gate = config["mlp_type"] == "gated"
        self.mlp = None if is_gate else Mlp(width)
        self.out = nn.Linear(width, width) if is_gate else None
        self.norm = nn.LayerNorm(width)

    def forward(
        self,
        states: Float[torch.Tensor, "window token width"],
        attended: Bool[torch.Tensor, "window token 1"] | None,
        factor: float,
    ) -> Float[torch.Tensor, "window token width"]:
        """Return the states with the layer's output added."""
        return self.add_output(states, self.ssm(states, attended, factor))

    def add_output(self, states: torch.Tensor, mixed: torch.Tensor) -> torch.Tensor:
        """Return states [..., d] with the layer's output added; mixed: output of the S5 block for these rows."""
        if self.mlp is not None:
            mixed = self.mlp(mixed)
        else:
            assert self.out is not None
            mixed = functional.selu(mixed)
            mixed = mixed * torch.sigmoid(self.out(mixed))
        return cast(torch.Tensor, states + self.norm(mixed))


class Mlp(nn.Module):
    """Gated MLP of version 1.1; its output is added to its input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.rms_weight = nn.Parameter(torch.ones(width))
        self.w1, self.w2 = (nn.Linear(width, MLP_RATIO * width) for _ in range(2))
        self.w3 = nn.Linear(MLP_RATIO * width, width)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        normed = functional.rms_norm(states, self.rms_weight.shape, self.rms_weight, EPSILON)
        return cast(torch.Tensor, self.w3(functional.silu(self.w1(normed)) * self.w2(normed)) + states)


class S5Block(nn.Module):
    """Diagonal state space with inputs and outputs of the states' width (Smith et al. 2023).

    Its states are complex: h[t] = exp(λΔs) h[t - 1] + (exp(λΔs) - 1) / λ B x[t], and its output is Re(C h[t]) + D x[t],
    with step lengths Δ and the scale factor s.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        size, width = config["encoder_state_dim"], config["embedding_feature_dim"]
        self.blocks = config["encoder_num_hippo_blocks"]
        self.log_Lambda_real, self.Lambda_imag, self.log_Delta = (nn.Parameter(torch.empty(size)) for _ in range(3))
        self.B_tilde_r, self.B_tilde_i = (nn.Parameter(torch.empty(size, width)) for _ in range(2))
        self.C_tilde_r, self.C_tilde_i = (nn.Parameter(torch.empty(width, size)) for _ in range(2))
        self.D = nn.Parameter(torch.empty(width))
        self.output_gate = nn.Linear(width, width) if config["out_gating"] else None

    def initialize(self) -> None:
        """Set λ to the eigenvalues of HiPPO-N in equal blocks, and draw B, C, D and the step lengths."""
        size, width = self.B_tilde_r.shape
        eigenvalues, vectors = _hippo(size // self.blocks)
        inverse = np.linalg.inv(vectors)
        matrix = 0.5 / math.sqrt(width) * torch.randn(2, size, width).double().numpy()
        inputs = np.einsum("ij,bjw->biw", inverse, (matrix[0] + 1j * matrix[1]).reshape(self.blocks, -1, width))
        matrix = 0.5 / math.sqrt(size) * torch.randn(2, width, size).double().numpy()
        outputs = np.einsum("wbi,ij->wbj", (matrix[0] + 1j * matrix[1]).reshape(width, self.blocks, -1), vectors)
        low, high = (math.log(length) for length in STEP_LENGTHS)
        with torch.no_grad():
            for parameter, values in (
                (self.log_Lambda_real, np.tile(np.log(-eigenvalues.real), self.blocks)),
                (self.Lambda_imag, np.tile(eigenvalues.imag, self.blocks)),
                (self.B_tilde_r, inputs.real.reshape(size, width)),
                (self.B_tilde_i, inputs.imag.reshape(size, width)),
                (self.C_tilde_r, outputs.real.reshape(width, size)),
                (self.C_tilde_i, outputs.imag.reshape(width, size)),
            ):
                parameter.copy_(torch.from_numpy(np.ascontiguousarray(values)))
            self.D.copy_(torch.randn(width))
            self.log_Delta.copy_(low + (high - low) * torch.rand(size))

    @property
    def input_matrix(self) -> Float[torch.Tensor, "two_state width"]:
        """B as a real map of the states: rows of its real parts, then of its imaginary parts."""
        return torch.cat((self.B_tilde_r, self.B_tilde_i))

    @property
    def output_matrix(self) -> Float[torch.Tensor, "width two_state"]:
        """C as a real map: columns for the real parts of h, then for its imaginary parts."""
        return torch.cat((self.C_tilde_r, -self.C_tilde_i), dim=1)

    def forward(
        self,
        states: Float[torch.Tensor, "window token width"],
        attended: Bool[torch.Tensor, "window token 1"] | None,
        factor: float,
    ) -> Float[torch.Tensor, "window token width"]:
        """Return the block's output; rows that are not attended are no input of the recurrence."""
        rate, inputs, outputs = self.discretise(factor)
        projected = functional.linear(states, inputs).float()
        if attended is not None:
            projected = projected * attended
        hidden = LinearScan.apply(torch.view_as_complex(projected.unflatten(-1, (-1, 2))), rate)
        output: torch.Tensor = functional.linear(torch.view_as_real(hidden).flatten(-2), outputs)
        if self.output_gate is not None:
            output = torch.sigmoid(self.output_gate(output)) * output
        return output + self.D * states

    def discretise(self, factor: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return λΔs [N], and the maps into [2 N, d] and out of [d, 2 N] the states.

        Real and imaginary part of each complex number are side by side, as view_as_complex needs.
        """
        eigenvalues = torch.complex(-self.log_Lambda_real.exp(), self.Lambda_imag)
        rate = factor * eigenvalues * self.log_Delta.exp()
        # (1 / λ) before the product, as in the package: in float32 the order matters where Δ is small.
        inputs = (1 / eigenvalues * (rate.exp() - 1))[:, None] * torch.complex(self.B_tilde_r, self.B_tilde_i)
        outputs = torch.stack((self.C_tilde_r, -self.C_tilde_i), dim=-1).flatten(1)
        return rate, torch.view_as_real(inputs).transpose(1, 2).flatten(0, 1), outputs


class Decoder(nn.Module):
    """Maps states to coefficients of basis functions, and these to the steps after each state."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.kind, self.size = config["decoder_type"], config["decoder_dim"]
        self.patch, self.num_quantiles = config["decoder_patch_len"], len(config["quantiles"])
        self.lin = nn.Linear(config["embedding_feature_dim"], self.size * self.num_quantiles)

    def forward(
        self, states: Float[torch.Tensor, "window token width"], steps: int, factor: float
    ) -> Float[torch.Tensor, "window token quantile step"]:
        """Return forecasts, in scaled units, of the steps after each state; quantiles are in no order yet."""
        coefficients = self.lin(states).unflatten(-1, (self.num_quantiles, self.size))
        return cast(torch.Tensor, coefficients @ self.basis(steps, factor).T)

    def basis(self, steps: int, factor: float) -> Float[torch.Tensor, "step function"]:
        """Return the basis functions at the steps of a forecast."""
        return _basis(self.kind, self.size, self.patch, steps, factor).to(self.lin.weight.device)


def _hippo(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return eigenvalues [size] and eigenvectors of HiPPO's normal matrix (Gu et al. 2022)."""
    root = np.sqrt(2 * (np.arange(size) + 1.0) + 1)
    outer = -np.outer(root, root) / 2
    eigenvalues, vectors = np.linalg.eig(np.triu(outer) - np.tril(outer) - 0.5 * np.eye(size))
    return eigenvalues.astype(complex), vectors.astype(complex)


@functools.lru_cache(maxsize=64)
def _basis(kind: str, size: int, patch: int, steps: int, factor: float) -> Float[torch.Tensor, "step function"]:
    """Return a quarter of the basis functions at the steps of a forecast, in float32 as in the package."""
    low, high = INTERVALS[kind]
    # A tensor of inference mode, cached, could not be used in training.
    with torch.inference_mode(False):
        times = low + torch.arange(1, steps + 1, dtype=torch.float32) * (factor * (high - low) / patch)
        make: Callable[[torch.Tensor, int], torch.Tensor] = _fourier if kind == "four" else _legendre
        return make(times.clamp_min(low), size) / 4.0


def _legendre(times: torch.Tensor, size: int) -> torch.Tensor:
    values = [torch.ones_like(times), times]
    for n in range(1, size - 1):
        values.append(((2 * n + 1) * times * values[n] - n * values[n - 1]) / (n + 1))
    return torch.stack(values[:size], dim=1)


def _fourier(times: torch.Tensor, size: int) -> torch.Tensor:
    values = torch.ones(len(times), size)
    angles = times[:, None] * (2 * torch.pi * torch.arange(1, size // 2 + 1))
    values[:, 1::2], values[:, 2::2] = torch.sin(angles), torch.cos(angles)
    return values
