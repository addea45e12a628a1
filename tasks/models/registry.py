"""Families by name and checkpoints by reference; nothing heavy is imported before it is asked for."""

from __future__ import annotations

import difflib
import hashlib
import importlib
import importlib.util
import inspect
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.errors import HubError, ModelError, StaleInputError
from tasks.models import hub, plugins
from tasks.sweep.jobs import place

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from tasks.models.base import Family
    from tasks.sweep.jobs import Job

FAMILIES = {
    "chronos-t5": "tasks.models.chronos_t5:ChronosT5",
    "chronos-bolt": "tasks.models.chronos_bolt:ChronosBolt",
    "chronos-2": "tasks.models.chronos_2:Chronos2",
    "lag-llama": "tasks.models.lag_llama:LagLlama",
    "moirai": "tasks.models.moirai:Moirai",
    "patchtst": "tasks.models.patchtst:PatchTST",
    "totem": "tasks.models.totem:Totem",
    "wavetoken": "tasks.models.wavetoken:WaveToken",
    "t5-text": "tasks.models.t5_text:T5Text",
    "tabular": "tasks.models.tabular:Tabular",
    "vit": "tasks.models.vit:ViT",
    "timesfm": "tasks.models.timesfm:TimesFM",
    "timesfm-2.5": "tasks.models.timesfm:TimesFM25",
    "time-moe": "tasks.models.time_moe:TimeMoE",
    "visionts": "tasks.models.visionts:VisionTS",
}
PRECISION = "precision"  # option of a model of any family: how its Linears multiply
PRECISIONS = ("float32", "bfloat16")
EXTRAS = {"uni2ts": "moirai"}  # package -> extra of this project that installs what it needs
PACKAGES = {"moirai": ("uni2ts",)}  # family -> what it imports that this project does not depend on
SNAPSHOTS = "snapshots"  # folder of a checkpoint with weights that its training kept, a checkpoint each
PICKLED = "lag-llama.ckpt"  # the one pickled file that is read, weights only: Lag-Llama was released in no other form
READERS = ("tokenizer.json", "spiece.model", "tokenizer_config.json", "preprocessor_config.json")  # of text and images
CHECKPOINT_FILES = (
    "config.json",
    "*.safetensors",
    PICKLED,
    *READERS,
)  # what a fingerprint covers, the hub is asked for


@dataclass(frozen=True)
class ResolvedRef:
    """A checkpoint at hand. fingerprint: SHA-256 of its files; source: folder or hub; revision: the hub's commit."""

    folder: Path
    fingerprint: str
    source: str
    revision: str | None = None

    def pinned(self, reference: str) -> str:
        """The reference that it was resolved from, with the hub's commit where it is of the hub: always these files."""
        if self.source != "hub":
            return reference
        return f"{hub.PREFIX}{reference.removeprefix(hub.PREFIX).partition('@')[0]}@{self.revision}"


def families() -> dict[str, str]:
    """Name -> "module:Class", ours and those of installed packages, of which nothing is imported."""
    return {name: claims[0].value for name, claims in plugins.entries().items()} | FAMILIES


def check_name(name: str) -> None:
    """ValueError with near names and the list where no family has the name; imports no family."""
    if name not in FAMILIES and name not in (known := families()):
        near = difflib.get_close_matches(name, known, n=2)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        raise ValueError(f"unknown family {name!r}; {hint}known: {', '.join(sorted(known))}")


def family_class(name: str) -> type[Family]:
    """The class of a family.

    ValueError with near names and the list where the name is unknown; ModelError naming what to install where a
    package is missing, and naming the package and the mend where what another package adds cannot be used.
    """
    check_name(name)
    entry = plugins.entry_of(name, FAMILIES)
    try:
        if entry is not None:
            return _theirs(entry)
        module, _, attribute = FAMILIES[name].partition(":")
        found: type[Family] = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        whose = plugins.described(entry) if entry else f"family {name} ({FAMILIES[name]})"
        raise ModelError(f"{whose}: {missing_package(error)}") from error
    return found


