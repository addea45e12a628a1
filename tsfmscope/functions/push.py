"""`push`: a checkpoint folder, uploaded to the model hub with a model card."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tsfmscope import hub
from tsfmscope.compression.onnx_forecaster import DESCRIPTION, MODEL
from tsfmscope.compression.record import base_model, without_paths
from tsfmscope.errors import ArgumentError, HubError, ModelError
from tsfmscope.files import file_sum, read_text
from tsfmscope.models import registry
from tsfmscope.models.cards import LARGEST_RECIPE, license_of, loading_code, make_card, make_table
from tsfmscope.models.common.checkpoint_folder import (
    INDEX,
    PICKLED,
    RECIPE,
    SUMS,
    check_inside,
    files_of_weights,
    verify_sums,
    weight_files,
)
from tsfmscope.models.registry import family_of_folder

logger = logging.getLogger("tsfmscope")

# Documents that are uploaded as they are: names of tensors and words of a vocabulary may look like paths.
WITHOUT_PATHS = (INDEX, "tokenizer.json")
UNKNOWN_LICENSE = "not known; it is that of the base model"

# How to load an ONNX model, in its card.
LOAD_ONNX = Path(__file__).with_name("load_onnx.md")
CARD = "README.md"
# Files that are uploaded next to the weights: those that this project and transformers write. Others may be pickles or
# the user's own.
NAMES = (
    *("config.json", "generation_config.json", "preprocessor_config.json"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "spiece.model"),
    *(RECIPE, "training.json", "training_run.json", SUMS, CARD),
    *(MODEL, f"{MODEL}.data", DESCRIPTION),
)
HINTS = {
    "refused": "log in with a token that may write there (`hf auth login` or HF_TOKEN), and check the name",
    "missing": "check the name, and that the token may see the repository",
    "offline": "check the network and HF_ENDPOINT",
    "other": "check HF_ENDPOINT, and try again",
}


@dataclass(frozen=True)
class Facts:
    """Facts of a checkpoint folder that its card states; None for what is not known.

    base_model: hub:ORG/NAME, or a name that only its owner knows. description: contents of onnx.json.
    """

    family: str
    kind: str
    base_model: str | None
    method: str | None
    parameters: int | None
    bytes: int
    license: str | None
    description: dict[str, Any] | None


def push(folder: str | Path, name: str, *, public: bool = False) -> Uploaded:
    """Upload a checkpoint folder to the model hub.

    The folder is one that `compress` or `export` wrote. The files of the model are uploaded in one commit without paths
    of this machine; other files stay here. A model card is written where neither the folder nor the repository has
    one. HF_TOKEN and HF_ENDPOINT are read, as by the hub's own tools.

    Args:
        folder: folder of a checkpoint, compressed or not, or of an ONNX model.
        name: repository of the hub, ORG/NAME; it is made if there is none.
        public: make a new repository public; without it, it is private.

    Returns:
        The address of the repository, the commit, and the files.

    Raises:
        ArgumentError: the name has another form, or the folder is no checkpoint. It is a ValueError.
        ModelError: files differ from their checksums, or a link leads out of the folder.
        HubError: the hub cannot be reached, or refuses.
    """
    folder = Path(folder)
    match = hub.REFERENCE.fullmatch(name)
    if match is None or match["name"] != name:
        raise ArgumentError(f"{name}: expected the repository's name, ORG/NAME")
    if not folder.is_dir():
        raise ArgumentError(f"{folder}: expected a folder of a checkpoint, found none; `tsfmscope compress` makes one")
    facts = read_facts(folder)
    # Bytes are uploaded instead of a file that has paths of this machine.
    files: dict[str, Path | bytes] = {}
    for path in list_files(folder, has_weights=facts.description is None):
        is_checked = path.suffix == ".json" and path.name not in WITHOUT_PATHS
        files[path.name] = (without_paths(path) if is_checked else None) or path
    sums = {
        file: hashlib.sha256(content).hexdigest() if isinstance(content, bytes) else file_sum(content)
        for file, content in files.items()
        if file not in (SUMS, CARD)
    }
    if SUMS in files:
        files[SUMS] = "".join(f"{digest}  {file}\n" for file, digest in sums.items()).encode()
    for file, content in files.items():
        size = len(content) if isinstance(content, bytes) else content.stat().st_size
        logger.warning(f"{size:>15,}  {file}", extra={"is_urgent": True})
    if left_out := sorted(path.name for path in folder.iterdir() if path.name not in files):
        logger.warning(f"not uploaded: {', '.join(left_out)}", extra={"is_urgent": True})
    return upload(files, name, card_text(name, facts, sums), public=public)


def read_facts(folder: Path) -> Facts:
    """Return the facts of a checkpoint folder. Raises ArgumentError if it is none, ModelError if it is damaged."""
    if (folder / MODEL).is_file() and (folder / DESCRIPTION).is_file():
        return _onnx_facts(folder)
    family = family_of_folder(folder)
    try:
        has_weights = weight_files(folder) != [folder / PICKLED]
    except ModelError as error:
        raise ArgumentError(str(error)) from error
    if not has_weights or not (folder / "config.json").is_file():
        raise ArgumentError(
            f"{folder}: expected config.json and weights as safetensors, or {MODEL} and {DESCRIPTION}; name a "
            "folder that `tsfmscope compress` or `tsfmscope export` wrote"
        )
    verify_sums(folder)
    found = registry.facts(folder)
    block = json.loads(read_text(folder / "config.json", LARGEST_RECIPE)).get("compression")
    return Facts(
        family=family or "not recognised", kind="compressed with tsfmscope" if block else "as a checkpoint",
        base_model=base_model(folder), method=_method(block), parameters=found["parameters"], bytes=found["bytes"],
        license=license_of(folder).name, description=None,
    )  # fmt: skip


def card_text(name: str, facts: Facts, sums: Mapping[str, str]) -> str:
    """Return the text of README.md: header, facts, how to load the model, and the files' checksums."""
    base = facts.base_model and facts.base_model.removeprefix(hub.PREFIX)
    is_on_hub = facts.base_model != base
    rows = {
        "family": f"`{facts.family}`", "base model": f"`{base}`" if base else "not recorded",
        "method": facts.method or "none; not compressed",
        "parameters": "not counted" if facts.parameters is None else f"{facts.parameters:,}",
        "bytes of the model": f"{facts.bytes:,}", "licence of the weights": facts.license or UNKNOWN_LICENSE,
    }  # fmt: skip
    checksums = make_table("file | SHA-256", ((f"`{file}`", f"`{digest}`") for file, digest in sums.items()))
    sections = {"Facts": make_table("fact | value", rows.items()), "Use": _usage(name, facts), "Checksums": checksums}
    is_onnx = facts.description is not None
    return make_card(
        name.partition("/")[2], f"A time-series forecasting model of the family `{facts.family}`, {facts.kind}.",
        sections, library_name="onnx" if is_onnx else "tsfmscope", license=facts.license,
        base_model=base.partition("@")[0] if base and is_on_hub else None, pipeline_tag="time-series-forecasting",
        tags=[facts.family, "tsfmscope", *(["onnx"] if is_onnx else [])],
    )  # fmt: skip


