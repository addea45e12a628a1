"""Forecast of PatchTST as a torch module, which exporters can trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64
from scipy import special
from torch import nn
from transformers.time_series_utils import DistributionOutput

from tsfmscope.models.common.scale import LARGEST

# Degree of the polynomials of Student's t quantiles. Their error is below 1e-12 at levels from 0.01 to 0.99.
DEGREE = 24


class PatchTSTGraph(nn.Module):
    """Quantiles [B, Q, H] of contexts [B, C], NaN where a step is missing, by PatchTST."""

    steps: torch.Tensor
    normal: torch.Tensor
    student: torch.Tensor

    def __init__(self, network: Any, levels: Sequence[float], context: int, horizon: int) -> None:
        """Wrap a network of transformers; a context shorter than the model's is padded with missing steps."""
        super().__init__()
        config, patchifier = network.config, network.model.patchifier
        self.network, self.horizon, self.levels = network, horizon, len(levels)
        self.pad = int(config.context_length) - context
        starts = np.arange(
            patchifier.sequence_start,
            int(config.context_length) - patchifier.patch_length + 1,
            patchifier.patch_stride,
        )
        self.register_buffer("steps", torch.from_numpy(starts[:, None] + np.arange(patchifier.patch_length)))
        self.register_buffer("normal", torch.from_numpy(special.ndtri(np.array(levels))))
        self.register_buffer("student", torch.from_numpy(student_coefficients(levels)))

    def forward(self, context: torch.Tensor) -> torch.Tensor:
        """Return the quantiles in the data's units."""
        network = self.network
        values = nn.functional.pad(context.double(), (self.pad, 0), value=torch.nan)
        observed = ~torch.isnan(values)
        filled = torch.where(observed, values, 0.0)[:, :, None]
        scaled, loc, scale = network.model.scaler(filled, observed[:, :, None])
        masked = torch.where(observed, scaled[:, :, 0], 0.0).float()
        encoded = network.model.encoder(patch_input=masked[:, self.steps][:, None]).last_hidden_state
        quantiles = self._quantiles(encoded)[:, :, : self.horizon]
        answer: torch.Tensor = (quantiles * scale + loc).clamp(-LARGEST, LARGEST).float()
        return answer

    def _quantiles(self, encoded: torch.Tensor) -> torch.Tensor:
        """Return quantiles [B, Q, H] of the head's distribution, in scaled units and float64.

        The package's head squeezes an axis that is longer than 1, which torch ignores and ONNX refuses. The head is
        therefore computed from its parts.
        """
        head, squareplus = self.network.head, DistributionOutput.squareplus
        pooled = encoded
        if head.use_cls_token:
            pooled = encoded[:, :, 0]
        elif head.pooling_type == "mean":
            pooled = encoded.mean(dim=2)
        elif head.pooling_type == "max":
            pooled = encoded.amax(dim=2)
        flat = head.flatten(pooled)
        if not self.network.distribution_output:
            point: torch.Tensor = head.projection(flat).double()
            return point.expand(-1, self.levels, -1)
        *df, loc, scale = (projection(flat) for projection in head.projection.proj)  # [B, 1, H]
        spread = squareplus(scale).clamp_min(torch.finfo(scale.dtype).eps).double()
        if df:
            standard = student_quantiles((2.0 + squareplus(df[0])).double(), self.student)
        else:
            standard = self.normal[None, :, None]
        quantiles: torch.Tensor = loc.double() + spread * standard
        return quantiles


def student_coefficients(levels: Sequence[float]) -> Float64[np.ndarray, "degree quantile"]:
    """Return Chebyshev coefficients of Student's t quantiles as functions of 4 / df - 1.

    The degrees of freedom are at least 2. ONNX has no inverse of Student's distribution. As a function of 1 / df the
    quantile is smooth, and that of the normal distribution is its value at 0.
    """
    nodes = np.cos(np.pi * (np.arange(DEGREE + 1) + 0.5) / (DEGREE + 1))
    df = 4 / (nodes + 1)
    return np.polynomial.chebyshev.chebfit(nodes, special.stdtrit(df[:, None], np.array(levels)), DEGREE)


def student_quantiles(df: torch.Tensor, coefficients: torch.Tensor) -> torch.Tensor:
    """Return quantiles [B, Q, H] of degrees of freedom [B, 1, H], all at least 2."""
    point = 4 / df - 1
    polynomials = [torch.ones_like(point), point]
    for _ in range(2, len(coefficients)):
        polynomials.append(2 * point * polynomials[-1] - polynomials[-2])
    return coefficients.T @ torch.cat(polynomials, dim=1)
