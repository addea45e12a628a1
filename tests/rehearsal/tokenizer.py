"""A tokenizer of the form and size of T5's, with a vocabulary of our own instead of T5's."""

from __future__ import annotations

from pathlib import Path

# T5 (Raffel et al. 2020) has 32,000 pieces and 100 sentinels.
PIECES, SENTINELS = 32_000, 100
SPACE = "▁"
SPECIAL = ("<pad>", "</s>", "<unk>")


def write_tokenizer(path: Path) -> None:
    """Write tokenizer.json: a Unigram model of the printable ASCII characters, filled up with unused pieces."""
    from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import Unigram

    characters = [SPACE, *map(chr, range(33, 127)), "\n"]
    vocabulary = [(piece, 0.0) for piece in SPECIAL] + [(piece, -5.0) for piece in characters]
    vocabulary += [(f"{SPACE}unused{number}", -20.0) for number in range(PIECES - len(vocabulary))]
    vocabulary += [(f"<extra_id_{number}>", 0.0) for number in reversed(range(SENTINELS))]
    tokenizer = Tokenizer(Unigram(vocabulary, unk_id=2, byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE)
    tokenizer.decoder = decoders.Metaspace(replacement=SPACE)
    tokenizer.add_special_tokens([AddedToken(piece, special=True, normalized=False) for piece in SPECIAL])
    tokenizer.save(str(path), pretty=False)
