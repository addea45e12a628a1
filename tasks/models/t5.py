"""What the families built on transformers' T5 share: folders, facts, layers in one pass, weight matrices, logits."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from tasks.errors import ModelError
from tasks.models import folders
from tasks.models.attention import AttentionLayer, narrowed
from tasks.models.base import Family, Forecaster
from tasks.models.capture import Pass, Stack
from tasks.models.types import Tokens, WeightMatrix

if TYPE_CHECKING:
    import torch

SHAPE = ("d_model", "d_ff", "d_kv", "num_heads", "num_layers", "num_decoder_layers")


class T5Stacks(Family):
    """A family of encoder and decoder T5 stacks."""

    stacks: ClassVar[tuple[str, ...]] = ("encoder", "decoder")
    plain_attention: ClassVar[bool] = True  # a bias by distance is added to the scores; it reads no state
    network: Any  # a transformers network with .encoder and .decoder

    def save(self, folder: Path) -> None:
        """config.json and model.safetensors, which the family's own package reads."""
        self.network.save_pretrained(folder)

    @property
    def layers(self) -> Mapping[str, int]:
        """Blocks a stack."""
        return {name: len(stack.block) for name, stack in self._stacks().items()}

    @property
    def width(self) -> int:
        """d_model."""
        return int(self.network.config.d_model)

    def weights(self) -> Iterator[WeightMatrix]:
        """q, k, v, o (self and cross), mlp_in, mlp_out of both stacks.

        Where the decoder reads one token (Chronos-Bolt), its self-attention q and k never had a gradient: leave them
        out of spectra.
        """
        for name, stack in self._stacks().items():
            yield from _stack_weights(name, stack)

    def attentions(self) -> Iterator[AttentionLayer]:
        """Self-attention of both stacks, and the decoder's cross-attention; scores are q·k, unscaled."""
        return attentions(self.network)

    def _stacks(self) -> dict[str, Any]:
        return {"encoder": self.network.encoder, "decoder": self.network.decoder}

    def _pass_of(self, forward: Callable[[slice], object]) -> Pass:
        """Both stacks, with the norm that ends each; forward: runs a slice of the windows."""
        both = self._stacks()
        stacks = {name: Stack(stack.block, stack.final_layer_norm) for name, stack in both.items()}
        queries = {name: [block.layer[0].SelfAttention.q for block in stack.block] for name, stack in both.items()}
        return Pass(stacks, forward, queries)


class T5Ids(T5Stacks):
    """T5ForConditionalGeneration on ids: arrays `ids` and `mask` of the encoder, `decoder_ids`."""

    softmax_head: ClassVar[bool] = True

    def _pass(self, tokens: Tokens) -> Pass:
        network = self.network.eval()

        def forward(part: slice) -> None:
            ids, mask, decoder_ids = self._inputs(tokens, part)
            encoded = network.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
            network.decoder(
                input_ids=decoder_ids, encoder_hidden_states=encoded, encoder_attention_mask=mask, use_cache=False
            )

        def logits(part: slice) -> torch.Tensor:  # the package scales by d^-1/2 where input and output ids are tied
            ids, mask, decoder_ids = self._inputs(tokens, part)
            emitted: torch.Tensor = network(
                ids, attention_mask=mask, decoder_input_ids=decoder_ids, use_cache=False
            ).logits
            return emitted

        return self._pass_of(forward)._replace(logits=logits)

    def _inputs(self, tokens: Tokens, part: slice) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Encoder ids, mask and decoder ids of a slice of the windows, on the network's device."""
        import torch

        arrays, device = tokens.arrays, self.network.device
        ids, decoder_ids = (
            torch.from_numpy(arrays[name][part].astype(np.int64)).to(device) for name in ("ids", "decoder_ids")
        )
        return ids, torch.from_numpy(np.array(arrays["mask"][part])).to(device), decoder_ids


