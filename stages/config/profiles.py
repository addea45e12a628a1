"""Profiles: complete params files under params/, any of which can replace params.yaml."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from stages.config.params import PARAMS_FILE, ParamsError

FOLDER = Path("params")


def profile_file(name: str) -> Path:
    """Return the file of a profile. Raises ParamsError, with the names of all profiles, if there is none."""
    path = FOLDER / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in FOLDER.glob("*.yaml"))) or "none"
        raise ParamsError(f"no profile {name!r} in {FOLDER}; known: {known}")
    return path


def use_profile(name: str, *, force: bool = False) -> None:
    """Copy params/NAME.yaml over params.yaml.

    Raises ParamsError if there is no such profile, or if params.yaml has edits that would be lost. force:
    overwrite the edits.
    """
    profile, target = profile_file(name), Path(PARAMS_FILE)
    if not force and has_edits(target):
        raise ParamsError(
            f"{target} has edits that are neither in a profile nor in git's last commit; save them with "
            f"`cp {target} {FOLDER}/mine.yaml` and use `make profile NAME=mine` later, or discard them with "
            f"`make profile NAME={name} FORCE=1`"
        )
    shutil.copyfile(profile, target)


def has_edits(path: Path) -> bool:
    """Return whether a params file differs from every profile and from the version in git's last commit.

    Returns False if there is no such file.
    """
    if not path.exists():
        return False
    content = path.read_bytes()
    if any(profile.read_bytes() == content for profile in FOLDER.glob("*.yaml")):
        return False
    committed = subprocess.run(["git", "show", f"HEAD:./{path}"], capture_output=True, check=False)
    return committed.returncode != 0 or committed.stdout != content
