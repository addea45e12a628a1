"""WaveToken (Masserano et al. 2025): quantised wavelet coefficients as tokens of an encoder-decoder T5.

Neither weights nor code of the authors are public as far as we know, so there is no released folder to read.
Only folders that `save` writes can be loaded: a T5 of transformers whose config.json has a block
`wavetoken_config`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from jaxtyping import Bool, Float, Int

from tsfmscope.models.common import checkpoint_folder
from tsfmscope.models.common.scale import clip_float32, mean_and_deviation
from tsfmscope.models.t5 import SHAPE, SMALL, T5Family, T5Ids, make_config
from tsfmscope.models.types import TokenKind, Tokens
from tsfmscope.series.types import Windows

if TYPE_CHECKING:
    import torch

REQUIRED = (*SHAPE, "n_tokens", "context_length", "prediction_length")
# The wavelet, one level and no threshold are our reading of Masserano et al. 2025, not checked. The limits, centres of
# the first and the last bin in standard deviations of the context, are our choice. Other values are from config.json of
# the released amazon/chronos-t5-*.
DEFAULTS = {
    "wavelet": "bior2.2", "levels": 1, "threshold": "none", "low_limit": -20.0, "high_limit": 20.0,
    "dropout_rate": 0.1, "initializer_factor": 0.05, "temperature": 1.0, "top_k": 50, "top_p": 1.0,
}  # fmt: skip
OWN = ("context_length", "prediction_length", "n_tokens", "wavelet", "levels", "threshold", "low_limit", "high_limit")
SAMPLING = ("temperature", "top_k", "top_p")
# Ids of padding and end, and the number of special ids.
PAD, EOS, SPECIAL = 0, 1, 2
THRESHOLDS = ("none", "universal")
# Largest number of levels, and of steps of the matrix that turns coefficients into steps.
DEEPEST, LONGEST = 16, 65_536
# Median |z| of a standard normal (Donoho and Johnstone 1994).
GAUSSIAN_MAD = 0.6745
# Largest condition number of the matrix whose inverse turns coefficients into series.
WORST_CONDITION = 1e6


@dataclass(frozen=True)
class WaveletBins:
    """Maximally decimated wavelet transform, and bins that all its coefficients share.

    Coefficients are ordered coarse to fine (a_J, d_J, ..., d_1). A series is reflected at its ends. Of the
    coefficients that this adds, those centred outside the series are dropped. So there are as many
    coefficients as steps, and a line has no detail except in the last coefficient. The bins' centres are
    evenly spaced in [low, high]; a coefficient outside goes to the nearest bin.

    threshold "universal": hard thresholding of the detail coefficients at sigma (2 log n)^1/2, with sigma
    from the finest ones (VisuShrink, Donoho and Johnstone 1994).

    Source: Masserano et al. 2025 for the wavelet, the order and the shared bins. The ends, the range of the
    bins and their even spacing are our choice, since neither code nor weights of theirs are public.
    """

    wavelet: str
    levels: int
    low: float
    high: float
    count: int
    threshold: str

    @property
    def cell(self) -> int:
        """Number of steps per coefficient of the coarsest level; lengths are multiples of it."""
        return int(2**self.levels)

    def coefficients(self, series: Float[np.ndarray, "*window step"]) -> Float[np.ndarray, "*window step"]:
        """Return as many coefficients as steps, coarse to fine.

        ValueError where the length is not a multiple of `cell`.
        """
        parts = self._parts(series, self._filters())
        if self.threshold == "universal":
            sigma = np.median(np.abs(parts[-1]), axis=-1, keepdims=True) / GAUSSIAN_MAD
            least = sigma * np.sqrt(2 * np.log(series.shape[-1]))
            parts[1:] = [np.where(np.abs(part) < least, 0.0, part) for part in parts[1:]]
        return np.concatenate(parts, axis=-1)

    def series(self, coefficients: Float[np.ndarray, "*window step"]) -> Float[np.ndarray, "*window step"]:
        """Return the series of coefficients: the inverse of `coefficients` without a threshold."""
        back: np.ndarray = coefficients @ _synthesis(self, coefficients.shape[-1])
        return back

    def reading(self, steps: Bool[np.ndarray, "*window step"]) -> Bool[np.ndarray, "*window step"]:
        """Return which coefficients read at least one of these steps."""
        parts = self._parts(steps.astype(np.float64), self._filters(magnitude=True))
        return np.concatenate(parts, axis=-1) > 0

    def bins(self, coefficients: Float[np.ndarray, "*window step"]) -> Int[np.ndarray, "*window step"]:
        """Return the numbers of the bins of coefficients, 0..count - 1."""
        width = (self.high - self.low) / (self.count - 1)
        places = np.clip((coefficients - self.low) / width, 0, self.count - 1)
        return np.rint(places).astype(np.int64)

    def centres(self, bins: Int[np.ndarray, "*window step"]) -> Float[np.ndarray, "*window step"]:
        """Return the centres of bins."""
        values: np.ndarray = np.linspace(self.low, self.high, self.count)[bins]
        return values

    def _parts(self, series: np.ndarray, filters: Any) -> list[np.ndarray]:
        import pywt

        if not series.shape[-1] or series.shape[-1] % self.cell:
            raise ValueError(f"series: got {series.shape[-1]} steps, expected a multiple of {self.cell}")
        rest, details = series, []
        # First coefficient that is centred on a step of the series.
        first = (filters.dec_len // 2 - 1) // 2
        for _ in range(self.levels):
            half = rest.shape[-1] // 2
            both = pywt.dwt(rest, filters, mode="reflect", axis=-1)
            rest, detail = (part[..., first : first + half] for part in both)
            details.append(detail)
        return [rest, *reversed(details)]

    def _filters(self, *, magnitude: bool = False) -> Any:
        import pywt

        wavelet = pywt.Wavelet(self.wavelet)
        if not magnitude:
            return wavelet
        bank = [np.abs(filter_values).tolist() for filter_values in wavelet.filter_bank]
        return pywt.Wavelet("reading", filter_bank=bank)


@functools.lru_cache(maxsize=8)
def _synthesis(bins: WaveletBins, length: int) -> Float[np.ndarray, "step step"]:
    """Return the matrix that turns coefficients into the series, multiplied from the right.

    ValueError where the transform cannot be inverted accurately.
    """
    # Row i contains the coefficients of a unit step at i.
    analysis = np.concatenate(bins._parts(np.eye(length), bins._filters()), axis=-1)
    if (condition := np.linalg.cond(analysis)) > WORST_CONDITION:
        raise ValueError(
            f"wavelet {bins.wavelet!r}: its transform of {length} steps has condition {condition:.0e}, so coefficients "
            "do not give the series back; take a symmetric one, such as bior2.2 or haar"
        )
    inverse: np.ndarray = np.linalg.inv(analysis)
    return inverse


def fill_missing(values: Float[np.ndarray, "window step"]) -> Float[np.ndarray, "window step"]:
    """Fill missing steps linearly between observed ones; 0 where nothing is observed.

    Missing steps at either end get the nearest observed value. A line has no detail under a wavelet with two
    vanishing moments, so a gap adds none.
    """
    out, steps = np.array(values, dtype=np.float64), np.arange(values.shape[1])
    for window in np.flatnonzero(np.isnan(out).any(axis=1)):
        is_observed = ~np.isnan(out[window])
        out[window] = np.interp(steps, steps[is_observed], out[window, is_observed]) if is_observed.any() else 0.0
    return out


class Coded(NamedTuple):
    """Ids of coefficients, PAD where none of the steps that they read is observed.

    reads: whether at least one of these steps is observed. whole: whether all are.
    """

    ids: Int[np.ndarray, "window token"]
    reads: Bool[np.ndarray, "window token"]
    whole: Bool[np.ndarray, "window token"]


class WaveToken(T5Ids, T5Family):
    """WaveToken models.

    Rows of the encoder: one row per coefficient of the context, coarse to fine, then EOS. Rows of the
    decoder: START, then one row per coefficient of the future except the last.

    A window is scaled by the mean and standard deviation of its context (a constant one by its value).
    Leading missing steps of a window are left out, so that padding comes before all coefficients. Other
    missing steps are filled linearly, and a coefficient that reads no observed step is PADDING. A length that
    is not a multiple of `bins.cell` is filled up: the context at its beginning with its first value, the
    future at its end with its last value.

    A row's type is its own input id, in both stacks. The decoder's row 0 reads the start token and stands for
    no value (kind START).
    """

    name = "wavetoken"
    config_keys = ("wavetoken_config",)
    example: ClassVar[Mapping[str, Any]] = {
        **SMALL, "context_length": 48, "prediction_length": 12, "n_tokens": 128, "initializer_factor":
        1.0,
    }  # fmt: skip
    # Rows are wavelet coefficients, level by level.
    in_time_order = False
    block = "wavetoken_config"

    def __init__(self, network: Any, *, batch: int = 32) -> None:
        """Wrap a T5ForConditionalGeneration whose config contains `wavetoken_config`.

        batch: windows per forward pass.
        """
        from tsfmscope.models.t5_decoding import use_windowwise

        super().__init__(network, batch=batch)
        use_windowwise(network.encoder)
        own = network.config.wavetoken_config
        count = own["n_tokens"] - SPECIAL
        limits = float(own["low_limit"]), float(own["high_limit"])
        self.bins = WaveletBins(own["wavelet"], own["levels"], *limits, count, own["threshold"])

    @classmethod
    def new(cls, config: Mapping[str, Any], *, seed: int) -> Self:
        """Return a model with random weights; the head shares the weights of the embedding.

        Keys of the config: all of REQUIRED, and those of DEFAULTS where they differ. ValueError for keys that
        are missing or unknown, where a length is not a multiple of 2^levels, and for a wavelet or a threshold
        that cannot be used.
        """
        full = checkpoint_folder.filled_config(config, REQUIRED, DEFAULTS, cls.name, _find_problem)
        t5_config = make_config(full, full["n_tokens"], wavetoken_config={k: full[k] for k in (*OWN, *SAMPLING)})
        return cls(checkpoint_folder.build(lambda: cls._network_class({})(t5_config), seed))

    @classmethod
    def _network_class(cls, config: Mapping[str, Any]) -> Any:
        from transformers import T5ForConditionalGeneration

        return T5ForConditionalGeneration

    @classmethod
    def _mismatch(cls, block: Mapping[str, Any]) -> str | None:
        missing = sorted({*OWN, *SAMPLING} - set(block))
        return f"{cls.block} lacks {missing}" if missing else _find_problem(block)

    def id_positions(self) -> Float[np.ndarray, " id"]:
        """Return the centre of each bin of coefficients; PAD, which is also the start, and EOS have NaN."""
        count = self.network.config.wavetoken_config["n_tokens"] - SPECIAL
        return np.pad(self.bins.centres(np.arange(count)), (SPECIAL, 0), constant_values=np.nan)

    def rows_per_window(self, context: int, horizon: int) -> Mapping[str, int]:
        """Return the number of context steps, and the horizon minus 1 for the decoder.

        Both lengths are first rounded up to a multiple of `bins.cell`. No decoder row reads the last
        coefficient.
        """
        return {"encoder": self._round_up(min(context, self.max_context)), "decoder": self._round_up(horizon) - 1}

    def loss(self, context: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
        """Return the cross entropy of the future's ids.

        Ids of coefficients that read a missing step, or one that was added, are left out.
        """
        import torch

        device = self.network.device
        values = context.cpu().numpy()
        loc, scale = mean_and_deviation(values[:, -self.max_context :])
        encoder = self._context(values, loc, scale)
        coded = self._future(future.cpu().numpy(), loc, scale)
        ids, mask = (torch.from_numpy(part).to(device) for part in (encoder.ids, encoder.reads))
        labels = torch.from_numpy(np.where(coded.whole, coded.ids, -100)).to(device)
        read = torch.from_numpy(_shift_right(coded.ids)).to(device)
        logits = self.network(input_ids=ids, attention_mask=mask, decoder_input_ids=read, use_cache=False).logits
        loss: torch.Tensor = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), ignore_index=-100
        )
        # The mean over no label is NaN.
        return loss if coded.whole.any() else logits.sum() * 0.0

    def _tokenize(self, windows: Windows) -> Tokens:
        loc, scale = mean_and_deviation(windows.context[:, -self.max_context :])
        context = self._context(windows.context, loc, scale)
        future = self._future(windows.future, loc, scale)
        encoder_kinds = np.where(context.reads, TokenKind.OBSERVATION, TokenKind.PADDING).astype(np.int8)
        encoder_kinds[:, -1] = TokenKind.EOS
        decoder_kinds = np.full(future.ids.shape, TokenKind.START, dtype=np.int8)
        decoder_kinds[:, 1:] = np.where(future.reads[:, :-1], TokenKind.FUTURE, TokenKind.PADDING)
        ids, decoder_ids = context.ids.astype(np.int32), _shift_right(future.ids).astype(np.int32)
        arrays = {"ids": ids, "mask": context.reads, "decoder_ids": decoder_ids}
        arrays |= {"loc": clip_float32(loc), "scale": clip_float32(scale)}
        kinds, types = {"encoder": encoder_kinds, "decoder": decoder_kinds}, {"encoder": ids, "decoder": decoder_ids}
        return Tokens(arrays, kinds, types, windows.series, windows.origin)

    def _forecast(self, windows: Windows, levels: tuple[float, ...], samples: int, seeds: list[int]) -> np.ndarray:
        import torch

        from tsfmscope.models.t5_decoding import sample_ids

        self.network.eval()
        steps, blocks = self.prediction_length, -(-windows.horizon // self.prediction_length)
        draws = np.stack([np.random.default_rng(seed).random((samples, blocks * steps)) for seed in seeds])
        history, paths, device = windows.context.astype(np.float64), [], self.network.device
        config = self.network.config.wavetoken_config
        # Neither id is a coefficient.
        warp = SimpleNamespace(**{k: config[k] for k in SAMPLING}, eos_token_id=[PAD, EOS])
        # A block has as many steps as in training; its median is then appended to the context.
        for block in range(blocks):
            loc, scale = mean_and_deviation(history[:, -self.max_context :])
            coded = self._context(history, loc, scale)
            ids, mask = (torch.from_numpy(part).to(device) for part in (coded.ids, coded.reads))
            uniforms = torch.from_numpy(draws[:, :, block * steps : (block + 1) * steps])
            sampled = sample_ids(self.network, ids, mask, uniforms, warp).cpu().numpy()
            series = self.bins.series(self.bins.centres(np.maximum(sampled - SPECIAL, 0)))
            paths.append(series * scale[:, None, None] + loc[:, None, None])  # [W, S, P]
            history = np.concatenate((history, np.median(paths[-1], axis=1)), axis=1)
        joined = np.concatenate(paths, axis=2)[:, :, : windows.horizon]
        quantiles: np.ndarray = np.moveaxis(np.quantile(joined, levels, axis=1), 0, 1)
        return quantiles

    def _round_up(self, steps: int) -> int:
        return -(-steps // self.bins.cell) * self.bins.cell

    def _context(self, context: np.ndarray, loc: np.ndarray, scale: np.ndarray) -> Coded:
        """Return the last steps [W, C], coded, padded on the left, with EOS; `reads` masks attention."""
        steps = context[:, -self.max_context :]
        length = self._round_up(steps.shape[1])
        steps = np.pad(steps, ((0, 0), (length - steps.shape[1], 0)), constant_values=np.nan)
        values = (steps.astype(np.float64) - loc[:, None]) / scale[:, None]
        ids, reads = np.full((len(values), length + 1), PAD), np.zeros((len(values), length + 1), dtype=bool)
        whole = reads.copy()
        observed = ~np.isnan(values)
        lengths = np.array(
            [self._round_up(length - int(row.argmax())) if row.any() else 0 for row in observed], dtype=int
        )
        # Windows whose first observed step is in the same cell.
        for size in np.unique(lengths[lengths > 0]):
            rows = np.flatnonzero(lengths == size)
            coded = self._encode_values(values[rows, length - size :])
            for mine, part in zip((ids, reads, whole), coded, strict=True):
                mine[rows, length - size : length] = part
        ids[:, -1], reads[:, -1] = EOS, True
        return Coded(ids, reads, whole)

    def _future(self, future: np.ndarray, loc: np.ndarray, scale: np.ndarray) -> Coded:
        steps = np.pad(future, ((0, 0), (0, self._round_up(future.shape[1]) - future.shape[1])), constant_values=np.nan)
        return self._encode_values((steps.astype(np.float64) - loc[:, None]) / scale[:, None])

    def _encode_values(self, values: Float[np.ndarray, "window step"]) -> Coded:
        missing = np.isnan(values)
        reads = self.bins.reading(~missing)
        ids = self.bins.bins(self.bins.coefficients(fill_missing(values))) + SPECIAL
        return Coded(np.where(reads, ids, PAD), reads, ~self.bins.reading(missing))


def _shift_right(ids: Int[np.ndarray, "window token"]) -> Int[np.ndarray, "window token"]:
    """Return the decoder's inputs: the start token, PAD, then all ids but the last."""
    return np.pad(ids, ((0, 0), (1, 0)), constant_values=PAD)[:, :-1]


def _find_problem(config: Mapping[str, Any]) -> str | None:
    """Return why series cannot be turned into coefficients and back under a config, or None."""
    import pywt

    if config["threshold"] not in THRESHOLDS:
        return f"got threshold {config['threshold']!r}, expected one of {list(THRESHOLDS)}"
    if config["wavelet"] not in pywt.wavelist(kind="discrete"):
        return f"got wavelet {config['wavelet']!r}, expected a discrete one of PyWavelets, such as 'bior2.2'"
    for key, most in (("levels", DEEPEST), ("context_length", LONGEST), ("prediction_length", LONGEST)):
        if type(config[key]) is not int or not 0 <= config[key] <= most:
            return f"got {key} {config[key]!r}, expected a whole number up to {most}"
    cell = 2 ** config["levels"]
    for key in ("context_length", "prediction_length"):
        if config[key] < cell or config[key] % cell:
            return f"got {key} {config[key]}, expected a multiple of 2^levels = {cell}"
    try:
        WaveletBins(config["wavelet"], config["levels"], -1.0, 1.0, 2, "none").series(
            np.zeros(config["prediction_length"])
        )
    except ValueError as error:
        return str(error)
    return None
