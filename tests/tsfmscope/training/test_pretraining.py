from __future__ import annotations

import torch

from tsfmscope.training.pretraining import Average


def test_the_average_is_the_weighted_sum_of_all_steps() -> None:
    network = torch.nn.Linear(3, 2)
    average, expected = Average(network, 0.9), network.weight.detach().clone()
    for step in range(1, 60):
        with torch.no_grad():
            network.weight.add_(torch.randn(2, 3))
        average.update(step)
        decay = min(0.9, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * network.weight.detach()
    torch.testing.assert_close(average.weights["weight"], expected)
    last = network.weight.detach().clone()
    average.swap()
    torch.testing.assert_close(network.weight.detach(), expected)
    average.swap()
    torch.testing.assert_close(network.weight.detach(), last)


def test_tied_weights_are_averaged_once() -> None:
    network = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4, bias=False))
    network[1].weight = network[0].weight
    average, first = Average(network, 0.5), network[0].weight.detach().clone()
    assert len(average.weights) == 1
    with torch.no_grad():
        network[0].weight.add_(1.0)
    average.update(1000)
    average.swap()
    torch.testing.assert_close(network[1].weight.detach(), first + 0.5)


def test_without_a_decay_nothing_changes() -> None:
    network = torch.nn.Linear(3, 2)
    average, kept = Average(network, None), network.weight.detach().clone()
    average.update(1)
    average.swap()
    assert average.weights == {}
    torch.testing.assert_close(network.weight.detach(), kept)
