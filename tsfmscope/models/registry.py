"""Registry of families by name and of checkpoints by reference; heavy packages are imported late.

Other packages add families through entry points.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import importlib
import importlib.util
import inspect
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsfmscope import hub
from tsfmscope.defaults import PRECISION, PRECISIONS
from tsfmscope.errors import HubError, ModelError, StaleInputError
from tsfmscope.extras import describe_missing
from tsfmscope.files import file_sum, open_regular
from tsfmscope.models.common import checkpoint_folder, lora
from tsfmscope.models.common.checkpoint_folder import PICKLED, SNAPSHOTS, broken_checkpoint, weight_files
from tsfmscope.models.common.low_bits import read_shapes

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from tsfmscope.models.base import Family

FAMILIES = {
    "chronos-t5": "tsfmscope.models.chronos:ChronosT5",
    "chronos-bolt": "tsfmscope.models.chronos:ChronosBolt",
    "chronos-2": "tsfmscope.models.chronos_2:Chronos2",
    "flowstate": "tsfmscope.models.flowstate:FlowState",
    "lag-llama": "tsfmscope.models.lag_llama:LagLlama",
    "moirai": "tsfmscope.models.moirai:Moirai",
    "moirai-2": "tsfmscope.models.moirai_2:Moirai2",
    "moment": "tsfmscope.models.moment:Moment",
    "patchtst": "tsfmscope.models.patchtst:PatchTST",
    "patchtst-fm": "tsfmscope.models.patchtst_fm:PatchTSTFM",
    "totem": "tsfmscope.models.totem:Totem",
    "wavetoken": "tsfmscope.models.wavetoken:WaveToken",
    "t5-text": "tsfmscope.models.t5:T5Text",
    "tabular": "tsfmscope.models.tabular:Tabular",
    "vit": "tsfmscope.models.vit:ViT",
    "timesfm": "tsfmscope.models.timesfm:TimesFM",
    "timesfm-2.5": "tsfmscope.models.timesfm:TimesFM25",
    "time-moe": "tsfmscope.models.time_moe:TimeMoE",
    "toto-2": "tsfmscope.models.toto_2:Toto2",
    "ttm": "tsfmscope.models.ttm:TTM",
    "visionts": "tsfmscope.models.visionts:VisionTS",
}
# Tokenizers of text and settings of image preprocessing.
READERS = ("tokenizer.json", "spiece.model", "tokenizer_config.json", "preprocessor_config.json")
# Bytes of a model card that are read to find its license.
LARGEST_CARD = 2**16
# Model card. It is requested from the hub too, and no fingerprint covers it.
CARD = "README.md"
# Files that are requested from the hub. Which of its safetensors are read is known only when they are here.
CHECKPOINT_FILES = ("config.json", "*.safetensors", checkpoint_folder.INDEX, PICKLED, *READERS)
# Group of entry points in a package's metadata; each entry is NAME = "module:Class".
GROUP = "tsfmscope.families"


@dataclass(frozen=True)
class ResolvedRef:
    """Checkpoint folder that a reference was resolved to.

    fingerprint: SHA-256 of its files. source: folder or hub. revision: the hub's commit.
    base: folder of the base model, where `folder` contains a LoRA adapter.
    """

    folder: Path
    fingerprint: str
    source: str
    revision: str | None = None
    base: Path | None = None

    def pin(self, reference: str) -> str:
        """Return a reference that always means these files: one of the hub gets the hub's commit.

        A reference to a folder is returned as it is.
        """
        if self.source != "hub":
            return reference
        adapter, base = split_base(reference)
        pinned = f"{hub.PREFIX}{adapter.removeprefix(hub.PREFIX).partition('@')[0]}@{self.revision}"
        return f"{pinned}+{base}" if base else pinned


def families() -> dict[str, str]:
    """Return name -> "module:Class" of built-in families and of installed packages; imports none of them."""
    return {name: claims[0].value for name, claims in plugin_entries().items()} | FAMILIES


def check_name(name: str) -> None:
    """Raise ValueError, with near names and the list, for an unknown family; imports no family."""
    if name not in FAMILIES and name not in (known := families()):
        near = difflib.get_close_matches(name, known, n=2)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        raise ValueError(f"unknown family {name!r}; {hint}known: {', '.join(sorted(known))}")


def family_class(name: str) -> type[Family]:
    """Return the class of a family.

    ValueError, with near names and the list, where the name is unknown. ModelError where a package is
    missing, which names what to install. ModelError where a family of another package cannot be used, which
    names the package and the fix.
    """
    check_name(name)
    entry = plugin_of(name)
    try:
        if entry is not None:
            return _load_plugin_class(entry)
        module, _, attribute = FAMILIES[name].partition(":")
        result: type[Family] = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        owner = describe_plugin(entry) if entry else f"family {name} ({FAMILIES[name]})"
        raise ModelError(f"{owner}: {describe_missing(error)}") from error
    return result


def check_packages(name: str) -> None:
    """Raise ModelError, naming what to install, where a package that a family imports late is missing.

    Only built-in families are checked.
    """
    for package in family_class(name).requires if name in FAMILIES else ():
        if importlib.util.find_spec(package) is None:
            missing = ModuleNotFoundError(f"No module named {package!r}", name=package)
            raise ModelError(f"family {name}: {describe_missing(missing)}")


def code_of(family: str) -> str | None:
    """Return name, version and SHA-256 of the package that adds a family.

    For a built-in family, return its `revision`. ValueError for an unknown family.
    """
    check_name(family)
    entry = plugin_of(family)
    return plugin_code(entry) if entry else family_class(family).revision


def with_code(family: str, fingerprint: str) -> str:
    """Return a checkpoint's fingerprint combined with the code that reads it; jobs of the model depend on it.

    Code of built-in families is covered by the versions of the Tasks, or by the family's `revision` where its
    results alone have changed. Code of other packages enters the digest, so that no job reuses
    a row of older code.
    """
    code = code_of(family)
    return fingerprint if code is None else hashlib.sha256(f"{fingerprint}\n{code}".encode()).hexdigest()


def _load_plugin_class(entry: EntryPoint) -> type[Family]:
    """Return the class of an entry point.

    ModelError, naming the package and the fix, where its module does not import or the class is not a usable
    Family. A ModuleNotFoundError is passed on.
    """
    owner = describe_plugin(entry)
    try:
        module = importlib.import_module(entry.module)
    except ModuleNotFoundError:
        raise
    except Exception as error:
        raise ModelError(
            f"{owner}: does not import ({type(error).__name__}: {error}); fix or update that package, or uninstall it"
        ) from error
    from tsfmscope.models.base import Family

    result = getattr(module, entry.attr, None)
    if result is None:
        raise ModelError(f"{owner}: module {entry.module} has no class {entry.attr!r}; fix its entry point")
    if not (isinstance(result, type) and issubclass(result, Family)):
        raise ModelError(f"{owner}: is no subclass of tsfmscope.models.base.Family; fix that package")
    if PRECISION in inspect.signature(result.load).parameters:
        raise ModelError(f"{owner}: its load takes {PRECISION!r}, an option of every family; give it another name")
    if missing := sorted(getattr(result, "__abstractmethods__", ())):
        raise ModelError(f"{owner}: lacks {', '.join(missing)}; write them (docs/plugins.md)")
    return result


def resolve(reference: str, *, allow_hub: bool = False, cache: Path | None = None) -> ResolvedRef:
    """Return the checkpoint folder of a reference.

    reference: path of an existing folder, "hub:ORG/NAME[@REVISION]" or "ORG/NAME[@REVISION]". ADAPTER+BASE: a LoRA
    adapter and its base model, which may be left out where the adapter names it (`lora.base_of`). ModelError
    where the folder does not exist, contains no checkpoint, or has files that differ from the recorded
    checksums (tsfmscope/models/common/checkpoint_folder.py). HubError where the hub is needed but not allowed, or the
    download fails.
    """
    reference, base = split_base(reference)
    folder, revision = _locate(reference, allow_hub, cache)
    source = "folder" if revision is None else "hub"
    if not checkpoint_folder.is_adapter(folder):
        if base:
            raise ModelError(f"{reference}: got a whole model before +, expected a LoRA adapter; leave +{base} out")
        return ResolvedRef(folder, fingerprint(folder), source, revision)
    try:
        whole, _ = _locate(base or lora.base_of(folder), allow_hub, cache)
    except HubError as error:
        raise type(error)(f"{folder}: base model of a LoRA adapter: {error}: ADAPTER+FOLDER") from error
    return ResolvedRef(folder, fingerprint(whole, folder), source, revision, whole)


def split_base(reference: str) -> tuple[str, str]:
    """Return both parts of ADAPTER+BASE; the second is "" for another reference, also for a folder named with a +."""
    adapter, _, base = reference.partition("+")
    return (reference, "") if os.path.isdir(os.path.expanduser(reference)) else (adapter, base)


def _locate(reference: str, allow_hub: bool, cache: Path | None) -> tuple[Path, str | None]:
    """Return the folder of a reference without a base model, and the hub's commit, which is None for a folder."""
    # Unlike methods of Path, these do not fail for the home of an unknown user and for a name that is too long.
    folder = Path(os.path.expanduser(reference))
    if not reference.startswith(hub.PREFIX) and os.path.isdir(folder):
        checkpoint_folder.verify_sums(folder)
        return folder, None
    check_reference(reference)
    try:
        return hub.download(
            reference, CHECKPOINT_FILES, also=(CARD, checkpoint_folder.ADAPTER), allowed=allow_hub, cache=cache
        )
    except HubError as error:
        raise type(error)(
            str(error) if reference.startswith(hub.PREFIX) else f"no folder {reference} here; {error}"
        ) from error


