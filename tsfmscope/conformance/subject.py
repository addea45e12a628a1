"""A family under test: a small model, the windows that it reads, and the demands of checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

import numpy as np

from tsfmscope.models.base import Family, Forecaster
from tsfmscope.models.registry import family_class, resolve
from tsfmscope.models.types import Tokens
from tsfmscope.series import other_modalities
from tsfmscope.series.types import Windows

if TYPE_CHECKING:
    import torch

# Stack, layer, normed -> [W, T, d].
States = dict[tuple[str, int, bool], np.ndarray]
# Bytes of a window of text, and how many of them are its future.
LONGEST_TEXT, TEXT_FUTURE = 60, 12
# Rows and features of a table; images are 8 x 8.
ITEM = (12, 8)
SEED = 1
# Start of the first window; each next one begins 365 days later.
START = np.datetime64("1999-10-11", "ms")
# Noise on the weights of `perturbed`, relative to their size.
PERTURBED = 0.1
# Largest effect of float32 rounding where other kernels are used, as a share of the largest state.
ROUNDING = 1e-5


class Failed(Exception):
    """Error of a check whose demand is not met; the message states expected, got and where."""


class NotApplicable(Exception):
    """Error of a check of something that the family does not claim to have; the message names it."""


@dataclass(frozen=True, eq=False)
class Subject:
    """Model of a family under test, and a folder to write to.

    name: the name that the family was requested by. config: the config that made the model, None where it was
    loaded from a checkpoint. context, horizon: steps of the model's windows. scratch: a folder of its own.
    """

    name: str
    model: Family
    config: Mapping[str, Any] | None
    scratch: Path
    context: int = 48
    horizon: int = 12

    @classmethod
    def of(
        cls,
        name: str,
        scratch: Path,
        *,
        checkpoint: str | None = None,
        config: Mapping[str, Any] | None = None,
        **steps: int,
    ) -> Self:
        """Return the subject of a family: a model of its checkpoint, else a small random model of the config.

        config: by default the family's example. ValueError for an unknown family or config, ModelError for
        what cannot be imported or loaded.
        """
        family = family_class(name)
        if checkpoint is not None:
            return cls(name, family.load(resolve(checkpoint).folder), None, scratch, **steps)
        return cls(name, family.new_example(config, seed=SEED), config or family.example, scratch, **steps)

    @property
    def family(self) -> type[Family]:
        """Class of the model."""
        return type(self.model)

    @property
    def forecaster(self) -> Forecaster:
        """The model; NotApplicable where it does not forecast."""
        if not isinstance(self.model, Forecaster):
            raise NotApplicable("the family forecasts nothing (it is no Forecaster)")
        return self.model

    @property
    def of_series(self) -> Family:
        """The model; NotApplicable where it does not read time series.

        Items of other modalities are whole or nothing.
        """
        if self.model.modality != "series":
            raise NotApplicable(f"the family reads items of modality {self.model.modality}, which are whole or nothing")
        return self.model

    @property
    def made_by(self) -> Mapping[str, Any]:
        """Config that made the model; NotApplicable where there is none."""
        if self.config is None:
            raise NotApplicable("a checkpoint was given, and no config for `new`")
        return self.config

    def windows(self, count: int = 5, *, context: int | None = None, seed: int = 0) -> Windows:
        """Return windows of the family's modality; series are random walks, of `context` steps if given."""
        rng = np.random.default_rng(seed)
        if self.model.modality == "series":
            steps = context or self.context
            walks = rng.normal(size=(count, steps + self.horizon)).cumsum(axis=1)
            return windows_of(walks[:, :steps], walks[:, steps:])
        if self.model.modality == "text":
            values: np.ndarray = rng.integers(32, 127, (count, LONGEST_TEXT))
            return windows_of(values[:, :-TEXT_FUTURE], values[:, -TEXT_FUTURE:])
        if self.model.modality == "image":
            items = [other_modalities.item(rng.integers(0, 256, (8, 8, 3))) for _ in range(count)]
        else:
            items = [other_modalities.item(other_modalities.draw_table(rng, *ITEM)) for _ in range(count)]
        values = np.stack(items)
        return windows_of(values[:, :-1], values[:, -1:])

    @cached_property
    def tokens(self) -> Tokens:
        """Tokens of five windows."""
        return self.model.tokenize(self.windows())

    @cached_property
    def states(self) -> States:
        """States of `tokens`."""
        return states_of(self.model, self.tokens)

    @cached_property
    def saved_folder(self) -> Path:
        """Folder that the model was saved in."""
        folder = self.scratch / "saved"
        self.model.save(folder)
        return folder

    def copy(self) -> Family:
        """Load another model with the same weights from `saved_folder`, which may be changed."""
        return self.family.load(self.saved_folder)

    @cached_property
    def perturbed_model(self) -> Family:
        """Copy with noise on every parameter: no two matrices are equal. Checks must restore its weights."""
        model = self.copy()
        add_noise(model.network, PERTURBED)
        return model


