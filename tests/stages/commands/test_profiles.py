"""Changing the profile never loses edits of params.yaml unless asked to."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from stages.commands.runs import use_profile
from stages.config.params import ParamsError


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two profiles and a committed params.yaml that equals neither."""
    (tmp_path / "params").mkdir()
    (tmp_path / "params" / "smoke.yaml").write_text("profile: smoke\n")
    (tmp_path / "params" / "paper.yaml").write_text("profile: paper\n")
    (tmp_path / "params.yaml").write_text("profile: default\n")
    commit = ["-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "first"]
    for command in (["init", "-q"], ["add", "."], commit):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "params.yaml"


def test_profiles_replace_the_committed_file_and_each_other(workspace: Path) -> None:
    for name in ("smoke", "paper", "smoke"):
        use_profile(name)
        assert workspace.read_text() == f"profile: {name}\n"


def test_edits_are_kept_unless_they_are_given_up(workspace: Path) -> None:
    edited = "profile: default\n# mine\n"
    workspace.write_text(edited)
    with pytest.raises(ParamsError, match=r"params\.yaml has edits .*cp params\.yaml params/mine\.yaml.*FORCE=1"):
        use_profile("smoke")
    assert workspace.read_text() == edited
    use_profile("smoke", force=True)
    assert workspace.read_text() == "profile: smoke\n"


def test_edits_that_are_kept_as_a_profile_may_be_replaced(workspace: Path) -> None:
    workspace.write_text("profile: mine\n")
    (workspace.parent / "params" / "mine.yaml").write_text("profile: mine\n")
    use_profile("smoke")
    use_profile("mine")
    assert workspace.read_text() == "profile: mine\n"


def test_without_git_a_file_that_is_no_profile_counts_as_edited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "params").mkdir()
    (tmp_path / "params" / "smoke.yaml").write_text("profile: smoke\n")
    monkeypatch.chdir(tmp_path)
    use_profile("smoke")
    (tmp_path / "params.yaml").write_text("profile: other\n")
    with pytest.raises(ParamsError, match="has edits"):
        use_profile("smoke")


def test_an_unknown_profile_names_the_known_ones(workspace: Path) -> None:
    with pytest.raises(ParamsError, match="no profile 'smok' in params; known: paper, smoke"):
        use_profile("smok")
