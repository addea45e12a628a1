"""T5 (Raffel et al. 2020) on running text: the encoder reads the context, the decoder its continuation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from tsfmscope.errors import ModelError
from tsfmscope.models.common import checkpoint_folder
from tsfmscope.models.common.compression_block import with_compression_block
from tsfmscope.models.facts import APACHE, Package, Released, page
from tsfmscope.models.t5 import shared
from tsfmscope.models.types import TokenKind, Tokens
from tsfmscope.series.catalog import Modality
from tsfmscope.series.types import Windows

if TYPE_CHECKING:
    import torch

REQUIRED = shared.SHAPE
DEFAULTS = {"dropout_rate": 0.1, "initializer_factor": 1.0, "feed_forward_proj": "relu", "vocab_size": 384}
# ByT5 (Xue et al. 2022): padding, end and unknown come before the 256 bytes.
PAD, EOS, FIRST_BYTE = 0, 1, 3
# Ids of ByT5: 3 special ids, 256 bytes, 125 sentinels.
BYTE_IDS = 384
# With this file, a checkpoint reads words; without it, bytes.
TOKENIZER = "tokenizer.json"
# Tokenizer of older releases, which is not read.
SENTENCEPIECE = "spiece.model"
# Bytes per token of English under T5's vocabulary, approximately. It sets only the first estimate of
# the number of windows.
BYTES_A_TOKEN = 4


class T5Text(shared.T5Ids):
    """T5 models of text.

    Rows of the encoder: one row per token of the context, then EOS. Rows of the decoder: START, then one row
    per token of the future except the last. Without TOKENIZER in the folder, tokens are bytes, as in
    ByT5. With it, they are those of the tokenizer, and windows are padded on the right.

    A row's type is its own input id. Values are rounded and clipped to bytes 0..255. A missing value is PAD,
    or is left out where a tokenizer is used. A continuation does not end the text, so no EOS follows it.
    """

    name: ClassVar[str] = "t5-text"
    released: ClassVar[Released] = Released(("google-t5/t5-base",), APACHE, page("google-t5/t5-base"))
    package: ClassVar[Package | None] = Package(
        "transformers", "transformers", network="transformers:T5ForConditionalGeneration"
    )
    # The released config of t5-base names neither its activation nor the number of decoder blocks.
    config_keys: ClassVar[tuple[str, ...]] = ("d_kv", "relative_attention_num_buckets")
    foreign_keys: ClassVar[tuple[str, ...]] = ("chronos_config", "wavetoken_config")
    example: ClassVar[Mapping[str, Any]] = shared.SMALL
    # It forecasts nothing; its encoder is compared with those of the time-series models.
    output_stack: ClassVar[str] = "encoder"
    modality: ClassVar[Modality] = "text"
    # transformers' T5ForConditionalGeneration.
    network: Any

    def __init__(self, network: Any, tokenizer: Any = None, *, batch: int = 32) -> None:
        """Wrap a T5ForConditionalGeneration.

        tokenizer: one of the package tokenizers, None for bytes. batch: windows per forward pass.
        """
        from tsfmscope.models.t5.attention import use_windowwise

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
        network = checkpoint_folder.load_network(
            with_compression_block(T5ForConditionalGeneration, cls.attention_layers), folder, device
        )
        shared.check_head(config, folder)
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
        return Tokens(
            arrays={"ids": ids, "mask": ids != PAD, "decoder_ids": decoder},
            kinds={stack: of.astype(np.int8) for stack, of in kinds.items()},
            types={"encoder": ids, "decoder": decoder},
            series=windows.series,
            origin=windows.origin,
        )

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
