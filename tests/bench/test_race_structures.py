import numpy as np
import pytest
import torch
from torch import nn

from bench.race_structures import Stream, Sublayer, change, leading_directions, residual_streams, slice_stream
from tsfmscope.errors import ModelError
from tsfmscope.models.registry import family_class

WIDTH, HIDDEN, TOKENS = 12, 20, 400


class Network(nn.Module):
    """Embedding and blocks x + outer(relu(inner(norm(x)))), with a last norm, in float64."""

    def __init__(self, norm: type[nn.Module], depth: int = 3) -> None:
        super().__init__()
        self.enter = nn.Linear(5, WIDTH)
        self.norms = nn.ModuleList(norm(WIDTH) for _ in range(depth))
        self.inner = nn.ModuleList(nn.Linear(WIDTH, HIDDEN) for _ in range(depth))
        self.outer = nn.ModuleList(nn.Linear(HIDDEN, WIDTH) for _ in range(depth))
        self.last = norm(WIDTH)
        self.double()
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.normal_()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        states = self.enter(inputs)
        for norm, inner, outer in zip(self.norms, self.inner, self.outer, strict=True):
            states = states + outer(torch.relu(inner(norm(states))))
        return self.last(states)

    def sublayers(self) -> list[Sublayer]:
        return [Sublayer(n, (i,), o) for n, i, o in zip(self.norms, self.inner, self.outer, strict=True)]


def normalise(states: torch.Tensor) -> torch.Tensor:
    """Return rows over their root mean square, with WIDTH as the number of entries and the norms' eps."""
    return states / (states.square().sum(dim=-1, keepdim=True) / WIDTH + 1e-5).sqrt()


def slice_explicitly(
    network: Network, directions: list[np.ndarray], inputs: torch.Tensor
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Return the outputs of the sliced network and its weights, after the paper: small matrices and shortcuts."""
    is_centred = isinstance(network.last, nn.LayerNorm)
    centring = torch.eye(WIDTH).double() - is_centred / WIDTH
    rotations = [torch.from_numpy(q) for q in directions] + [torch.eye(WIDTH).double()]
    enter, enter_bias = rotations[0].T @ centring @ network.enter.weight, rotations[0].T @ centring @ network.enter.bias
    weights, states = [enter, enter_bias], inputs @ enter.T + enter_bias
    for number, (norm, inner, outer) in enumerate(zip(network.norms, network.inner, network.outer, strict=True)):
        now, later = rotations[number : number + 2]
        read = inner.weight @ torch.diag(norm.weight) @ now
        bias = inner.bias + (inner.weight @ norm.bias if is_centred else 0)
        write, shift, shortcut = later.T @ centring @ outer.weight, later.T @ centring @ outer.bias, now.T @ later
        branch = torch.relu(normalise(states) @ read.T + bias)
        states = states @ shortcut + branch @ write.T + shift
        weights += [read, bias, write, shift, shortcut]
    scaled = normalise(states) * network.last.weight
    return scaled + (network.last.bias if is_centred else 0), weights


def make(norm: type[nn.Module]) -> tuple[Network, torch.Tensor]:
    torch.manual_seed(0)
    factory = (lambda width: norm(width, eps=1e-5)) if norm is nn.RMSNorm else norm
    return Network(factory), torch.randn(TOKENS, 5).double()


def sliced(network: Network, inputs: torch.Tensor, width: int) -> list[np.ndarray]:
    def signals(sublayer: Sublayer):
        states = []
        handle = sublayer.norm.register_forward_pre_hook(lambda _, args: states.append(args[0].detach()))
        with torch.no_grad():
            network(inputs)
        handle.remove()
        yield from states

    return slice_stream(network.sublayers(), width, signals)


@pytest.mark.parametrize("norm", [nn.RMSNorm, nn.LayerNorm])
@pytest.mark.parametrize("width", [1, 5, 9])
def test_the_hooks_give_the_outputs_of_the_explicitly_sliced_network(norm, width):
    network, inputs = make(norm)
    dense = network(inputs)
    directions = sliced(network, inputs, width)
    with torch.no_grad():
        outputs, explicit = network(inputs), slice_explicitly(network, directions, inputs)[0]
    torch.testing.assert_close(outputs, explicit, rtol=1e-9, atol=1e-9)
    assert (outputs - dense).abs().max() > 0.01


@pytest.mark.parametrize("norm", [nn.RMSNorm, nn.LayerNorm])
def test_the_full_width_changes_nothing(norm):
    network, inputs = make(norm)
    dense = network(inputs)
    sliced(network, inputs, WIDTH)
    torch.testing.assert_close(network(inputs), dense, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("norm", [nn.RMSNorm, nn.LayerNorm])
def test_the_parameters_are_those_of_the_explicitly_sliced_network(norm):
    network, inputs = make(norm)
    total = sum(parameter.numel() for parameter in network.parameters())
    stream = Stream("only", WIDTH, tuple(network.enter.parameters()), tuple(network.sublayers()))
    _, weights = slice_explicitly(network, sliced(network, inputs, 5), inputs)
    last_norm = sum(parameter.numel() for parameter in network.last.parameters())
    assert total + change(stream, 5) == sum(weight.numel() for weight in weights) + last_norm


def test_the_directions_of_later_sublayers_are_those_of_the_sliced_signals():
    network, inputs = make(nn.RMSNorm)
    with torch.no_grad():
        states = network.enter(inputs)
        first = torch.from_numpy(leading_directions((states.T @ states).numpy(), 5))
        states = states @ first @ first.T
        states = states + network.outer[0](torch.relu(network.inner[0](network.norms[0](states))))
        expected = leading_directions((states.T @ states).numpy(), 5)
    found = sliced(network, inputs, 5)
    np.testing.assert_allclose(found[1] @ found[1].T, expected @ expected.T, atol=1e-9)


def random_model(family: str):
    return family_class(family).new(family_class(family).example, seed=0)


@pytest.mark.parametrize("family", ["totem", "timesfm", "timesfm-2.5"])
def test_families_without_blocks_of_one_norm_before_each_branch_are_refused(family):
    with pytest.raises(ModelError, match=r"not defined, expected x \+ branch"):
        residual_streams(random_model(family))


@pytest.mark.parametrize("family", ["chronos-bolt", "chronos-2", "moirai", "patchtst", "visionts"])
def test_streams_have_every_attention_layer_and_entries_of_their_width(family):
    model = random_model(family)
    streams = residual_streams(model)
    outputs = {id(sublayer.output) for stream in streams for sublayer in stream.sublayers}
    assert {id(layer.linear("o")) for layer in model.attentions()} < outputs
    assert all(stream.width in entry.shape for stream in streams for entry in stream.entries)
    assert all(
        linear.in_features == stream.width
        for stream in streams
        for sublayer in stream.sublayers
        for linear in sublayer.inputs
    )
