"""Text, images and tables as series: nothing of them is changed on the way, and a bad file says what it is."""

from __future__ import annotations

import io
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_sample_images
from sklearn.tree import DecisionTreeClassifier

from tsfmscope.errors import DataError
from tsfmscope.series import other_modalities
from tsfmscope.series.catalog import CATALOG
from tsfmscope.series.files.sources import select
from tsfmscope.series.tables import series_table, table_series
from tsfmscope.series.windows import spread_windows
from tsfmscope.training.corpora import BatchShape, ContrastCorpus

IMAGES = np.random.default_rng(0).integers(0, 256, (5, 6, 6, 3)).astype(np.uint8)


def npz(path: Path, **arrays: np.ndarray) -> Path:
    np.savez(path, **arrays)
    return path


@given(st.text(min_size=1, max_size=4000).filter(str.strip))
@settings(max_examples=30, deadline=None)
def test_the_documents_of_a_text_are_its_bytes_in_their_order(tmp_path_factory: Any, text: str) -> None:
    path = tmp_path_factory.mktemp("text") / "some.txt"
    path.write_bytes(text.encode())
    found = list(other_modalities.documents("novel", path, domain="text"))
    assert b"".join(one.values.astype(np.uint8).tobytes() for one in found) == text.encode()
    assert {len(one.values) for one in found[:-1]} <= {other_modalities.DOCUMENT}
    assert len({one.series for one in found}) == len(found)
    assert (found[0].freq, found[0].domain, found[0].provenance) == ("", "text", "file some.txt")


def test_the_english_of_python_is_cut_in_two_and_the_data_set_is_of_the_second_part() -> None:
    seen, rest = other_modalities.english()
    found = b"".join(one.values.astype(np.uint8).tobytes() for one in other_modalities.documents("english", None))
    assert found == rest
    assert len(seen) / len(seen + rest) == pytest.approx(other_modalities.TRAINING_SHARE, abs=1e-5)
    assert len(rest) > 64 * other_modalities.DOCUMENT
    assert b" the " in seen and b" the " in rest


@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (1, 1)])
def test_the_pixels_of_an_image_come_back(tmp_path: Path, shape: tuple[int, int]) -> None:
    images = np.random.default_rng(1).integers(0, 256, (2, *shape, 3)).astype(np.uint8)
    path = npz(tmp_path / "some.npz", images=images, labels=np.arange(2))
    found = list(other_modalities.images("mine", path))
    assert [one.values[0] for one in found] == [shape[1]] * 2
    np.testing.assert_array_equal(np.stack([one.values[1:].reshape(*shape, 3) for one in found]), images)


def stands_in(crop: np.ndarray, part: np.ndarray) -> bool:
    size = len(crop)
    rows, columns = np.nonzero((part[: -size or None, : -size or None] == crop[0, 0]).all(axis=2))
    return any(np.array_equal(part[y : y + size, x : x + size], crop) for y, x in zip(rows, columns, strict=True))


def test_crops_are_of_the_photographs_and_those_of_the_data_set_of_a_part_that_is_never_trained_on() -> None:
    pictures = load_sample_images().images
    edge = int(pictures[0].shape[1] * other_modalities.TRAINING_SHARE)
    for is_training in (True, False):
        found = other_modalities.crops(2, 32, np.random.default_rng(3), is_training=is_training)
        parts = [picture[:, :edge] if is_training else picture[:, edge:] for picture in pictures]
        for crop in found:
            assert any(stands_in(crop, part) for part in parts)
    one, other = (other_modalities.crops(6, 32, np.random.default_rng(s), is_training=True) for s in (1, 2))
    assert not np.array_equal(one, other)
    with pytest.raises(ValueError, match=r"side: expected 1\.\.128 pixels, got 129"):
        other_modalities.crops(1, 129, np.random.default_rng(0), is_training=False)


