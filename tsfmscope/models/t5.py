"""T5 (Raffel et al. 2020): code shared by the families built on it, and T5 on running text."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from tsfmscope.errors import ModelError
from tsfmscope.models.base import Forecaster, Pretrained
from tsfmscope.models.common import checkpoint_folder
from tsfmscope.models.common.attention import AttentionLayer
from tsfmscope.models.common.capture import Pass, Stack
from tsfmscope.models.common.low_bits import read_shapes
from tsfmscope.models.facts import APACHE, Package, Released, page
from tsfmscope.models.types import PackageForecast, TokenKind, Tokens
from tsfmscope.series.types import Windows

if TYPE_CHECKING:
    import torch

# Name of the output head's weights.
HEAD_WEIGHT = "lm_head.weight"
SHAPE = ("d_model", "d_ff", "d_kv", "num_heads", "num_layers", "num_decoder_layers")
# Shape of a small model, for tests.
SMALL = {"d_model": 16, "d_ff": 24, "d_kv": 6, "num_heads": 3, "num_layers": 3, "num_decoder_layers": 2}

# Matrices of an MLP, which is the second part of an encoder's block and the third of a decoder's.
MLP = {
    f"layer.{part}.DenseReluDense.{path}": name
    for part in (1, 2)
    for path, name in {"wi": "mlp_in", "wi_0": "mlp_gate", "wi_1": "mlp_in", "wo": "mlp_out"}.items()
}
# Config of T5Text: keys without a default, and values of the others.
REQUIRED = SHAPE
DEFAULTS = {"dropout_rate": 0.1, "initializer_factor": 1.0, "feed_forward_proj": "relu", "vocab_size": 384}
# ByT5 (Xue et al. 2022): padding, end and unknown come before the 256 bytes.
PAD, EOS, FIRST_BYTE = 0, 1, 3
# Ids of ByT5: 3 special ids, 256 bytes, 125 sentinels.
BYTE_IDS = 384
# With this file, a checkpoint reads words; without it, bytes.
TOKENIZER = "tokenizer.json"
# Tokenizer of older releases, which is not read.
SENTENCEPIECE = "spiece.model"
# About the bytes per token of English in T5's vocabulary; for a first estimate of windows only.
BYTES_A_TOKEN = 4


class T5Stacks(Pretrained):
    """Family with an encoder and a decoder T5 stack."""

    stacks = ("encoder", "decoder")
    mlp: ClassVar[Mapping[str, str]] = MLP
    # A bias by distance is added to the scores; it reads no state.
    plain_attention = True

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

    softmax_head = True
    output_modules = ("lm_head",)

    def _pass(self, tokens: Tokens) -> Pass:
        network = self.network.eval()

        def forward(part: slice) -> None:
            ids, mask, decoder_ids = self._inputs(tokens, part)
            encoded = network.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
            network.decoder(
                input_ids=decoder_ids, encoder_hidden_states=encoded, encoder_attention_mask=mask, use_cache=False
            )

        # Call the whole network: with `scale_decoder_outputs` it scales the head's input by d^-1/2.
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
    block = "chronos_config"

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
        network = cls.load_network(cls._network_class(config), folder, device)
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


def make_config(full: Mapping[str, Any], vocabulary: int, **own: Any) -> Any:
    """Return a T5Config whose ids of padding, end and start are 0, 1 and 0.

    own: keys that only its family reads.
    """
    from transformers import T5Config

    shape = {name: full[name] for name in (*SHAPE, "dropout_rate", "initializer_factor")}
    ids = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
    return T5Config(**shape, vocab_size=vocabulary, **ids, **own)


def attentions(network: Any, stacks: tuple[str, ...]) -> Iterator[AttentionLayer]:
    """Yield the attention layers of a network whose T5 stacks have these names."""
    from tsfmscope.models.t5_decoding import resize_heads

    parts = {matrix: matrix for matrix in ("q", "k", "v", "o")}
    for stack in stacks:
        for layer, block in enumerate(getattr(network, stack).block, start=1):
            modules = {"self": block.layer[0].SelfAttention}
            if stack == "decoder":
                modules["cross"] = block.layer[1].EncDecAttention
            for kind, module in modules.items():
                heads = module.n_heads
                yield AttentionLayer(
                    stack, layer, kind, module, heads, heads, module.scaling, True, resize_heads, parts
                )


def check_head(config: Mapping[str, Any], folder: Path) -> None:
    """Raise ModelError if config.json has a head with weights of its own, and the weight files have none.

    transformers would use the embedding as head.
    """
    files = checkpoint_folder.weight_files(folder) if config.get("tie_word_embeddings") is False else []
    if files and not any(HEAD_WEIGHT in read_shapes(path) for path in files):
        raise ModelError(
            f"{folder}: {HEAD_WEIGHT} is missing, but config.json has tie_word_embeddings false; fetch or save the "
            "checkpoint again, or set tie_word_embeddings to true if its head is the embedding"
        )


def with_own_head(network: Any) -> Any:
    """Return a subclass of transformers' T5ForConditionalGeneration with an output head of its own.

    It is saved under the original name. T5Config sets `tie_word_embeddings` to true whatever config.json
    contains, and a load then warns that it does not tie.
    """
    keys = {name: source for name, source in network._tied_weights_keys.items() if name != HEAD_WEIGHT}
    return type(network.__name__, (network,), {"_tied_weights_keys": keys, "__module__": network.__module__})


class T5Text(T5Ids):
    """T5 models of text.

    Rows of the encoder: one row per token of the context, then EOS. Rows of the decoder: START, then one row
    per token of the future except the last. Without TOKENIZER in the folder, tokens are bytes, as in
    ByT5. With it, they are those of the tokenizer, and windows are padded on the right.

    A row's type is its own input id. Values are rounded and clipped to bytes 0..255. A missing value is PAD,
    or is left out where a tokenizer is used. A continuation does not end the text, so no EOS follows it.
    """

    name = "t5-text"
    released = Released(("google-t5/t5-base",), APACHE, page("google-t5/t5-base"))
    package = Package("transformers", "transformers", network="transformers:T5ForConditionalGeneration")
    # The released config of t5-base names neither its activation nor the number of decoder blocks.
    config_keys = ("d_kv", "relative_attention_num_buckets")
    foreign_keys = ("chronos_config", "wavetoken_config")
    example: ClassVar[Mapping[str, Any]] = SMALL
    # It forecasts nothing; its encoder is compared with those of the time-series models.
    output_stack = "encoder"
    modality = "text"

    def __init__(self, network: Any, tokenizer: Any = None, *, batch: int = 32) -> None:
        """Wrap a T5ForConditionalGeneration.

        tokenizer: one of the package tokenizers, None for bytes. batch: windows per forward pass.
        """
        from tsfmscope.models.t5_decoding import use_windowwise

        super().__init__(network, batch=batch)
        use_windowwise(network.encoder)
        self._tokenizer = tokenizer

    @classmethod
    def new(cls, config: Mapping[str, Any], *, seed: int) -> Self:
        """Return a model of bytes with random weights; the head shares the weights of the embedding.

        Keys of the config: all of REQUIRED, and those of DEFAULTS where they differ. ValueError for keys that
        are missing or unknown, and for a vocabulary of fewer than 259 ids.
        """
        from transformers import T5Config, T5ForConditionalGeneration

        full = checkpoint_folder.filled_config(config, REQUIRED, DEFAULTS, cls.name)
        if full["vocab_size"] < FIRST_BYTE + 256:
            raise ValueError(f"{cls.name} config: vocab_size: got {full['vocab_size']}, expected at least 259")
        t5_config = T5Config(**full, pad_token_id=PAD, eos_token_id=EOS, decoder_start_token_id=PAD)
        return cls(checkpoint_folder.build(lambda: T5ForConditionalGeneration(t5_config), seed))

    @classmethod
    def load(cls, folder: Path, *, device: str = "cpu") -> Self:
        """Load a released or saved T5 or ByT5, safetensors only; ModelError names the file that is wrong."""
        from transformers import T5ForConditionalGeneration

        folder = Path(folder)
        config = checkpoint_folder.read_config(folder, cls.name)
        words = (folder / TOKENIZER).is_file()
        actual, vocabulary = (config.get("model_type"), "chronos_config" in config), config.get("vocab_size", 0)
        vocabulary = vocabulary if isinstance(vocabulary, int) else 0
        if actual != ("t5", False):
            kind = f"model_type {actual[0]!r}{', chronos_config' if actual[1] else ''}"
            problem = f"{folder / 'config.json'}: got {kind}, expected 't5' of text"
            raise ModelError(checkpoint_folder.of_other_family(problem, cls.name))
        if not words and (folder / SENTENCEPIECE).is_file():
            raise ModelError(
                f"{folder}: got {SENTENCEPIECE} alone, expected {TOKENIZER}; write it with transformers: "
                f"T5Tokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)"
            )
        if not words and not FIRST_BYTE + 256 <= vocabulary <= BYTE_IDS:
            raise ModelError(
                f"{folder}: got {vocabulary} ids and no tokenizer, expected {TOKENIZER}, or 259 to "
                f"{BYTE_IDS} ids of bytes; fetch the tokenizer's file too"
            )
        network = cls.load_network(T5ForConditionalGeneration, folder, device)
        check_head(config, folder)
        return cls(network, _read_tokenizer(folder / TOKENIZER) if words else None)

    def save(self, folder: Path) -> None:
        """Write config.json, model.safetensors and any tokenizer, as transformers reads them."""
        self.network.save_pretrained(folder)
        if self._tokenizer is not None:
            self._tokenizer.save(str(Path(folder) / TOKENIZER))

    def rows_per_window(self, context: int, horizon: int) -> Mapping[str, int]:
        """Return the number of context bytes, and the horizon minus 1 for the decoder.

        No decoder row reads the last byte of the horizon. With a tokenizer, return about a fourth of each.
        """
        steps_per_row = 1 if self._tokenizer is None else BYTES_A_TOKEN
        return {"encoder": -(-context // steps_per_row), "decoder": (horizon - 1) // steps_per_row}

    def stock_model(self) -> Any:
        """Return the transformers network."""
        return self.network

    def loss(self, context: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
        """Return the cross entropy of the continuation's ids; missing ones are left out."""
        import torch

        device = self.network.device
        ids, labels = self._ids(context.cpu().numpy(), end=True), self._ids(future.cpu().numpy(), end=False)
        labels = np.where(labels == PAD, -100, labels)
        inputs, targets = (torch.from_numpy(part).to(device) for part in (ids, labels))
        loss: torch.Tensor = self.network(input_ids=inputs, attention_mask=inputs != PAD, labels=targets).loss
        return loss

    def _tokenize(self, windows: Windows) -> Tokens:
        ids, future = self._ids(windows.context, end=True), self._ids(windows.future, end=False)
        start = np.full((len(windows), 1), self.network.config.decoder_start_token_id)
        decoder = np.concatenate((start, future[:, :-1]), axis=1)
        kinds = {
            "encoder": np.select([ids == PAD, ids == EOS], [TokenKind.PADDING, TokenKind.EOS], TokenKind.OBSERVATION),
            "decoder": np.where(decoder == PAD, TokenKind.PADDING, TokenKind.FUTURE),
        }
        kinds["decoder"][:, 0] = TokenKind.START
        ids, decoder = ids.astype(np.int32), decoder.astype(np.int32)
        arrays = {"ids": ids, "mask": ids != PAD, "decoder_ids": decoder}
        kinds = {stack: values.astype(np.int8) for stack, values in kinds.items()}
        return Tokens(arrays, kinds, {"encoder": ids, "decoder": decoder}, windows.series, windows.origin)

    def _ids(self, values: np.ndarray, *, end: bool) -> np.ndarray:
        """Return ids [W, T] int64 of bytes [W, step], PAD where there is none; end: append EOS."""
        missing = np.isnan(values)
        text = np.clip(np.rint(np.where(missing, 0, values)), 0, 255).astype(np.uint8)
        if self._tokenizer is not None:
            return self._words([row[~is_missing].tobytes() for row, is_missing in zip(text, missing, strict=True)], end)
        ids = np.where(missing, PAD, text.astype(np.int64) + FIRST_BYTE)
        return np.pad(ids, ((0, 0), (0, 1)), constant_values=EOS) if end else ids

    def _words(self, texts: Sequence[bytes], end: bool) -> np.ndarray:
        """Return ids of the tokenizer, padded on the right.

        Bytes that form no whole character become the replacement character.
        """
        decoded = [text.decode("utf-8", errors="replace") for text in texts]
        encoded = [self._tokenizer.encode(text, add_special_tokens=False).ids + [EOS] * end for text in decoded]
        ids = np.full((len(encoded), max(1, *map(len, encoded), 1)), PAD, dtype=np.int64)
        for row, words in zip(ids, encoded, strict=True):
            row[: len(words)] = words
        return ids


def _read_tokenizer(path: Path) -> Any:
    """Return a tokenizer from its JSON; AutoTokenizer would make the class that another file names."""
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    # The package raises no narrower class.
    except Exception as error:
        raise ModelError(f"{path}: its tokenizer cannot be read ({error}); fetch the checkpoint again") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
