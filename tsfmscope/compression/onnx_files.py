"""Files of an ONNX model. Weights above 2 GiB, protobuf's limit, are in a data file."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

# Bytes of weights above which they are in a data file: protobuf's limit is 2 GiB, and the graph takes a part of it.
LARGEST_FILE = 1_900_000_000


def data_path(path: Path) -> Path:
    """Return the path of a model's data file, in the same folder; the model has its name without the folder."""
    return path.with_name(f"{path.name}.data")


def needs_data_file(size: int) -> bool:
    """Whether so many bytes of weights are stored in a data file."""
    return size > LARGEST_FILE


def save_onnx(model: Any, path: Path) -> None:
    """Replace the files of an ONNX model by those of an onnx.ModelProto, all of whose weights are in memory.

    Weights that do not fit into the model's file are written to `data_path(path)`, one after another as onnx does.
    """
    import onnx

    size = sum(len(weight.raw_data) for weight in model.graph.initializer)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".onnx-") as folder:
        written = Path(folder) / path.name
        onnx.save(
            model,
            written,
            save_as_external_data=needs_data_file(size),
            all_tensors_to_one_file=True,
            location=data_path(written).name,
        )
        if data_path(written).exists():
            os.replace(data_path(written), data_path(path))
        else:
            data_path(path).unlink(missing_ok=True)
        os.replace(written, path)
