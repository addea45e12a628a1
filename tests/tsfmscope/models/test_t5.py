"""T5 on text, read as bytes or by a tokenizer."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

from tsfmscope.errors import ModelError
from tsfmscope.models import registry
from tsfmscope.models.t5 import EOS, PAD, T5Text
from tsfmscope.models.types import TokenKind
from tsfmscope.series.types import Windows

Make = Callable[..., Windows]
WORDS = ["<pad>", "</s>", "<unk>", *(chr(n) for n in range(32, 127)), "the", "whale", "é"]


def text_windows(windows_of: Callable[..., Windows], context: list[bytes], future: list[bytes]) -> Windows:
    parts = [np.stack([np.frombuffer(one, np.uint8) for one in of]).astype(float) for of in (context, future)]
    return windows_of(*parts)


def test_ids_are_those_of_byt5(t5_text: T5Text, windows_of: Callable[..., Windows]) -> None:
    """ByT5 (Xue et al. 2022): a byte's id is the byte plus 3, 0 pads and 1 ends."""
    made = text_windows(windows_of, [b"caf\xc3\xa9", b"whale"], [b" is", b"ish"])
    tokens = t5_text.tokenize(made)
    assert tokens.arrays["ids"].tolist() == [[102, 100, 105, 198, 172, 1], [122, 107, 100, 111, 104, 1]]
    assert tokens.arrays["decoder_ids"].tolist() == [[0, 35, 108], [0, 108, 118]]
    assert tokens.arrays["mask"].all()
    assert tokens.kinds["encoder"].tolist() == [[TokenKind.OBSERVATION] * 5 + [TokenKind.EOS]] * 2
    assert tokens.kinds["decoder"].tolist() == [[TokenKind.START, TokenKind.FUTURE, TokenKind.FUTURE]] * 2
    for stack, name in (("encoder", "ids"), ("decoder", "decoder_ids")):
        np.testing.assert_array_equal(tokens.types[stack], tokens.arrays[name])


def test_missing_bytes_are_padding_and_others_are_rounded_into_their_range(
    t5_text: T5Text, windows_of: Callable[..., Windows]
) -> None:
    made = windows_of(np.array([[np.nan, 64.4, 300.0, -3.0]]), np.array([[np.nan, 65.0, 66.0]]))
    tokens = t5_text.tokenize(made)
    assert tokens.arrays["ids"].tolist() == [[PAD, 67, 258, 3, EOS]]
    assert tokens.kinds["encoder"][0, 0] == TokenKind.PADDING and not tokens.arrays["mask"][0, 0]
    assert tokens.kinds["decoder"].tolist() == [[TokenKind.START, TokenKind.PADDING, TokenKind.FUTURE]]


def test_the_loss_is_the_mean_over_the_bytes_of_the_future(t5_text: T5Text, items: Make) -> None:
    made = items(t5_text, count=3)
    ids, labels = (torch.from_numpy(part.astype(np.int64) + 3) for part in (made.context, made.future))
    ids = torch.cat((ids, torch.ones(3, 1, dtype=torch.int64)), dim=1)
    with torch.inference_mode():
        logits = t5_text.network(input_ids=ids, labels=labels).logits
        loss = t5_text.loss(torch.from_numpy(made.context), torch.from_numpy(made.future))
    by_hand = -torch.log_softmax(logits, dim=-1).gather(2, labels[..., None]).mean()
    assert float(loss) == pytest.approx(float(by_hand), abs=1e-5)


def test_bytes_that_are_not_shown_are_not_in_the_loss(t5_text: T5Text, items: Make) -> None:
    made = items(t5_text, count=3)
    context = torch.from_numpy(made.context)
    cut = made.future.copy()
    cut[:, 4:] = np.nan
    losses = [t5_text.loss(context, torch.from_numpy(future)).item() for future in (cut, made.future[:, :4])]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)