def check_reference(reference: str) -> None:
    """Raise ModelError unless a reference is a folder or has the form of a hub reference.

    The hub is not contacted. ORG/NAME without the prefix means a folder where ORG is a folder. In ADAPTER+BASE, both
    parts are checked.
    """
    reference, base = split_base(reference)
    if base:
        check_reference(base)
    if not reference.startswith(hub.PREFIX):
        folder = Path(os.path.expanduser(reference))
        if os.path.isdir(folder) or (hub.looks_like_hub(reference) and not os.path.isdir(folder.parent)):
            return
    elif hub.looks_like_hub(reference):
        return
    file = Path(os.path.expanduser(reference))
    if os.path.isfile(file):
        rename = f", where it must have the name {PICKLED}" if file.suffix == ".ckpt" and file.name != PICKLED else ""
        raise ModelError(f"{reference}: got a file, expected a folder; name the folder that contains it{rename}")
    raise ModelError(f"{reference}: no such folder, nor of the form hub:ORG/NAME[@REVISION]; fix the reference")


def fingerprint(folder: Path, adapter: Path | None = None) -> str:
    """Return the SHA-256 over names and contents of the files that are read of a checkpoint.

    adapter: folder of a LoRA adapter that is merged into it. Files are taken in the order of their names.
    ModelError where there are no weights, or where a file cannot be read.
    """
    files = checkpoint_folder.files_of_weights(folder)
    files += [folder / name for name in ("config.json", *READERS) if (folder / name).exists()]
    files += lora.files_of(adapter) if adapter else []
    digest = hashlib.sha256()
    for path in sorted(files, key=lambda path: path.name):
        try:
            digest.update(f"{path.name}\0{file_sum(path)}\n".encode())
        except OSError as error:
            raise broken_checkpoint(f"{path}: {error.strerror}") from error
    return digest.hexdigest()


