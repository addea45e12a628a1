from __future__ import annotations

import pytest
import torch

from tsfmscope.models.common.capture import capture


class Pair(torch.nn.Module):
    """Answers a tuple that begins with something that is no tensor."""

    def forward(self, x: torch.Tensor) -> tuple[None, torch.Tensor, torch.Tensor]:
        return None, x + 1, x + 2


class Text(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> str:
        return "no tensor"


def test_outputs_and_inputs_are_kept_and_tuples_give_their_first_tensor() -> None:
    pair, relu = Pair(), torch.nn.ReLU()
    x = torch.tensor([-1.0, 2.0])
    with capture({"pair": pair, "relu": relu}, {"given": pair}) as states:
        pair(x=relu(x))
    assert states["relu"].tolist() == [0.0, 2.0]
    assert states["given"].tolist() == [0.0, 2.0]
    assert states["pair"].tolist() == [1.0, 3.0]


def test_hooks_are_gone_after_an_error() -> None:
    relu = torch.nn.ReLU()
    with pytest.raises(RuntimeError, match="stop"), capture({"relu": relu}, {"given": relu}):
        raise RuntimeError("stop")
    assert not relu._forward_hooks
    assert not relu._forward_pre_hooks


def test_states_hold_no_graph() -> None:
    linear = torch.nn.Linear(2, 2)
    with capture({"out": linear}) as states:
        linear(torch.ones(1, 2))
    assert not states["out"].requires_grad


def test_an_output_without_a_tensor_is_named() -> None:
    module = Text()
    with pytest.raises(TypeError, match=r"Text: expected a tensor or a tuple .*got str"), capture({1: module}):
        module(torch.ones(1))
