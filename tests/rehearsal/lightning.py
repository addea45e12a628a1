"""The released file of Lag-Llama: a Lightning checkpoint with pickled objects of gluonts, written without gluonts."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tsfmscope.models.lag_llama import ALLOWED

if TYPE_CHECKING:
    import torch

# State of the two objects in the released hyper-parameters, under their names in gluonts 0.14.
STATES: tuple[dict[str, Any], ...] = (
    {"__init_args__": OrderedDict()},
    {"__dict__": {"beta": 0.0}, "__fields_set__": set(), "__private_attribute_values__": {}},
)


def write_lightning(path: Path, kwargs: Mapping[str, Any], state: Mapping[str, torch.Tensor]) -> None:
    """Write a checkpoint with these `model_kwargs` and weights, and zero moments of Adam.

    The moments are written because the released file has the size of the weights three times.
    """
    import torch

    moments = {
        number: {"step": torch.tensor(1.0), "exp_avg": torch.zeros_like(tensor), "exp_avg_sq": torch.zeros_like(tensor)}
        for number, tensor in enumerate(state.values())
    }
    with _gluonts_objects() as (head, loss):
        contents = {
            "epoch": 0,
            "global_step": 1,
            "pytorch-lightning_version": "2.0.4",
            "state_dict": OrderedDict(state),
            "optimizer_states": [{"state": moments, "param_groups": [{"lr": 1e-4, "params": list(moments)}]}],
            "lr_schedulers": [],
            "hparams_name": "kwargs",
            "hyper_parameters": {"model_kwargs": {**kwargs, "distr_output": head}, "loss": loss, "lr": 1e-4},
        }
        torch.save(contents, path)


@contextmanager
def _gluonts_objects() -> Iterator[list[Any]]:
    """Yield objects that are pickled under the names of gluonts' head and loss.

    pickle looks up the class of an object by its name, and the installed gluonts may lack the modules. Modules with
    nothing but the class stand in for them until the block ends.
    """
    objects, before = [], {}
    for (_, name), state in zip(ALLOWED, STATES, strict=True):
        module, _, attribute = name.rpartition(".")
        members = {"__module__": module, "__getstate__": lambda self, state=state: state}
        stand_in = ModuleType(module)
        setattr(stand_in, attribute, made := type(attribute, (), members))
        before[module] = sys.modules.get(module)
        sys.modules[module] = stand_in
        objects.append(made())
    try:
        yield objects
    finally:
        for module, original in before.items():
            if original is None:
                del sys.modules[module]
            else:
                sys.modules[module] = original