def snapshots(folder: Path) -> dict[int, Path]:
    """Return step -> folder of a pretrained checkpoint's snapshots, ascending; step 0 has the initial weights."""
    result = {int(path.name.removeprefix("step-")): path for path in Path(folder, SNAPSHOTS).glob("step-*")}
    return dict(sorted(result.items()))


def facts(folder: Path) -> dict[str, Any]:
    """Return columns of `checkpoints` that the files determine: parameters, bytes and license (or None).

    Tied parameters are stored, and counted, once. ModelError where a file is not a safetensors file.
    """
    from safetensors import SafetensorError

    parameters = 0
    files = weight_files(folder)
    for path in files:
        if path.name == PICKLED:
            from tsfmscope.models.lag_llama import read_lightning

            parameters = sum(tensor.numel() for tensor in read_lightning(path)[0].values())
            continue
        try:
            parameters += sum(map(math.prod, read_shapes(path).values()))
        except (SafetensorError, OSError) as error:
            raise broken_checkpoint(f"{path}: not a safetensors file ({error})") from error
    size = sum(path.stat().st_size for path in files)
    return {"parameters": parameters, "bytes": size, "license": license_of_card(folder)}


def license_of_card(folder: Path) -> str | None:
    """Return the value of `license:` in the header of a model card, or None.

    The value `other` is replaced by that of `license_name:`, if there is one.
    """
    card = folder / CARD
    if not card.is_file():
        return None
    with open_regular(card) as file:
        text = file.read(LARGEST_CARD).decode("utf-8", errors="replace")
    header = re.match(r"---\r?\n(.*?)^---\s*$", text, re.DOTALL | re.MULTILINE)
    lines = re.findall(r"^(license|license_name):[ \t]*(\S+)[ \t]*\r?$", header[1] if header else "", re.MULTILINE)
    values = {key: value.strip("'\"") for key, value in lines}
    name = values.get("license")
    return values.get("license_name", name) if name == "other" else name