def _usage(name: str, facts: Facts) -> str:
    if facts.description is None:
        return loading_code("import tsfmscope as ts", f'ts.load("hub:{name}")')
    fed = {"context": "context", "frequency": "np.zeros(1, dtype=np.int64)"}
    inputs = ", ".join(f'"{one["name"]}": {fed[one["name"]]}' for one in facts.description["inputs"])
    shape = {key: facts.description[key] for key in ("context", "horizon")}
    # onnxruntime finds it next to the model.
    data = (
        f'hf_hub_download("{name}", "{MODEL}.data")\n' if f"{MODEL}.data" in facts.description.get("files", {}) else ""
    )
    return LOAD_ONNX.read_text("utf-8").format(
        name=name, data=data, inputs=f"{{{inputs}}}", levels=len(facts.description["levels"]), **shape
    )


def _onnx_facts(folder: Path) -> Facts:
    path = folder / DESCRIPTION
    try:
        description = json.loads(read_text(path, LARGEST_RECIPE))
        return Facts(
            family=description["family"], kind="as an ONNX model", base_model=description["base_model"],
            method=_method(description["compression"]), parameters=None,
            bytes=sum(part.stat().st_size for part in folder.glob(f"{MODEL}*")), license=description["license"],
            description=description,
        )  # fmt: skip
    except (ValueError, KeyError, TypeError) as error:
        raise ArgumentError(f"{path}: expected what `tsfmscope export --onnx` wrote ({error}); export again") from None


