"""Shared code of the families built on transformers' T5: folders, states, weight matrices and logits."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from tsfmscope.errors import ModelError
from tsfmscope.models.base import Forecaster
from tsfmscope.models.blocks import Pretrained
from tsfmscope.models.common import checkpoint_folder
from tsfmscope.models.common.attention import AttentionLayer
from tsfmscope.models.common.capture import Pass, Stack
from tsfmscope.models.common.compression_block import with_compression_block
from tsfmscope.models.types import PackageForecast, Tokens
from tsfmscope.series.types import Windows

if TYPE_CHECKING:
    import torch

# Name of the output head's weights.
HEAD = "lm_head.weight"
SHAPE = ("d_model", "d_ff", "d_kv", "num_heads", "num_layers", "num_decoder_layers")
# Shape of a small model, for tests.
SMALL = {"d_model": 16, "d_ff": 24, "d_kv": 6, "num_heads": 3, "num_layers": 3, "num_decoder_layers": 2}

# Matrices of an MLP, which is the second part of an encoder's block and the third of a decoder's.
MLP = {
    f"layer.{part}.DenseReluDense.{path}": name
    for part in (1, 2)
    for path, name in {"wi": "mlp_in", "wi_0": "mlp_gate", "wi_1": "mlp_in", "wo": "mlp_out"}.items()
}


class T5Stacks(Pretrained):
    """Family with an encoder and a decoder T5 stack."""

    stacks: ClassVar[tuple[str, ...]] = ("encoder", "decoder")
    mlp: ClassVar[Mapping[str, str]] = MLP
    # A bias by distance is added to the scores; it reads no state.
    plain_attention: ClassVar[bool] = True
    # A transformers network with .encoder and .decoder.
    network: Any

    @property
    def blocks(self) -> Mapping[str, Sequence[Any]]:
        """Blocks of both stacks."""
        return {name: getattr(self.network, name).block for name in self.stacks}

    @classmethod
    def attention_layers(cls, network: Any) -> Iterator[AttentionLayer]:
        """Yield self-attention of both stacks and the decoder's cross-attention; scores are unscaled q·k.

        Where the decoder reads one token (Chronos-Bolt), its self-attention's q and k have no effect on the output; the
        family lists them in `inert_projections`.
        """
        return attentions(network, cls.stacks)

    def _pass_of(self, forward: Callable[[slice], object]) -> Pass:
        """Return a Pass of both stacks with their final norms; forward: runs a slice of the windows."""
        blocks = self.blocks
        stacks = {name: Stack(part, getattr(self.network, name).final_layer_norm) for name, part in blocks.items()}
        queries = {name: [block.layer[0].SelfAttention.q for block in part] for name, part in blocks.items()}
        return Pass(stacks, forward, queries)


class T5Ids(T5Stacks):
    """T5ForConditionalGeneration on ids: arrays `ids` and `mask` of the encoder, and `decoder_ids`."""

    softmax_head: ClassVar[bool] = True
    output_modules: ClassVar[tuple[str, ...]] = ("lm_head",)

    def _pass(self, tokens: Tokens) -> Pass:
        network = self.network.eval()

        def forward(part: slice) -> None:
            ids, mask, decoder_ids = self._inputs(tokens, part)
            encoded = network.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
            network.decoder(
                input_ids=decoder_ids, encoder_hidden_states=encoded, encoder_attention_mask=mask, use_cache=False
            )

        # The whole network is called, because with `scale_decoder_outputs` it also multiplies the
        # head's input by d^-1/2.
        def logits(part: slice) -> torch.Tensor:
            ids, mask, decoder_ids = self._inputs(tokens, part)
            emitted: torch.Tensor = network(
                ids, attention_mask=mask, decoder_input_ids=decoder_ids, use_cache=False
            ).logits
            return emitted

        return self._pass_of(forward)._replace(logits=logits)

    def forecast_with_package(self, network: Any, windows: Windows, tokens: Tokens) -> PackageForecast:
        """Return the logits of transformers' T5 on our ids."""
        import torch

        ids, mask, decoder_ids = (
            torch.from_numpy(tokens.arrays[name]).long() for name in ("ids", "mask", "decoder_ids")
        )
        logits = network(input_ids=ids, attention_mask=mask, decoder_input_ids=decoder_ids).logits
        return PackageForecast(logits=logits.numpy())

    def _inputs(self, tokens: Tokens, part: slice) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return encoder ids, mask and decoder ids of a slice of the windows, on the network's device."""
        import torch

        arrays, device = tokens.arrays, self.network.device
        ids, decoder_ids = (
            torch.from_numpy(arrays[name][part].astype(np.int64)).to(device) for name in ("ids", "decoder_ids")
        )
        return ids, torch.from_numpy(np.array(arrays["mask"][part])).to(device), decoder_ids


