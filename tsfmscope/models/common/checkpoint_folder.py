"""Folders of checkpoints: configs, weights and checksums, to make, read and load models."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import itertools
import json
import logging
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from tsfmscope.errors import ModelError
from tsfmscope.files import check_regular, file_sum, read_bytes, read_text
from tsfmscope.models.common.attention import BLOCK
from tsfmscope.models.common.low_bits import read_file

logger = logging.getLogger(__name__)
Network = TypeVar("Network")
# The file in which every package looks for weights.
STOCK = "model.safetensors"
# List of the files (shards) of weights that are in several.
INDEX = "model.safetensors.index.json"
# Name of a file in INDEX.
SHARD = re.compile(r"[^/\\\0]+\.safetensors")
# The only pickled file that is read, weights only: Lag-Llama was released in no other form.
PICKLED = "lag-llama.ckpt"
# Files of a LoRA adapter, as peft saves them.
ADAPTER, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
# Keys of config.json that change numbers, need other packages or name another file of weights.
# Packages obey them silently.
REFUSED_KEYS = ("quantization_config", "attn_implementation", "_attn_implementation", "transformers_weights")
# Suffixes of files that packages read whole, as text, and their largest size in bytes. The largest
# released one, a tokenizer's, has a tenth of that.
TEXT_SUFFIXES, LARGEST_TEXT = (".json", ".txt", ".model"), 2**28
# Largest config.json in bytes, a thousand times the largest released one (with a vocabulary).
LARGEST_CONFIG = 2**24
# Keys of config.json, in any family, whose value is a count of at least 1.
COUNT_KEYS = (
    *("num_layers", "num_decoder_layers", "num_hidden_layers", "decoder_num_hidden_layers", "n_layer", "n_layers"),
    *("num_heads", "num_attention_heads", "decoder_num_attention_heads", "n_head", "n_heads"),
    *("input_patch_size", "input_patch_stride", "output_patch_size", "patch_length", "patch_stride"),
    *("context_length", "prediction_length"),
    *("d_model", "d_ff", "d_kv", "hidden_size", "intermediate_size", "ffn_dim", "dim", "n_embd_per_head"),
)
# Parameters that a network may have in addition to four per byte of its weight files.
SPARE_PARAMETERS = 2**20
# Exceptions that packages raise for a broken checkpoint.
PACKAGE_ERRORS = (
    *(AttributeError, LookupError, ValueError, TypeError, RuntimeError, AssertionError, ArithmeticError),
    *(ImportError, MemoryError, OSError),
)
# Names of tensors in one message, and characters of each.
MOST_NAMES, LONGEST_NAME = 5, 100
# File of narrower or factored weights; no package looks for this name, so none misreads them.
COMPRESSED = "compressed.safetensors"
# Keys of config.json that no config class of transformers declares, and that networks here read: T5's, those of rotary
# positions in older files, chronos-forecasting's and ours.
UNDECLARED_KEYS = (
    *("decoder_start_token_id", "dense_act_fn", "is_gated_act", "scale_decoder_outputs", "tie_word_embeddings"),
    *("rope_scaling", "rope_theta"),
    *("chronos_config", "chronos_pipeline_class", "reg_token_id"),
    *("chebyshev_rank", "periodicity", "wavetoken_config", BLOCK),
)
# Known keys whose value is an object.
OBJECT_KEYS = ("chronos_config", "rope_parameters", "rope_scaling", "tokenizer_kwargs", "wavetoken_config", BLOCK)
# Checksums of a folder's files, in the format of sha256sum: `sha256sum --check` verifies a folder too.
SUMS = "checksums.sha256"
RECIPE = "recipe.json"
# Largest size of SUMS in bytes; a line has about a hundred.
LARGEST_SUMS = 2**20
# Subfolder of a checkpoint: snapshots of its training, one checkpoint each.
SNAPSHOTS = "snapshots"


def broken_checkpoint(problem: str) -> ModelError:
    """Return the error of a checkpoint that is damaged; problem: the file, what was expected and what was found."""
    return ModelError(f"{problem}; fetch or save the checkpoint again")


def filled_config(
    config: Mapping[str, Any], required: tuple[str, ...], defaults: Mapping[str, Any], location: str,
    find_problem: Callable[[dict[str, Any]], str | None] = lambda full: None,
) -> dict[str, Any]:  # fmt: skip
    """Return the config, filled up with defaults.

    location: name for the error messages. find_problem: returns what is wrong with the filled config, None if nothing
    is. Raises ValueError, which names the keys that are missing or unknown, or the problem.
    """
    allowed = set(required) | set(defaults)
    if unknown := sorted(set(config) - allowed):
        raise ValueError(f"{location} config: got unknown keys {unknown}, expected only {sorted(allowed)}")
    if missing := [key for key in required if key not in config]:
        raise ValueError(f"{location} config: keys {missing} are missing, expected {list(required)}")
    full = {**defaults, **config}
    if wrong := find_problem(full):
        raise ValueError(f"{location} config: {wrong}")
    return full


def build(make: Callable[[], Network], seed: int) -> Network:
    """Return `make()`, run with torch's generator seeded; the global generator is left as it was."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def share(folder: Path) -> None:
    """Give the weight files of a folder the permissions that a new file has there.

    safetensors 0.8 and later writes files that only their owner can read. The permissions are read from a new
    file, because Python can read the umask only by setting it, which affects all threads.
    """
    with tempfile.TemporaryDirectory(dir=folder, prefix=".mode-") as temporary:
        probe = Path(temporary, "probe")
        probe.touch()
        mode = stat.S_IMODE(probe.stat().st_mode)
    for path in folder.glob("*.safetensors"):
        path.chmod(mode)