def _method(block: Any) -> str | None:
    """Return a compression method and its ranks as text; None for a model that is not compressed."""
    if not isinstance(block, dict) or not block:
        return None
    ranks = block.get("ranks")
    return f"{block.get('method', 'not recorded')}" + (f", ranks {json.dumps(ranks)}" if ranks else "")


@dataclass(frozen=True)
class Uploaded:
    """Commit that was made.

    files: names of the files of the folder's checkpoint, with the card. bytes: their size. wrote_card: whether the
    card is the one that was made here.
    """

    url: str
    commit: str
    files: tuple[str, ...]
    bytes: int
    wrote_card: bool


def list_files(folder: Path, *, has_weights: bool) -> list[Path]:
    """Return the files of a folder that are uploaded, in the order of their names; subfolders are left out.

    has_weights: whether the folder is a checkpoint, and not an ONNX model alone.
    Raises ModelError for a file that is not regular, and for a link that leads out of the folder.
    """
    paths = [folder / name for name in NAMES if os.path.lexists(folder / name)]
    for path in paths:
        check_inside(path)
    return sorted([*paths, *(files_of_weights(folder) if has_weights else ())])


def upload(files: Mapping[str, Path | bytes], name: str, card: str, *, public: bool) -> Uploaded:
    """Upload files to the repository ORG/NAME, which is made if there is none.

    files: by their names in the repository. card: text of README.md where neither the files nor the repository have
    one. public: whether a new repository is public; an existing one stays what it is.
    Raises HubError if there is no token, if the hub refuses or if it cannot be reached.
    """
    from huggingface_hub import CommitOperationAdd, HfApi, errors, get_token

    if get_token() is None:
        raise HubError(f"{name}: no token of the hub; log in with `hf auth login`, or set HF_TOKEN")
    # The library reads the variable only once, when it is imported.
    api = HfApi(os.environ.get("HF_ENDPOINT"))
    operations = [CommitOperationAdd(file, content) for file, content in files.items()]
    try:
        api.create_repo(name, private=not public, exist_ok=True)
        writes_card = CARD not in files and not api.file_exists(name, CARD)
        if writes_card:
            operations.append(CommitOperationAdd(CARD, card.encode()))
        made = api.create_commit(name, operations, commit_message="Upload with tsfmscope push")
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        hint = HINTS[hub.STATUSES.get(status, "other")]
        raise HubError(f"{name}: the hub answers with status {status}; {hint}") from error
    # The server may send anything, so that code of the library may fail in any way.
    except Exception as error:
        # The library hides the reason of a failed transfer behind an error of its own.
        requests = (errors.HTTPError, ConnectionError)
        cause = error if isinstance(error, requests) else error.__cause__ or error
        is_request = isinstance(cause, requests)
        detail = f"{type(cause).__name__}: {cause}".partition("\n")[0].rstrip(".")
        raise HubError(f"{name}: {detail}; {HINTS['offline' if is_request else 'other']}") from error
    names = tuple(sorted(operation.path_in_repo for operation in operations))
    size = sum(operation.upload_info.size for operation in operations)
    return Uploaded(f"{api.endpoint}/{name}", str(made.oid), names, size, writes_card)