def check_packages(name: str) -> None:
    """Raise ModelError naming what to install where a package that a family of ours imports late is missing."""
    for package in PACKAGES.get(name, ()):
        if importlib.util.find_spec(package) is None:
            missing = ModuleNotFoundError(f"No module named {package!r}", name=package)
            raise ModelError(f"family {name}: {missing_package(missing)}")


def code_of(family: str) -> str | None:
    """Name, version and SHA-256 of the package whose code a family is; None of ours. ValueError for an unknown one."""
    check_name(family)
    entry = plugins.entry_of(family, FAMILIES)
    return plugins.code(entry) if entry else None


def with_code(family: str, fingerprint: str, environment: str = "") -> str:
    """Fingerprint of a checkpoint's files with the code that reads them: what the jobs of a model depend on.

    Of ours that is the files' alone, since the version of a Task is held to our code. Other packages' code is taken in,
    so that no job takes a row of older code; and so is the digest of an environment that the model runs in.
    """
    for code in (code_of(family), environment or None):
        if code is not None:
            fingerprint = hashlib.sha256(f"{fingerprint}\n{code}".encode()).hexdigest()
    return fingerprint


def _theirs(entry: EntryPoint) -> type[Family]:
    """The class of an entry point.

    ModelError naming the package and the mend where its module does not import, or the class is no usable Family; a
    ModuleNotFoundError passes.
    """
    whose = plugins.described(entry)
    try:
        module = importlib.import_module(entry.module)
    except ModuleNotFoundError:
        raise
    except Exception as error:
        raise ModelError(
            f"{whose}: does not import ({type(error).__name__}: {error}); mend or update that package, or uninstall it"
        ) from error
    from tasks.models.base import Family

    found = getattr(module, entry.attr, None)
    if found is None:
        raise ModelError(f"{whose}: module {entry.module} has no class {entry.attr!r}; mend its entry point")
    if not (isinstance(found, type) and issubclass(found, Family)):
        raise ModelError(f"{whose}: is no subclass of tasks.models.base.Family; mend that package")
    if PRECISION in inspect.signature(found.load).parameters:
        raise ModelError(f"{whose}: its load takes {PRECISION!r}, an option of every family; give it another name")
    if lacking := sorted(getattr(found, "__abstractmethods__", ())):
        raise ModelError(f"{whose}: lacks {', '.join(lacking)}; write them (docs/plugins.md)")
    return found


def missing_package(error: ModuleNotFoundError) -> str:
    """What to install for a module that is not there."""
    package = (error.name or "").partition(".")[0]
    extra = EXTRAS.get(package)
    # without its dependencies: what uni2ts declares conflicts with today's torch and numpy
    what = (
        f"it with `pip install 'tsfm-lens[{extra}]'`, then `pip install --no-deps {package}` (docs/install.md)"
        if extra
        else f"the package that holds {package!r}"
    )
    return f"module {error.name!r} is missing; install {what}"


def resolve(reference: str, *, allow_hub: bool = False, cache: Path | None = None) -> ResolvedRef:
    """The folder of a reference: an existing folder's path, "hub:ORG/NAME[@REVISION]" or "ORG/NAME[@REVISION]".

    ModelError where the folder is not there or holds no checkpoint, HubError where the hub is needed but not allowed,
    or does not deliver.
    """
    folder = Path(reference).expanduser()
    if not reference.startswith(hub.PREFIX) and folder.is_dir():
        return ResolvedRef(folder, fingerprint(folder), "folder")
    check_reference(reference)
    try:
        folder, revision = hub.download(reference, CHECKPOINT_FILES, allowed=allow_hub, cache=cache)
    except HubError as error:
        raise HubError(
            str(error) if reference.startswith(hub.PREFIX) else f"no folder {reference} here; {error}"
        ) from error
    return ResolvedRef(folder, fingerprint(folder), "hub", revision)


def check_reference(reference: str) -> None:
    """Raises ModelError where a reference is neither a folder here nor may be the hub's; asks no hub.

    ORG/NAME without the prefix is a folder's where ORG is a folder here.
    """
    if not reference.startswith(hub.PREFIX):
        folder = Path(reference).expanduser()
        if folder.is_dir() or (hub.looks_like_hub(reference) and not folder.parent.is_dir()):
            return
    elif hub.looks_like_hub(reference):
        return
    raise ModelError(f"{reference}: no such folder, nor of the form hub:ORG/NAME[@REVISION]; mend the reference")