def load_planned(
    family: str, ref: str, *, planned: str | None, device: str = "cpu", options: Mapping[str, Any]
) -> Family:
    """Load the model that a reference names, if it is the one that was planned.

    planned: fingerprint that `with_code` returned when the job was planned; None for any. options: as in
    `load`. StaleInputError where the fingerprint is another one.
    """
    checkpoint = resolve(ref, allow_hub=True)
    now = with_code(family, checkpoint.fingerprint)
    if planned is not None and planned != now:
        raise StaleInputError(
            f"model {ref}: planned with {planned[:12]}, its files and code are now {now[:12]}; run the stage again"
        )
    return load(family, checkpoint.folder, base=checkpoint.base, device=device, options=options)


def load(
    family: str, folder: Path, *, base: Path | None = None, device: str = "cpu", options: Mapping[str, Any]
) -> Family:
    """Load the model of a folder.

    base: folder of the base model, where `folder` contains a LoRA adapter, which is merged into it. options:
    keywords of the family's `load`, and PRECISION, which every family has. Raises what `family_class` and the
    family's `load` raise, and ValueError for an unknown precision.
    """
    try:
        model = family_class(family).load(base or folder, device=device, **stored_options(options))
    except ImportError as error:
        missing = describe_missing(error) if isinstance(error, ModuleNotFoundError) else str(error)
        raise ModelError(f"{folder}: {missing}") from error
    if base is not None:
        lora.merge(model.network, folder)
    if PRECISION in options:
        from tsfmscope.models.common.layers import run_in

        run_in(model.network, options[PRECISION])
    return model