@pytest.mark.parametrize("source", sorted(other_modalities.SOURCES))
def test_a_seed_gives_the_same_items_again_and_they_go_through_the_series_table(source: str) -> None:
    first, again = (list(islice(other_modalities.SOURCES[source]("x", None, seed=1), 8)) for _ in range(2))
    back = table_series(series_table(first))
    for one, other, third in zip(first, again, back, strict=True):
        np.testing.assert_array_equal(one.values, other.values)
        np.testing.assert_array_equal(one.values, third.values)


@pytest.mark.parametrize("seed", range(20))
def test_a_table_has_finite_features_and_two_classes_at_least(seed: int) -> None:
    table = other_modalities.draw_table(np.random.default_rng(seed), 64, 8)
    assert table.shape == (64, 9) and table.dtype == np.float32
    assert np.isfinite(table).all()
    assert (table[:, :-1].std(axis=0) > 0).all()
    classes = np.unique(table[:, -1])
    assert 2 <= len(classes) <= other_modalities.CLASSES
    np.testing.assert_array_equal(classes, np.arange(len(classes)))


def test_the_labels_of_tables_can_be_told_from_their_features() -> None:
    """A tree that learns from the first rows is right more often than the commonest class."""
    tree, common = [], []
    for seed in range(40):
        table = other_modalities.draw_table(np.random.default_rng(seed), 128, 8)
        model = DecisionTreeClassifier(max_depth=4, random_state=0).fit(table[:96, :-1], table[:96, -1])
        tree.append(np.mean(model.predict(table[96:, :-1]) == table[96:, -1]))
        common.append(np.mean(table[96:, -1] == np.bincount(table[:96, -1].astype(int)).argmax()))
    assert np.mean(tree) > np.mean(common) + 0.15


def test_a_table_s_series_says_its_columns_and_ends_with_the_last_row_s_label() -> None:
    one = next(other_modalities.synthetic_tables("tables", seed=5))
    rows, features = other_modalities.ROWS, other_modalities.FEATURES
    assert one.values[0] == features + 1
    expected = other_modalities.draw_table(np.random.default_rng([5, 0, 0]), rows, features)
    np.testing.assert_array_equal(one.values[1:].reshape(rows, -1), expected)


@pytest.mark.parametrize(
    ("name", "context", "count"),
    [
        ("photographs", 3072, other_modalities.PHOTOGRAPHS),
        ("tables", 576, other_modalities.TABLES),
        ("english", 512, 92),
    ],
)
def test_a_window_of_the_named_sets_is_a_whole_item_or_a_stretch_of_text(name: str, context: int, count: int) -> None:
    entry = CATALOG[name]
    loaded = select(other_modalities.SOURCES[entry.source](name, None), sample=(3, 0))
    assert loaded.skipped == [] and loaded.available >= 0.9 * count  # of Python's help as much as there is
    found = loaded.series
    low = 16 if entry.source == "text" else context
    windows, skipped = spread_windows(found, context=context, horizon=entry.horizon, count=50, min_context=low)
    assert not skipped and not np.isnan(windows.context).any()
    if entry.source != "text":
        assert len(windows) == 3
        np.testing.assert_array_equal(windows.context, np.stack([one.values[:-1] for one in found]))


def write_garbage(path: Path) -> None:
    path.write_bytes(b"PK\x03\x04 and then nothing of the kind")


def write_cut(path: Path) -> None:
    npz(path, images=IMAGES)
    path.write_bytes(path.read_bytes()[:200])


def write_pickled(path: Path) -> None:
    np.savez(path, images=np.array([{"a": 1}], dtype=object))


def write_bare(path: Path) -> None:
    buffer = io.BytesIO()
    np.save(buffer, IMAGES)
    path.write_bytes(buffer.getvalue())