def windows_of(context: np.ndarray, future: np.ndarray) -> Windows:
    """Return daily windows with contexts [W, C], futures [W, H], and a week's season.

    Their series begin after the missing steps on the left.
    """
    names = [f"s{n}" for n in range(len(context))]
    missing = np.isnan(context).cumprod(axis=1).sum(axis=1)
    origin = (context.shape[1] - missing).astype(np.int64)
    starts = START + np.arange(len(context)) * np.timedelta64(365, "D")
    return Windows(context.astype(np.float32), future.astype(np.float32), names, origin, "walks", "D", 7, starts)


def states_of(model: Family, tokens: Tokens) -> States:
    """Return the states of every layer."""
    return {(layer.stack, layer.layer, layer.normed): layer.states for layer in model.hidden_states(tokens)}


def add_noise(module: torch.nn.Module, size: float, seed: int = 0) -> None:
    """Add normal noise to every parameter of a module.

    Noise is relative to the root mean square of each parameter (to 1 where that is 0). Masks of -inf and
    other parameters without a finite root mean square stay as they are.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for part in module.parameters():
            scale = float(part.float().square().mean().sqrt()) if part.numel() else 0.0
            if part.is_floating_point() and np.isfinite(scale):
                noise = torch.randn(part.shape, generator=generator)
                part.add_((noise * size * (scale or 1.0)).to(part))


def same_bits(actual: Mapping[Any, np.ndarray], expected: Mapping[Any, np.ndarray], label: str) -> None:
    """Raise Failed, naming the first array that differs."""
    if list(actual) != list(expected):
        raise Failed(f"{label}: got {list(actual)}, expected {list(expected)}")
    for key, values in expected.items():
        if not np.array_equal(actual[key], values, equal_nan=values.dtype.kind == "f"):
            raise Failed(f"{label}: {key} is not the same bit for bit")


# Returns what it saw; raises Failed or NotApplicable.
Check = Callable[[Subject], str]
# What a check looks at: a Subject, or the files of a checkpoint.
Tested = TypeVar("Tested")


@dataclass(frozen=True)
class Finding:
    """Outcome of one check of one family.

    demand: what is required. detail: what was seen, or what is wrong.
    """

    check: str
    verdict: Literal["pass", "fail", "not applicable"]
    demand: str
    detail: str

    def json(self) -> dict[str, Any]:
        """Return the finding as plain data."""
        return asdict(self)


def judge(check: Callable[[Tested], str], subject: Tested) -> Finding:
    """Run a check and return its finding.

    Any other exception is a failure too, since families raise errors about their own states.
    """
    verdict: Literal["pass", "fail", "not applicable"]
    try:
        verdict, detail = "pass", check(subject)
    except NotApplicable as reason:
        verdict, detail = "not applicable", str(reason)
    except Failed as reason:
        verdict, detail = "fail", str(reason)
    # A plugin may raise anything.
    except Exception as error:
        verdict, detail = "fail", f"{type(error).__name__}: {error}"
    return Finding(name_of(check), verdict, demand_of(check), detail)


def name_of(check: Callable[..., str]) -> str:
    """Return the name of a check as the table shows it."""
    return check.__name__.replace("_", "-")


def demand_of(check: Callable[..., str]) -> str:
    """Return the first paragraph of a check's docstring, on one line."""
    return " ".join((check.__doc__ or "").split("\n\n")[0].split())


def demand(met: bool, otherwise: str) -> None:
    """Raise Failed where a demand is not met."""
    if not met:
        raise Failed(otherwise)


def distance(actual: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest difference over the largest expected number, or over 1 where that is larger.

    Failed for other shapes, or where a difference is NaN.
    """
    demand(actual.shape == expected.shape, f"got shape {actual.shape}, expected {expected.shape}")
    if not expected.size:
        return 0.0
    scale = max(1.0, float(np.abs(expected).max()))
    difference = float(np.abs(actual.astype(np.float64) - expected).max()) / scale
    demand(difference == difference, "not a number where one is expected, or the other way round")
    return difference