def stored_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a model that is to be changed and saved: all but PRECISION."""
    return {name: value for name, value in options.items() if name != PRECISION}


def check_options(family: str, options: Mapping[str, Any], location: str) -> None:
    """Raise ModelError, naming `location`, for an option that `load` does not take or an unknown precision."""
    parameters = inspect.signature(family_class(family).load).parameters
    known = sorted(
        name for name, parameter in parameters.items() if parameter.kind is parameter.KEYWORD_ONLY and name != "device"
    )
    if unknown := sorted(set(options) - {*known, PRECISION}):
        raise ModelError(f"{location}: got {unknown}; family {family} takes {', '.join([*known, PRECISION])}")
    if (precision := options.get(PRECISION, PRECISIONS[0])) not in PRECISIONS:
        raise ModelError(f"{location}.{PRECISION}: got {precision!r}, expected one of {', '.join(PRECISIONS)}")


def family_of_release(reference: str) -> str | None:
    """Return the family of a released checkpoint, hub:ORG/NAME[@REVISION]; None for any other reference."""
    if not reference.startswith(hub.PREFIX):
        return None
    checkpoint = reference.removeprefix(hub.PREFIX).partition("@")[0]
    return next((name for name in FAMILIES if checkpoint in family_class(name).released.checkpoints), None)


@functools.cache
def plugin_entries() -> dict[str, tuple[EntryPoint, ...]]:
    """Return name -> the entry points of installed packages that have it.

    There is more than one where packages use the same name.
    """
    entries_by_name: dict[str, tuple[EntryPoint, ...]] = {}
    for entry in entry_points(group=GROUP):
        entries_by_name[entry.name] = (*entries_by_name.get(entry.name, ()), entry)
    return entries_by_name


def plugin_of(name: str) -> EntryPoint | None:
    """Return the entry point of another package's family, None where there is none.

    ModelError where two packages use the name, or where the family is built in too.
    """
    claims = plugin_entries().get(name, ())
    packages = " and ".join(map(package_of, claims))
    if claims and name in FAMILIES:
        raise ModelError(
            f"family {name}: package {packages} names a family of its own so, but it is built in; rename the entry "
            "point there, or uninstall the package"
        )
    if len(claims) > 1:
        raise ModelError(f"family {name}: packages {packages} both name a family so; uninstall one of them")
    return claims[0] if claims else None


def plugin_code(entry: EntryPoint) -> str:
    """Return NAME VERSION SHA256 of the package of an entry point; imports nothing.

    The digest covers the code files under the package's top-level module. ModelError where that module is
    missing.
    """
    top = entry.module.partition(".")[0]
    spec = importlib.util.find_spec(top)
    if spec is None:
        raise ModelError(f"{describe_plugin(entry)}: module {top!r} is missing; install that package again")
    suffixes, digest = (*SOURCE_SUFFIXES, *EXTENSION_SUFFIXES), hashlib.sha256()
    # A list: each folder of a namespace package may have a file of the same name.
    files = [(spec.name, Path(spec.origin or ""))] if spec.submodule_search_locations is None else []
    for folder in map(Path, spec.submodule_search_locations or ()):
        paths = (path for path in folder.rglob("*") if path.name.endswith(suffixes))
        files += [(path.relative_to(folder).as_posix(), path) for path in paths]
    for name, path in sorted(files):
        digest.update(f"{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return f"{package_of(entry)} {digest.hexdigest()}"


def plugin_codes() -> dict[str, list[str]]:
    """Return family name -> `plugin_code` of the packages that add it, or why it cannot be read."""
    codes_by_name: dict[str, list[str]] = {}
    for name, claims in plugin_entries().items():
        for entry in claims:
            try:
                codes_by_name.setdefault(name, []).append(plugin_code(entry))
            except ModelError as error:
                codes_by_name.setdefault(name, []).append(str(error))
    return codes_by_name


def describe_plugin(entry: EntryPoint) -> str:
    """Return family, package and class, as the beginning of an error message."""
    return f"family {entry.name} of package {package_of(entry)} ({entry.value})"


def package_of(entry: EntryPoint) -> str:
    """Return the name and version of the package of an entry point."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "without a name"


def family_of_folder(folder: Path) -> str | None:
    """Return the family that the config.json of a folder shows; None if there is no such file or no match.

    Raises ModelError if the file is not a JSON object, and for a LoRA adapter.
    """
    checkpoint_folder.check_adapter(folder)
    path = folder / "config.json"
    if not path.is_file():
        checkpoint_folder.check_nested(folder)
        return None
    return family_of_config(checkpoint_folder.read_object(path, checkpoint_folder.LARGEST_CONFIG))


def family_of_config(config: Mapping[str, Any]) -> str | None:
    """Return the family of a checkpoint with this config.json; None if it is not recognised.

    A config names a class of the family under `architectures` or `chronos_pipeline_class`, or has the family's name as
    its `model_type`, or has keys that only configs of one family have. Training scripts write no class, or that of T5,
    for every Chronos model.
    """
    classes = {name: family_class(name) for name in FAMILIES}
    named = config.get("architectures")
    named = [*(named if isinstance(named, list) else ()), config.get("chronos_pipeline_class")]
    for name, cls in classes.items():
        if any(architecture in named for architecture in cls.architectures):
            return name
    if (kind := str(config.get("model_type"))) in families():
        return kind
    for name, cls in classes.items():
        has_own = bool(cls.config_keys) and all(_has(config, key) for key in cls.config_keys)
        if has_own and not any(_has(config, key) for key in cls.foreign_keys):
            return name
    return None


def _has(config: Mapping[str, Any], key: str) -> bool:
    """Return whether a config has a key, or a block that has it for a key "block.key"."""
    block, _, inner = key.rpartition(".")
    part = config.get(block) if block else config
    return isinstance(part, Mapping) and inner in part
