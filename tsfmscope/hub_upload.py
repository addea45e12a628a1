"""Upload of a checkpoint folder to the model hub, as one commit."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tsfmscope.errors import HubError
from tsfmscope.hub import STATUSES
from tsfmscope.models.common.checkpoint_folder import check_inside, files_of_weights
from tsfmscope.models.common.checksums import RECIPE, SUMS

CARD = "README.md"
# Files that are uploaded next to the weights: those that this project and transformers write. Others may be pickles or
# the user's own.
NAMES = (
    *("config.json", "generation_config.json", "preprocessor_config.json"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "spiece.model"),
    *(RECIPE, "training.json", "training_run.json", SUMS, CARD),
    *("model.onnx", "model.onnx.data", "onnx.json"),
)
HINTS = {
    "refused": "log in with a token that may write there (`hf auth login` or HF_TOKEN), and check the name",
    "missing": "check the name, and that the token may see the repository",
    "offline": "check the network and HF_ENDPOINT",
    "other": "check HF_ENDPOINT, and try again",
}


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
        hint = HINTS[STATUSES.get(status, "other")]
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