@pytest.mark.parametrize(
    ("write", "text"),
    [
        (lambda path: None, "some.npz: expected an .npz file, got FileNotFoundError"),
        (write_garbage, "some.npz: expected an .npz file, got BadZipFile"),
        (write_cut, "some.npz: expected an .npz file, got BadZipFile"),
        (write_pickled, "got ValueError: Object arrays cannot be loaded"),
        (write_bare, "got one bare array"),
        (lambda path: path.write_bytes(b""), "some.npz: expected an .npz file, got BadZipFile"),
        (lambda path: npz(path, pictures=IMAGES), r"expected an array 'images', got \['pictures'\]"),
        (lambda path: npz(path, images=IMAGES.astype(float)), r"expected uint8 \[N, H, W, 3\], got float64 \[5, 6"),
        (lambda path: npz(path, images=IMAGES[..., :1]), r"expected uint8 \[N, H, W, 3\], got uint8 \[5, 6, 6, 1\]"),
        (lambda path: npz(path, images=IMAGES[:0]), r"got uint8 \[0, 6, 6, 3\]"),
    ],
)
def test_a_file_that_holds_no_images_says_what_it_holds(
    tmp_path: Path, write: Callable[[Path], Any], text: str
) -> None:
    write(tmp_path / "some.npz")
    with pytest.raises(DataError, match=text):
        list(other_modalities.images("mine", tmp_path / "some.npz"))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "some.txt: no text in .* check datasets.root"),
        (b"", "expected text, the file is empty"),
        (b" \n\t", "expected text, the file is empty"),
        (b"caf\xe9", "expected UTF-8, byte 3 is not; convert the file"),
    ],
)
def test_a_file_that_holds_no_text_says_why(tmp_path: Path, content: bytes | None, text: str) -> None:
    if content is not None:
        (tmp_path / "some.txt").write_bytes(content)
    with pytest.raises(DataError, match=text):
        list(other_modalities.documents("mine", tmp_path / "some.txt"))


def test_a_text_of_one_letter_is_counted_as_constant(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a" * 3000)
    found = select(other_modalities.documents("mine", tmp_path / "a.txt"))
    assert not found.series and {skip.reason for skip in found.skipped} == {"constant"}
    assert len(found.skipped) == 3


@pytest.mark.parametrize(
    ("source", "contexts", "horizon"), [("text", [64, 128], 16), ("images", [3 * 64], 1), ("tables", [9 * 12], 1)]
)
def test_a_training_batch_follows_from_its_step_alone(source: str, contexts: list[int], horizon: int) -> None:
    corpus = ContrastCorpus(source, seed=0)
    shape = BatchShape(steps=800, contexts=contexts, futures=[horizon], horizon=horizon, min_past=1)
    batches = {step: corpus.batch(step, shape) for step in (3, 1, 2)}
    for step, (context, future, *_) in batches.items():
        again = corpus.batch(step, shape)
        np.testing.assert_array_equal(context, again[0])
        np.testing.assert_array_equal(future, again[1])
        assert context.shape[1] in contexts and future.shape == (len(context), horizon)
        assert len(context) == max(1, 800 // (context.shape[1] + horizon))
        assert np.isfinite(context).all() and np.isfinite(future).all()
    assert not np.array_equal(batches[1][0][:1, :64], batches[2][0][:1, :64])


def test_a_training_text_is_a_stretch_of_the_first_part_of_the_english() -> None:
    context, future, *_ = ContrastCorpus("text", seed=0).batch(1, BatchShape(600, [64], [8, 32], 32, 1))
    shown = int((~np.isnan(future)).any(axis=0).sum())
    assert shown in (8, 32)
    for before, after in zip(context, future[:, :shown], strict=True):
        assert np.concatenate((before, after)).astype(np.uint8).tobytes() in other_modalities.english()[0]


@pytest.mark.parametrize(
    ("source", "context", "horizon", "text"),
    [
        ("images", 100, 1, r"contexts of 3 n\^2 pixels and horizon 1, got 100 and 1"),
        ("images", 192, 4, "got 192 and 4"),
        ("tables", 100, 1, "contexts of 9 n cells and horizon 1, got 100 and 1"),
    ],
)
def test_a_recipe_whose_contexts_hold_no_whole_item_is_refused(
    source: str, context: int, horizon: int, text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        ContrastCorpus(source, seed=0).batch(1, BatchShape(800, [context], [horizon], horizon, 1))