def fingerprint(folder: Path) -> str:
    """SHA-256 over names and bytes of a checkpoint's files (CHECKPOINT_FILES), in the order of their names."""
    files = sorted({path for pattern in CHECKPOINT_FILES for path in folder.glob(pattern)})
    if not files:
        raise ModelError(f"{folder}: holds neither config.json nor *.safetensors nor {PICKLED}; not a checkpoint")
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as stream:
            digest.update(f"{path.name}\0{hashlib.file_digest(stream, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()


def snapshots(folder: Path) -> dict[int, Path]:
    """Step -> the folder with the weights after it, ascending, of a pretrained checkpoint; step 0: the initial ones."""
    found = {int(path.name.removeprefix("step-")): path for path in Path(folder, SNAPSHOTS).glob("step-*")}
    return dict(sorted(found.items()))


def facts(folder: Path) -> dict[str, Any]:
    """Columns of `checkpoints` that the files tell: parameters (stored once where tied), bytes, license (or None)."""
    from safetensors import SafetensorError, safe_open

    parameters = 0
    files = sorted(folder.glob("*.safetensors"))
    for path in files:
        try:
            with safe_open(path, "numpy") as tensors:
                parameters += sum(math.prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise ModelError(f"{path}: not a safetensors file ({error}); fetch or save the checkpoint again") from error
    if not files and (folder / PICKLED).is_file():
        from tasks.models.lag_llama_checkpoint import read_lightning

        files = [folder / PICKLED]
        parameters = sum(tensor.numel() for tensor in read_lightning(files[0])[0].values())
    return {"parameters": parameters, "bytes": sum(path.stat().st_size for path in files), "license": _license(folder)}


def _license(folder: Path) -> str | None:
    """The `license:` line that opens a model card, where there is one."""
    card = folder / "README.md"
    found = re.match(r"---\n(?:.*\n)*?license:\s*(\S+)\s*\n", card.read_text()) if card.is_file() else None
    return found[1].strip("'\"") if found else None


def load_for_job(job: Job) -> Any:
    """The model of a job, spec["family"] from spec["ref"], on the actor's device.

    Raises StaleInputError where the checkpoint is not the one that was planned with.
    """
    ref = job.spec["ref"]
    found = resolve(ref, allow_hub=True)
    planned = job.inputs.get(f"model:{ref}")
    now = with_code(job.spec["family"], found.fingerprint, place().environment)
    if planned is not None and planned != now:
        raise StaleInputError(
            f"model {ref}: planned with {planned[:12]}, its files and packages are now {now[:12]}; run the stage again"
        )
    return load(job.spec["family"], found.folder, device=place().device, options=job.spec.get("options", {}))


def load(family: str, folder: Path, *, device: str = "cpu", options: Mapping[str, Any]) -> Family:
    """The model of a folder, read as the options say: keywords of the family's `load`, and any family's PRECISION.

    Raises what `family_class` and the family's `load` do, ValueError for another precision.
    """
    model = family_class(family).load(folder, device=device, **stored(options))
    if PRECISION in options:
        from tasks.models.precision import run_in

        run_in(model.network, options[PRECISION])
    return model


def stored(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a model that is to be changed and saved: all but how it runs."""
    return {name: value for name, value in options.items() if name != PRECISION}


def check_options(family: str, options: Mapping[str, Any], where: str) -> None:
    """Raises ModelError, naming `where`, for an option that `load` does not take, or another precision."""
    taken = inspect.signature(family_class(family).load).parameters
    known = sorted(name for name, one in taken.items() if one.kind is one.KEYWORD_ONLY and name != "device")
    if unknown := sorted(set(options) - {*known, PRECISION}):
        raise ModelError(f"{where}: got {unknown}; family {family} takes {', '.join([*known, PRECISION])}")
    if (asked := options.get(PRECISION, PRECISIONS[0])) not in PRECISIONS:
        raise ModelError(f"{where}.{PRECISION}: got {asked!r}, expected one of {', '.join(PRECISIONS)}")