class T5Family(T5Stacks, Forecaster):
    """A family that forecasts, whose config.json holds a block of the family's own."""

    block: ClassVar[str] = "chronos_config"  # key of config.json: context_length, prediction_length and the tokens

    @abstractmethod
    def __init__(self, network: Any) -> None: ...

    @classmethod
    def load(cls, folder: Path, *, device: str = "cpu") -> Self:
        """A released or saved checkpoint, safetensors only. ModelError names the file that is wrong."""
        folder = Path(folder)
        config = folders.read_config(folder, cls.name)
        if not isinstance(own := config.get(cls.block), dict):
            raise ModelError(
                f"{folder / 'config.json'}: key {cls.block!r} is missing, so this is no {cls.name} checkpoint"
            )
        if wrong := cls._foreign(own):
            raise ModelError(f"{folder / 'config.json'}: {wrong}; name the family that the checkpoint belongs to")
        ids, words = own.get("n_tokens", 0), config.get("vocab_size")
        if isinstance(ids, int) and isinstance(words, int) and ids > words:
            raise ModelError(
                f"{folder / 'config.json'}: got n_tokens {ids} of {cls.block}, more than vocab_size {words}"
            )
        network = folders.load_network(narrowed(cls._network_class(config), attentions), folder, device)
        with folders.bounded(folder):  # the package's tokeniser checks the rest of its block
            return cls(network)

    @classmethod
    @abstractmethod
    def _foreign(cls, block: Mapping[str, Any]) -> str | None:
        """What says that the block is another family's, or None."""

    @classmethod
    @abstractmethod
    def _network_class(cls, config: Mapping[str, Any]) -> Any:
        """The class with `from_pretrained`, for such a config.json."""

    @property
    def max_context(self) -> int:
        """Steps of context that the model reads; of longer contexts the last ones, as in the package."""
        return int(getattr(self.network.config, self.block)["context_length"])

    @property
    def prediction_length(self) -> int:
        """Steps forecast in one go; longer horizons recur, as in the package."""
        return int(getattr(self.network.config, self.block)["prediction_length"])


def attentions(network: Any) -> Iterator[AttentionLayer]:
    """The attention layers of a network with .encoder and .decoder T5 stacks."""
    from tasks.models import t5_narrow

    parts = {what: what for what in ("q", "k", "v", "o")}
    for stack in ("encoder", "decoder"):
        for layer, block in enumerate(getattr(network, stack).block, start=1):
            found = {"self": block.layer[0].SelfAttention}
            if stack == "decoder":
                found["cross"] = block.layer[1].EncDecAttention
            for kind, module in found.items():
                heads = module.n_heads
                yield AttentionLayer(
                    stack, layer, kind, module, heads, heads, module.scaling, True, t5_narrow.resize, parts
                )


def untied(network: Any) -> Any:
    """A subclass of transformers' T5ForConditionalGeneration whose head is its own; saved under the same name.

    T5Config makes `tie_word_embeddings` true whatever config.json says, and a load then warns that it does not tie.
    """
    keys = {name: source for name, source in network._tied_weights_keys.items() if name != "lm_head.weight"}
    return type(network.__name__, (network,), {"_tied_weights_keys": keys, "__module__": network.__module__})


def _stack_weights(stack: str, network: Any) -> Iterator[WeightMatrix]:
    """Attention and MLP matrices of a T5 stack, [out, in]; `layer` counts from 1, as the states that they make do."""
    for layer, block in enumerate(network.block, start=1):
        for part in block.layer:
            if hasattr(part, "DenseReluDense"):
                yield from _dense_weights(stack, layer, part.DenseReluDense)
                continue
            cross = hasattr(part, "EncDecAttention")
            attention = part.EncDecAttention if cross else part.SelfAttention
            for what in ("q", "k", "v", "o"):
                module, kind = getattr(attention, what), "cross" if cross else "self"
                yield WeightMatrix.of(module, stack, layer, what, attention=kind, heads=attention.n_heads)


def _dense_weights(stack: str, layer: int, dense: Any) -> Iterator[WeightMatrix]:
    names = {"wi": "mlp_in", "wi_0": "mlp_gate", "wi_1": "mlp_in", "wo": "mlp_out"}
    for name, module in dense.named_children():
        if name in names:
            yield WeightMatrix.of(module, stack, layer, names[name])
