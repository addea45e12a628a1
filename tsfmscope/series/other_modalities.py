"""Data sets of other modalities as lists of series of values: bytes of text, image pixels or table cells.

A document is cut like a time series: a context of bytes, and the bytes that follow it. An image and a table
are one window each. Their first value is the number of columns; the values of the pixels or cells follow,
row by row. With a context of as many steps as there are such values, the last one becomes the window's
future; the families of these modalities read it as well.
"""

from __future__ import annotations

import functools
import platform
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Float32, UInt8

from tsfmscope.errors import DataError
from tsfmscope.files import check_regular, open_regular
from tsfmscope.series.files.sources import check_room
from tsfmscope.series.types import Series

# Share of the built-in text and photographs for pretraining; data sets use the remaining share.
TRAINING_SHARE = 0.8
# Bytes of a document: enough for a context of 512 and a continuation, several times.
DOCUMENT = 1024
# Number of crops, equal to the number of CIFAR-10 images of Yu et al. 2026, section 2.
PHOTOGRAPHS = 1000
# Pixels of a crop's side, as in CIFAR-10.
SIDE = 32
# Number of synthetic tables that Yu et al. 2026, section 2, probe a tabular model with.
TABLES = 1000
# Rows and feature columns of a synthetic table. The label is one more column.
ROWS, FEATURES = 64, 8
# Largest number of classes of a synthetic table's label.
CLASSES = 5
# First bytes of a file with one bare array (.npy).
BARE = b"\x93NUMPY"
# Provenance of photographs and of synthetic tables.
_PHOTOGRAPHS, _TABLES = "sklearn.datasets.load_sample_images", "drawn from random networks of causes"
# Separate streams of tables, so that no checkpoint is trained on a table of the data set.
_DATA_SET, _TRAINING = 0, 1


def documents(name: str, path: Path | None, *, domain: str = "", seed: int = 0) -> Iterator[Series]:
    """Yield the documents of a text in order, DOCUMENT bytes each; the last may be shorter.

    No byte is changed, so a document may begin and end inside a character.

    path: a UTF-8 file. None: the last part of the English text that ships with Python (see `english`).

    Raises:
        DataError: the file cannot be read, is empty or is not UTF-8.
    """
    text = english()[1] if path is None else _read_text(path)
    provenance = f"pydoc_data.topics of Python {platform.python_version()}" if path is None else f"file {path.name}"
    for number, start in enumerate(range(0, len(text), DOCUMENT)):
        values = np.frombuffer(text, np.uint8, min(DOCUMENT, len(text) - start), start).astype(np.float32)
        yield Series(name, f"document-{number:06d}", values, domain, provenance=provenance)


@functools.cache
def english() -> tuple[bytes, bytes]:
    """Return Python's help topics as UTF-8 in two parts: the training part and the part for data sets."""
    from pydoc_data.topics import topics

    text = "\n\n".join(topics.values()).encode()
    return text[: int(len(text) * TRAINING_SHARE)], text[int(len(text) * TRAINING_SHARE) :]


def images(name: str, path: Path | None, *, domain: str = "", seed: int = 0) -> Iterator[Series]:
    """Yield one series per image: its number of columns, then its pixels 0..255 row by row in the order RGB.

    path: an .npz file with `images`, uint8 [N, H, W, 3]. None: seeded crops of scikit-learn's two sample
    photographs; crops may overlap.

    Raises:
        DataError: the file cannot be read, or has no such array.
    """
    if path is None:
        images, provenance = crops(PHOTOGRAPHS, SIDE, np.random.default_rng(seed), is_training=False), _PHOTOGRAPHS
    else:
        images, provenance = _read_images(path), f"file {path.name}"
    for number, image in enumerate(images):
        yield Series(name, f"image-{number:06d}", item(image), domain, provenance=provenance)


def item(values: np.ndarray) -> Float32[np.ndarray, " value"]:
    """Flatten an image [H, W, 3] or a table [R, columns]: number of columns, then values by row."""
    return np.asarray(np.append(np.float32(values.shape[1]), values).astype(np.float32))


def crops(
    count: int, side: int, rng: np.random.Generator, *, is_training: bool
) -> UInt8[np.ndarray, "image row column 3"]:
    """Cut square crops out of scikit-learn's sample photographs, uint8 [count, side, side, 3].

    is_training: True takes the left part of each photograph (for training), False the right part (for data sets).

    Raises:
        ValueError: the part is smaller than `side`.
    """
    edge = int(_photographs()[0].shape[1] * TRAINING_SHARE)
    parts = [picture[:, :edge] if is_training else picture[:, edge:] for picture in _photographs()]
    height, width = parts[0].shape[:2]
    if not 1 <= side <= min(height, width):
        raise ValueError(f"side: expected 1..{min(height, width)} pixels, got {side}")
    picks = rng.integers(len(parts), size=count)
    tops, lefts = rng.integers(height - side + 1, size=count), rng.integers(width - side + 1, size=count)
    images = [parts[p][y : y + side, x : x + side] for p, y, x in zip(picks, tops, lefts, strict=True)]
    return np.stack(images) if images else np.empty((0, side, side, 3), np.uint8)