class T5Family(T5Stacks, Forecaster):
    """Family that forecasts and whose config.json contains a block of its own."""

    # Key of config.json: context_length, prediction_length and settings of the tokens.
    block: ClassVar[str] = "chronos_config"

    @classmethod
    def load(cls, folder: Path, *, device: str = "cpu") -> Self:
        """Load a released or saved checkpoint, safetensors only; ModelError names the file that is wrong."""
        folder = Path(folder)
        config = checkpoint_folder.read_config(folder, cls.name)
        if not isinstance(own := config.get(cls.block), dict):
            problem = f"{folder / 'config.json'}: key {cls.block!r} is missing"
            raise ModelError(checkpoint_folder.of_other_family(problem, cls.name))
        if mismatch := cls._mismatch(own):
            raise ModelError(checkpoint_folder.of_other_family(f"{folder / 'config.json'}: {mismatch}", cls.name))
        ids, words = own.get("n_tokens", 0), config.get("vocab_size")
        if isinstance(ids, int) and isinstance(words, int) and ids > words:
            raise ModelError(
                f"{folder / 'config.json'}: got n_tokens {ids} of {cls.block}, more than vocab_size {words}"
            )
        network = checkpoint_folder.load_network(
            with_compression_block(cls._network_class(config), cls.attention_layers), folder, device
        )
        if "lm_head" in cls.output_modules:
            check_head(config, folder)
        # The package's tokeniser checks the rest of its block.
        with checkpoint_folder.limit_parameters(folder):
            return cls(network)

    @classmethod
    @abstractmethod
    def _mismatch(cls, block: Mapping[str, Any]) -> str | None:
        """Return why the block belongs to another family, or None."""

    @classmethod
    @abstractmethod
    def _network_class(cls, config: Mapping[str, Any]) -> Any:
        """Return the class with `from_pretrained` for such a config.json."""

    @property
    def max_context(self) -> int:
        """Number of steps that the model reads: the last ones of a longer context, as in the package."""
        return int(getattr(self.network.config, self.block)["context_length"])

    @property
    def prediction_length(self) -> int:
        """Number of steps forecast at once; longer horizons are forecast recursively, as in the package."""
        return int(getattr(self.network.config, self.block)["prediction_length"])


def attentions(network: Any, stacks: tuple[str, ...]) -> Iterator[AttentionLayer]:
    """Yield the attention layers of a network whose T5 stacks have these names."""
    from tsfmscope.models.t5 import attention as narrow_heads

    parts = {matrix: matrix for matrix in ("q", "k", "v", "o")}
    for stack in stacks:
        for layer, block in enumerate(getattr(network, stack).block, start=1):
            modules = {"self": block.layer[0].SelfAttention}
            if stack == "decoder":
                modules["cross"] = block.layer[1].EncDecAttention
            for kind, module in modules.items():
                heads = module.n_heads
                yield AttentionLayer(
                    stack, layer, kind, module, heads, heads, module.scaling, True, narrow_heads.resize, parts
                )


def check_head(config: Mapping[str, Any], folder: Path) -> None:
    """Raise ModelError if config.json has a head with weights of its own, and the weight files have none.

    transformers would use the embedding as head.
    """
    if config.get("tie_word_embeddings") is False and HEAD not in checkpoint_folder.tensor_names(folder):
        raise ModelError(
            f"{folder}: {HEAD} is missing, but config.json has tie_word_embeddings false; fetch or save the checkpoint "
            "again, or set tie_word_embeddings to true if its head is the embedding"
        )


def with_own_head(network: Any) -> Any:
    """Return a subclass of transformers' T5ForConditionalGeneration with an output head of its own.

    It is saved under the original name. T5Config sets `tie_word_embeddings` to true whatever config.json
    contains, and a load then warns that it does not tie.
    """
    keys = {name: source for name, source in network._tied_weights_keys.items() if name != HEAD}
    return type(network.__name__, (network,), {"_tied_weights_keys": keys, "__module__": network.__module__})