def read_object(path: Path, largest: int) -> dict[str, Any]:
    """Return the object of a JSON file of at most `largest` bytes. Raises ModelError if there is something else."""
    try:
        content = json.loads(read_text(path, largest))
    except (OSError, ValueError, RecursionError) as error:
        raise broken_checkpoint(f"{path}: expected JSON ({error})") from error
    if not isinstance(content, dict):
        raise broken_checkpoint(f"{path}: expected an object, got {type(content).__name__}")
    return content


def read_config(folder: Path, family: str, unchecked: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Return config.json of a checkpoint folder that contains safetensors.

    unchecked: keys of COUNT_KEYS that may have any value in this family.

    Raises ModelError, which names what is missing or broken and how to fix it.
    """
    if not folder.is_dir():
        raise ModelError(f"{family}: no folder {folder}; expected one with config.json and {STOCK}")
    check_files(folder)
    if weight_files(folder) == [folder / PICKLED]:
        raise ModelError(f"{folder}: got {PICKLED}, expected {STOCK}; convert pickled weights to safetensors first")
    path = folder / "config.json"
    if not path.is_file():
        raise ModelError(f"{path}: file is missing; a {family} checkpoint needs it next to its weights")
    try:
        config = json.loads(read_text(path, LARGEST_CONFIG))
        # Python reads NaN and 1e999, which are no JSON; networks are made with them, and fail where they run.
        json.dumps(config, allow_nan=False)
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}; this is no {family} checkpoint") from error
    except (ValueError, RecursionError) as error:
        raise broken_checkpoint(f"{path}: not valid JSON ({error})") from error
    if not isinstance(config, dict):
        raise ModelError(f"{path}: holds {type(config).__name__}, expected an object; this is no {family} checkpoint")
    classes = config.get("architectures")
    if classes is not None and not (isinstance(classes, list) and all(isinstance(name, str) for name in classes)):
        raise ModelError(f"{path}: architectures: got {classes!r:.100}, expected a list of names of classes")
    for block in (config, *(value for value in config.values() if isinstance(value, dict))):
        for key in COUNT_KEYS:
            n = None if key in unchecked else block.get(key)
            if n is not None and (isinstance(n, bool) or not isinstance(n, int) or n < 1):
                raise broken_checkpoint(f"{path}: {key}: got {n!r:.100}, expected a whole number from 1")
        if refused := [key for key in REFUSED_KEYS if block.get(key) is not None]:
            raise ModelError(
                f"{path}: {refused[0]}: got {block[refused[0]]!r:.100}, expected none, as it changes numbers or needs "
                "other packages; remove the key, or save the weights as float32 without it"
            )
    return config


def weight_files(folder: Path) -> list[Path]:
    """Return the files that the weights are read from: COMPRESSED, STOCK, the files that INDEX names, or PICKLED.

    Other files, such as averaged or rounded copies of the weights, are not read.

    Raises ModelError if there are none, if COMPRESSED and STOCK are there, for a file outside the folder, and for
    a LoRA adapter.
    """
    check_adapter(folder)
    try:
        names = {path.name for path in folder.iterdir()}
    except OSError as error:
        raise ModelError(f"no folder {folder}; expected one with config.json and {STOCK}") from error
    if {COMPRESSED, STOCK} <= names:
        raise ModelError(
            f"{folder}: got both {COMPRESSED} and {STOCK}, expected one; remove the one that config.json is not for"
        )
    # transformers too prefers STOCK to an index.
    files = [name for name in (COMPRESSED, STOCK) if name in names]
    if not files and INDEX in names:
        files = _shards(folder / INDEX)
    elif not files and PICKLED in names:
        files = [PICKLED]
    if not files:
        check_nested(folder)
        raise ModelError(
            f"{folder}: not a checkpoint: got {_list_names(names)}, expected {STOCK}, or {INDEX} and the files that it "
            "names; convert pickled weights to safetensors, and rename weights that have another name"
        )
    for name in files:
        check_inside(folder / name)
    return [folder / name for name in files]


def files_of_weights(folder: Path) -> list[Path]:
    """Return `weight_files` and the index that names them, if any."""
    files = weight_files(folder)
    is_indexed = files[0].name not in (COMPRESSED, STOCK, PICKLED)
    return [*files, folder / INDEX] if is_indexed else files


def check_inside(path: Path) -> None:
    """Raise ModelError unless a file of a checkpoint is regular and in its folder.

    A link may lead to another file of the folder, and from a snapshot of the hub's cache to its blobs.
    """
    folder = path.parent.resolve()
    allowed = [folder] + ([folder.parents[1] / "blobs"] if folder.parent.name == "snapshots" else [])
    try:
        check_regular(path)
        inside = path.resolve().parent in allowed
    except OSError as error:
        raise broken_checkpoint(f"{path}: {error.strerror}") from error
    if not inside:
        raise ModelError(
            f"{path}: got a link to {path.resolve()}, expected a file in the folder; copy the file to the link's place"
        )


def _shards(index: Path) -> list[str]:
    """Return the names of the files of an index, in order. Raises ModelError, which names the index."""
    try:
        names = sorted(set(json.loads(read_text(index, LARGEST_TEXT))["weight_map"].values()))
    except OSError as error:
        raise broken_checkpoint(f"{index}: {error.strerror}") from error
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise broken_checkpoint(
            f"{index}: expected an object with weight_map, tensor -> file ({type(error).__name__})"
        ) from error
    wrong = [name for name in names if not (isinstance(name, str) and SHARD.fullmatch(name))]
    if wrong or not names:
        got = f"{wrong[0]!r:.100}" if wrong else "none"
        raise ModelError(f"{index}: got file {got}, expected names of *.safetensors in the folder; fetch it again")
    return names


def is_adapter(folder: Path) -> bool:
    """Return whether a folder contains a LoRA adapter and no weights of a whole model."""
    has_whole = any((folder / name).exists() for name in (COMPRESSED, STOCK, INDEX))
    return not has_whole and any((folder / name).exists() for name in (ADAPTER, ADAPTER_WEIGHTS))


def check_adapter(folder: Path) -> None:
    """Raise ModelError if a folder contains a LoRA adapter, alone or next to the weights of a whole model."""
    if not any((folder / name).exists() for name in (ADAPTER, ADAPTER_WEIGHTS)):
        return
    is_alone, base = is_adapter(folder), None
    with contextlib.suppress(OSError, ValueError, AttributeError, RecursionError):
        base = json.loads(read_text(folder / ADAPTER, LARGEST_CONFIG)).get("base_model_name_or_path")
    owner = f"{base!r:.200}" if base else "a base model that it does not name"
    problem = "is not a whole model" if is_alone else "is next to the weights of a whole model"
    other = "" if is_alone else f", or remove {ADAPTER} and {ADAPTER_WEIGHTS} to use the weights without it"
    raise ModelError(
        f"{folder}: a LoRA adapter of {owner} {problem}; merge it (with peft: "
        f"model.merge_and_unload().save_pretrained(NEW_FOLDER)) and name the new folder{other}"
    )


def check_nested(folder: Path) -> None:
    """Raise ModelError, naming them, if subfolders contain checkpoints, such as checkpoint-N of a training run."""
    paths = (
        path for depth in ("*", "*/*") for name in ("config.json", ADAPTER) for path in folder.glob(f"{depth}/{name}")
    )
    if nested := {path.parent.relative_to(folder).as_posix() for path in paths}:
        raise ModelError(
            f"{folder}: contains no checkpoint, but folders that contain one: {_list_names(nested)}; name one of them"
        )


def _list_names(names: Iterable[str]) -> str:
    """Return the first names in order as text, shortened, and the number of the others."""
    names = sorted(names)
    text = ", ".join(f"{name[:LONGEST_NAME]!r}" for name in names[:MOST_NAMES])
    return f"{text} and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else text or "no file"


def check_model_type(config: Mapping[str, Any], folder: Path, family: str, expected: str | None = None) -> None:
    """Raise ModelError if config.json is of another model_type. expected: by default the family's name."""
    expected = expected or family
    if (kind := config.get("model_type")) != expected:
        problem = f"{folder / 'config.json'}: got model_type {kind!r}, expected {expected!r}"
        raise ModelError(of_other_family(problem, family))


def of_other_family(got: str, family: str) -> str:
    """Return the message for a config that is not the family's. got: what was found, and what was expected."""
    return f"{got}, so this is no {family} checkpoint; name the family that the checkpoint belongs to"


def check_files(folder: Path) -> None:
    """Raise ModelError if a checkpoint contains a pipe, a device, a broken link, or too large a text file.

    Packages open the files that they find next to the weights, and would read a pipe or a device for ever.
    """
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            continue
        try:
            check_regular(path, LARGEST_TEXT if path.suffix in TEXT_SUFFIXES else None)
        except OSError as error:
            raise broken_checkpoint(f"{path}: {error.strerror}") from error


@contextlib.contextmanager
def limit_parameters(folder: Path) -> Iterator[None]:
    """Limit the size of a network that is built while the context is open to that of the folder's weights.

    Raises ModelError if the network has far more numbers than the weight files have bytes, or if building or
    loading it fails. Without this limit, a config.json that asks for a billion layers would fill the memory.
    """
    from huggingface_hub.errors import StrictDataclassError
    from safetensors import SafetensorError
    from torch.nn.modules.module import register_module_parameter_registration_hook

    weights = sum(path.stat().st_size for path in weight_files(folder))
    most, n_parameters = 4 * weights + SPARE_PARAMETERS, 0

    def count(module: Any, name: str, parameter: Any) -> None:
        nonlocal n_parameters
        n_parameters += 0 if parameter is None else parameter.numel()
        if n_parameters > most:
            raise ModelError(
                f"{folder / 'config.json'}: asks for more than {most} numbers, but the weights have {weights} bytes; "
                "use the config that they were saved with"
            )

    handle = register_module_parameter_registration_hook(count)
    try:
        yield
    except (*PACKAGE_ERRORS, SafetensorError, StrictDataclassError) as error:
        # Packages print every value in full, over several lines.
        reason = f"{type(error).__name__}: {' '.join(str(error).split()):.300}"
        raise broken_checkpoint(f"{folder}: weights or config.json cannot be read ({reason})") from error
    finally:
        handle.remove()


def read_weights(folder: Path) -> dict[str, Any]:
    """Read all tensors of a folder's weight files, by name; packed matrices as float32.

    Raises ModelError if a file cannot be read.
    """
    from safetensors import SafetensorError

    tensors: dict[str, Any] = {}
    for path in weight_files(folder):
        try:
            tensors |= read_file(path)
        except (SafetensorError, OSError) as error:
            raise broken_checkpoint(f"{path}: weights cannot be read ({type(error).__name__}: {error})") from error
    return tensors


def load_network(model_class: Any, folder: Path, device: str, *, only: str = "", **changes: Any) -> Any:
    """Return a network in float32 and eval mode, made from keys of config.json that we know and from our tensors.

    model_class: class of transformers or of a package that builds on it. The package reads no file of the folder.
    only: beginning of the names of the tensors that are read; others keep their random values. changes: entries that
    replace those of config.json.
    Raises ModelError if the weights cannot be read or do not fit config.json.
    """
    import torch

    known = known_keys(model_class.config_class)
    saved = read_config(folder, model_class.__name__)
    values = {key: value for key, value in saved.items() if key in known} | changes
    _check_values(values, folder / "config.json")
    tensors = {name: tensor for name, tensor in read_weights(folder).items() if name.startswith(only)}
    with limit_parameters(folder), _without_package_messages():
        config = model_class.config_class(**values)
        network, info = model_class.from_pretrained(
            None, config=config, state_dict=tensors, dtype=torch.float32, output_loading_info=True
        )
    missing = sorted(name for name in info["missing_keys"] if name.startswith(only))
    if missing or info["mismatched_keys"]:
        raise ModelError(
            f"{folder}: weights do not fit config.json: missing {missing[:5]}, of another shape "
            f"{sorted(map(str, info['mismatched_keys']))[:5]}; use the config that they were saved with"
        )
    if unread := info["unexpected_keys"]:
        logger.warning(
            "%s: %d tensors are not of this network and are not read: %s", folder, len(unread), _list_names(unread)
        )
    # Copied out of the memory-mapped file, and to an alignment that is always the same.
    for tensor in itertools.chain(network.parameters(), network.buffers()):
        tensor.data = tensor.data.clone()
    return network.to(device).eval()


@contextlib.contextmanager
def _without_package_messages() -> Iterator[None]:
    """Silence transformers' log messages, which contain texts of config.json and the names of all tensors.

    The names that matter are in our own messages, and control characters in them are escaped.
    """
    package = logging.getLogger("transformers")
    level = package.level
    package.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        package.setLevel(level)


def known_keys(config_class: Any) -> set[str]:
    """Return the keys of config.json that a config class of transformers declares for itself, and UNDECLARED_KEYS.

    Keys of every config are left out: some name files, code or kernels to load.
    """
    from transformers import PreTrainedConfig

    own, common = (inspect.signature(of.__init__).parameters for of in (config_class, PreTrainedConfig))
    return {*own, *config_class.attribute_map, *UNDECLARED_KEYS} - {*common, "kwargs", "attn_implementation"}


def _check_values(values: Mapping[str, Any], path: Path) -> None:
    """Raise ModelError, which names the key, for an object as a value where no config has one."""
    for key, value in values.items():
        parts = value if isinstance(value, list) else [value]
        if key not in OBJECT_KEYS and any(isinstance(part, dict) for part in parts):
            raise broken_checkpoint(f"{path}: {key}: got an object, expected a number or text")
        if isinstance(value, dict):
            _check_values({} if key == BLOCK else value, path)


def write_recipe(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write recipe.json last, after checksums that cover it too.

    A folder that contains recipe.json is therefore complete.
    """
    text = json.dumps(facts, indent=2) + "\n"
    write_sums(folder, {RECIPE: hashlib.sha256(text.encode()).hexdigest()})
    (folder / RECIPE).write_text(text, encoding="utf-8")


def write_sums(folder: Path, coming: Mapping[str, str] | None = None) -> None:
    """Write the checksums of all files of a folder.

    coming: name -> checksum of files that are written next.
    """
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != SUMS)
    sums = {path.relative_to(folder).as_posix(): file_sum(path) for path in paths} | dict(coming or {})
    (folder / SUMS).write_text("".join(f"{sums[name]}  {name}\n" for name in sorted(sums)), encoding="utf-8")


def verify_sums(folder: Path) -> None:
    """Raise ModelError unless all files of a checkpoint folder match their recorded checksums.

    Nothing is verified where nothing is recorded. The checksums of a snapshot are recorded in the folder of
    the checkpoint that it belongs to. A *.safetensors file without a recorded checksum is an error.
    """
    root = folder.parent.parent if folder.parent.name == SNAPSHOTS else folder
    if not os.path.lexists(root / SUMS):
        return
    recorded = _read_checksums(root / SUMS)
    for path in sorted(folder.rglob("*.safetensors")):
        if path.relative_to(root).as_posix() not in recorded:
            raise _make_damage_error(root / SUMS, f"a line for {path.relative_to(root)}", "none")
    for name, expected in recorded.items():
        path = root / name
        if not path.is_relative_to(folder):
            continue
        actual = file_sum(path) if path.is_file() else "no such file"
        if actual != expected:
            raise _make_damage_error(path, f"SHA-256 {expected}", actual)


def _read_checksums(path: Path) -> dict[str, str]:
    """Return name -> checksum of a checksum file; ModelError for a line that is not in sha256sum's format."""
    checksums = {}
    try:
        text = read_bytes(path, LARGEST_SUMS).decode(errors="replace")
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}; restore the folder, or delete this file") from error
    for line in text.splitlines():
        expected, separator, name = line.partition("  ")
        if not separator or not name or Path(name).is_absolute() or ".." in Path(name).parts:
            raise _make_damage_error(path, "lines of a SHA-256, two spaces and a file's name", repr(line[:80]))
        checksums[name] = expected
    return checksums


def _make_damage_error(path: Path, expected: str, actual: str) -> ModelError:
    return ModelError(
        f"{path}: damaged: expected {expected}, found {actual}; restore the folder (`git checkout` or `dvc checkout`), "
        f"or delete its {SUMS} where the change is meant"
    )