def synthetic_tables(name: str, path: None = None, *, domain: str = "", seed: int = 0) -> Iterator[Series]:
    """Yield one series per table: its number of columns, then its cells row by row, each row's label last."""
    for number in range(TABLES):
        table = draw_table(np.random.default_rng([seed, _DATA_SET, number]), ROWS, FEATURES)
        yield Series(name, f"table-{number:06d}", item(table), domain, provenance=_TABLES)


def training_stream(seed: int, step: int) -> np.random.Generator:
    """Return the generator for the tables and crops of one training step; no data set uses this stream."""
    return np.random.default_rng([seed, _TRAINING, step])


def draw_table(rng: np.random.Generator, rows: int, features: int) -> Float32[np.ndarray, "row column"]:
    """Draw a table whose columns are nodes of one random causal network, float32 [rows, features + 1].

    The last column is the label, cut into classes 0, 1, ...

    This is a small version of the prior of TabPFN (Hollmann et al. 2023, section 4), which is also one of the
    priors that Mitra mixes (Zhang et al. 2025). 2 to 4 Gaussian causes pass through 2 or 3 layers of a random
    sparse network with noise at every node. Features and label are nodes of any layer, so a feature may cause
    the label or follow from it. The label's node is cut at random quantiles, and the class numbers are
    permuted at random. All rows have the same distribution, so any of them may be the rows to predict.
    """
    width = int(rng.integers(features + 1, 2 * features + 2))
    activation = _ACTIVATIONS[int(rng.integers(len(_ACTIVATIONS)))]
    noise = rng.uniform(0.01, 0.2)
    state, nodes = rng.standard_normal((rows, int(rng.integers(2, 5)))), []
    for _ in range(int(rng.integers(2, 4))):
        sources = state.shape[1]
        weights = rng.standard_normal((sources, width)) * (rng.random((sources, width)) < 0.7)
        state = activation(state @ weights * np.sqrt(1.5 / sources) + 0.5 * rng.standard_normal(width))
        state = state + noise * rng.standard_normal(state.shape)
        nodes.append(state)
    columns = np.concatenate(nodes, axis=1)
    columns = columns[:, rng.choice(columns.shape[1], features + 1, replace=False)]
    classes = int(rng.integers(2, CLASSES + 1))
    inner = (np.arange(1, classes) + rng.uniform(-0.3, 0.3, classes - 1)) / classes
    label = np.searchsorted(np.quantile(columns[:, -1], inner), columns[:, -1])
    columns[:, -1] = rng.permutation(classes)[label]
    return np.asarray(columns.astype(np.float32))


@functools.cache
def _photographs() -> list[np.ndarray]:
    from sklearn.datasets import load_sample_images

    return list(load_sample_images().images)


# The last one is leaky, because a dead node would give a constant column.
_ACTIVATIONS = (np.tanh, np.sin, lambda values: np.maximum(values, 0.1 * values))


def _read_text(path: Path) -> bytes:
    try:
        check_room(check_regular(path), path)
        text = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path.name}: no text in {path.parent} ({error.strerror}); check datasets.root") from error
    try:
        text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path.name}: expected UTF-8, byte {error.start} is not; convert the file") from error
    if not text.strip():
        raise DataError(f"{path.name}: expected text, the file is empty")
    return text


def _read_images(path: Path) -> UInt8[np.ndarray, "image row column 3"]:
    try:
        with open_regular(path) as stream:
            if stream.read(len(BARE)) == BARE:
                raise DataError(f"{path.name}: expected an .npz file with an array 'images', got one bare array")
            with zipfile.ZipFile(stream) as members:
                check_room(sum(member.file_size for member in members.infolist()), path)
            stream.seek(0)
            file = np.load(stream, allow_pickle=False)
            images, names = file.get("images"), sorted(file)
    except (OSError, ValueError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"{path.name}: expected an .npz file, got {type(error).__name__}: {reason}") from error
    if images is None:
        raise DataError(f"{path.name}: expected an array 'images', got {names}")
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3 or not images.size:
        raise DataError(f"{path.name}, 'images': expected uint8 [N, H, W, 3], got {images.dtype} {list(images.shape)}")
    return np.asarray(images)


# Called as source(name, path or None, domain=..., seed=...).
Source = Callable[..., Iterator[Series]]
SOURCES: Mapping[str, Source] = {"text": documents, "images": images, "tables": synthetic_tables}
