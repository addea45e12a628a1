"""Data sets of other modalities as lists of series, their values bytes of text, pixels of images or cells of tables.

A document is cut like a time series: so many bytes of context, and the bytes that go on from there. An image and a
table are one window each. The first value says how many columns they have, then come their pixels or cells row by row.
Under a condition of as many steps of context as these are, the last one is the future, which families read too.
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

from tasks.errors import DataError
from tasks.series.types import Series

SEEN = 0.8  # share of the built-in text and photographs that checkpoints are pretrained on; data sets are of the rest
DOCUMENT = 1024  # bytes of a document: a context of 512 and a continuation, several times
PHOTOGRAPHS = 1000  # crops, as many as the rank paper takes of CIFAR-10
SIDE = 32  # pixels of a crop's side, as CIFAR-10's
TABLES = 1000  # rank_structure.md, section 2: a tabular model is looked into on 1000 synthetic tables
ROWS, FEATURES = 64, 8  # of a synthetic table; its label is one column more
CLASSES = 5  # of a synthetic table's label, at most
_PHOTOGRAPHS = "sklearn.datasets.load_sample_images"
_DATA_SET, _TRAINING = 0, 1  # streams of tables: no checkpoint sees a table of the data set


def documents(name: str, path: Path | None, *, domain: str = "", seed: int = 0) -> Iterator[Series]:
    """Documents of DOCUMENT bytes, in their order, the last perhaps shorter; no byte is changed.

    path: a UTF-8 file; None: the English that ships with Python, of which the last part is taken. A document may begin
    and end within a character.

    Raises:
        DataError: the file cannot be read, is empty or not UTF-8.
    """
    text = english()[1] if path is None else _read_text(path)
    provenance = f"pydoc_data.topics of Python {platform.python_version()}" if path is None else f"file {path.name}"
    for number, start in enumerate(range(0, len(text), DOCUMENT)):
        values = np.frombuffer(text, np.uint8, min(DOCUMENT, len(text) - start), start).astype(np.float32)
        yield Series(name, f"document-{number:06d}", values, domain, provenance=provenance)


@functools.cache
def english() -> tuple[bytes, bytes]:
    """Python's help on its own language as UTF-8: the part to train on, and the part that data sets are made of."""
    from pydoc_data.topics import topics

    text = "\n\n".join(topics.values()).encode()
    return text[: int(len(text) * SEEN)], text[int(len(text) * SEEN) :]


def pictures(name: str, path: Path | None, *, domain: str = "", seed: int = 0) -> Iterator[Series]:
    """An image a series: the number of its columns, then its pixels 0..255 row by row, red, green, blue.

    path: an .npz file with `images`, uint8 [N, H, W, 3]. None: seeded crops of scikit-learn's two sample photographs,
    which may overlap.

    Raises:
        DataError: the file cannot be read, or has no such array.
    """
    if path is None:
        images, provenance = crops(PHOTOGRAPHS, SIDE, np.random.default_rng(seed), seen=False), _PHOTOGRAPHS
    else:
        images, provenance = _read_images(path), f"file {path.name}"
    for number, image in enumerate(images):
        yield Series(name, f"image-{number:06d}", item(image), domain, provenance=provenance)


def item(values: np.ndarray) -> Float32[np.ndarray, " value"]:
    """The series of an image [H, W, 3] or a table [R, columns]: its number of columns, then its values row by row."""
    flat: np.ndarray = np.append(np.float32(values.shape[1]), values).astype(np.float32)
    return flat


def crops(count: int, side: int, rng: np.random.Generator, *, seen: bool) -> UInt8[np.ndarray, "image row column 3"]:
    """Square crops of scikit-learn's sample photographs; seen: of the left part of each, else of the right.

    ValueError where the part is narrower than `side`.
    """
    edge = int(_photographs()[0].shape[1] * SEEN)
    parts = [picture[:, :edge] if seen else picture[:, edge:] for picture in _photographs()]
    height, width = parts[0].shape[:2]
    if not 1 <= side <= min(height, width):
        raise ValueError(f"side: expected 1..{min(height, width)} pixels, got {side}")
    which = rng.integers(len(parts), size=count)
    tops, lefts = rng.integers(height - side + 1, size=count), rng.integers(width - side + 1, size=count)
    found = [parts[p][y : y + side, x : x + side] for p, y, x in zip(which, tops, lefts, strict=True)]
    return np.stack(found) if found else np.empty((0, side, side, 3), np.uint8)


def synthetic_tables(name: str, path: None = None, *, domain: str = "", seed: int = 0) -> Iterator[Series]:
    """A table a series: the number of its columns, then its cells row by row, the label the last of each row."""
    for number in range(TABLES):
        table = draw_table(np.random.default_rng([seed, _DATA_SET, number]), ROWS, FEATURES)
        yield Series(
            name, f"table-{number:06d}", item(table), domain, provenance="drawn from random networks of causes"
        )


def training_stream(seed: int, step: int) -> np.random.Generator:
    """The generator of a training step's tables and crops, apart from those of the data sets of any seed."""
    return np.random.default_rng([seed, _TRAINING, step])


def draw_table(rng: np.random.Generator, rows: int, features: int) -> Float32[np.ndarray, "row column"]:
    """A table whose columns are nodes of one random network of causes, the last cut into classes 0, 1, ...

    The prior of TabPFN (Hollmann et al. 2023, section 4) in small, one of those that Mitra mixes (Zhang et al. 2025):
    2 to 4 Gaussian causes go through 2 or 3 layers of a random, sparse network with noise at every node; features and
    label are nodes of any layer, so that a feature may cause the label or follow from it. The label's node is cut at
    random quantiles, and classes are numbered in no order. Rows are independent and alike: any may be asked for.
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
    table: np.ndarray = columns.astype(np.float32)
    return table


@functools.cache
def _photographs() -> list[np.ndarray]:
    from sklearn.datasets import load_sample_images

    found: list[np.ndarray] = load_sample_images().images
    return found


def _rectified(values: np.ndarray) -> np.ndarray:
    leaky: np.ndarray = np.maximum(values, 0.1 * values)  # a dead node would be a constant column
    return leaky


_ACTIVATIONS = (np.tanh, np.sin, _rectified)


def _read_text(path: Path) -> bytes:
    try:
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
        with path.open("rb") as stream:
            file = np.load(stream, allow_pickle=False)
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise DataError(f"{path.name}: expected an .npz file with an array 'images', got one bare array")
            images, names = file.get("images"), sorted(file)
    except (OSError, ValueError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        what = " ".join(str(error).split())[:200]
        raise DataError(f"{path.name}: expected an .npz file, got {type(error).__name__}: {what}") from error
    if images is None:
        raise DataError(f"{path.name}: expected an array 'images', got {names}")
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3 or not images.size:
        raise DataError(f"{path.name}, 'images': expected uint8 [N, H, W, 3], got {images.dtype} {list(images.shape)}")
    found: np.ndarray = images
    return found


Source = Callable[..., Iterator[Series]]  # name, path or None, domain=, seed=
SOURCES: Mapping[str, Source] = {"text": documents, "images": pictures, "tables": synthetic_tables}