def tokenizer() -> PreTrainedTokenizerFast:
    """One of single letters and a few words, as a tokenizer.json."""
    made = Tokenizer(models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Split(" ", "isolated")
    made.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")


@pytest.fixture(scope="module")
def worded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as the hub has them: config.json, model.safetensors, tokenizer.json."""
    folder = tmp_path_factory.mktemp("worded")
    shape = {"d_model": 8, "d_ff": 8, "d_kv": 4, "num_heads": 2, "num_layers": 1, "num_decoder_layers": 1}
    config = T5Config(**shape, vocab_size=len(WORDS), decoder_start_token_id=0)
    T5ForConditionalGeneration(config).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def test_a_folder_with_a_tokenizer_is_read_in_its_tokens(worded: Path, windows_of: Callable[..., Windows]) -> None:
    family = T5Text.load(worded)
    made = text_windows(windows_of, [b"the whale a", b"a b c d e f"], [b" the the w ", b"\xc3\xa9 the a b "])
    tokens = family.tokenize(made)
    at = {word: n for n, word in enumerate(WORDS)}
    assert tokens.arrays["ids"].tolist() == [
        [*(at[w] for w in ("the", " ", "whale", " ", "a")), EOS, *[PAD] * 6],
        [*(at[w] for w in "a b c d e f"), EOS],
    ]
    assert tokens.arrays["decoder_ids"][1].tolist() == [0, *(at[w] for w in ("é", " ", "the", " ", "a", " ", "b"))]
    assert tokens.kinds["encoder"][0].tolist() == [
        *[TokenKind.OBSERVATION] * 5,
        TokenKind.EOS,
        *[TokenKind.PADDING] * 6,
    ]
    alone = family.tokenize(replace(made, context=made.context[:1], future=made.future[:1], series=["s0"]))
    for both, one in zip(family.hidden_states(tokens), family.hidden_states(alone), strict=True):
        rows = one.states.shape[1]  # what pads the other window changes nothing
        np.testing.assert_allclose(both.states[0, :rows], one.states[0], atol=1e-5)


def test_a_tokenizer_goes_with_its_model(worded: Path, windows_of: Callable[..., Windows], tmp_path: Path) -> None:
    family = T5Text.load(worded)
    family.save(tmp_path)
    made = text_windows(windows_of, [b"the whale a"], [b" the the w"])
    tokens, again = family.tokenize(made), T5Text.load(tmp_path).tokenize(made)
    np.testing.assert_array_equal(tokens.arrays["ids"], again.arrays["ids"])
    before = registry.fingerprint(tmp_path)
    path = tmp_path / "tokenizer.json"
    path.write_text(path.read_text() + "\n")
    assert registry.fingerprint(tmp_path) != before


def test_a_broken_tokenizer_is_named(worded: Path, tmp_path: Path) -> None:
    family = T5Text.load(worded)
    family.save(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match="its tokenizer cannot be read"):
        T5Text.load(tmp_path)


def test_a_class_that_the_tokenizer_settings_name_is_not_made(
    worded: Path, windows_of: Callable[..., Windows], tmp_path: Path
) -> None:
    folder, made = tmp_path / "model", text_windows(windows_of, [b"the whale a"], [b" the the w"])
    shutil.copytree(worded, folder)
    named = {"tokenizer_class": "LlamaTokenizer", "auto_map": {"AutoTokenizer": ["hostile.Model", None]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(named))
    ids = [T5Text.load(of).tokenize(made).arrays["ids"].tolist() for of in (worded, folder)]
    assert ids[0] == ids[1]


def test_settings_of_a_tokenizer_that_cut_texts_are_not_used(
    worded: Path, windows_of: Callable[..., Windows], tmp_path: Path
) -> None:
    made = text_windows(windows_of, [b"the whale a"], [b" the the w"])
    family = T5Text.load(worded)
    family.save(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    cut = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content | {"truncation": cut}))
    cut_ids, ids = (of.tokenize(made).arrays["ids"].tolist() for of in (T5Text.load(tmp_path), family))
    assert cut_ids == ids


def test_a_sentencepiece_model_alone_is_refused(worded: Path, tmp_path: Path) -> None:
    T5Text.load(worded).save(tmp_path)
    (tmp_path / "tokenizer.json").rename(tmp_path / "spiece.model")
    with pytest.raises(ModelError, match=r"got spiece\.model alone, expected tokenizer\.json"):
        T5Text.load(tmp_path)
