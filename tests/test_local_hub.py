"""The local hub with several repositories, read by huggingface_hub's own code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.local_hub import LocalHub, Repository, serving
from tsfmscope import hub
from tsfmscope.errors import MissingOnHubError


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalHub]:
    """Two repositories with files of the same names, one of a folder and one in memory."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "config.json").write_text('{"a": 1}')
    (folder / "model.safetensors").write_bytes(bytes(range(256)) * 20_000)
    with serving(LocalHub()) as found:
        monkeypatch.setenv("HF_ENDPOINT", found.endpoint)
        found.repositories["org/one"] = Repository.of_folder(folder)
        found.repositories["org/two"] = Repository({"config.json": b"{}", "model.safetensors": b"other"}, "a" * 40)
        yield found


@pytest.mark.parametrize("name", ["org/one", "org/two"])
def test_each_repository_has_its_own_files_and_commit(server: LocalHub, tmp_path: Path, name: str) -> None:
    folder, commit = hub.download(f"hub:{name}", ("config.json", "*.safetensors"), allowed=True, cache=tmp_path / "c")
    repository = server.repositories[name]
    expected = {file: c if isinstance(c, bytes) else c.read_bytes() for file, c in repository.files.items()}
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == expected
    assert commit == repository.commit


def test_a_repository_that_is_not_served_is_missing(server: LocalHub, tmp_path: Path) -> None:
    with pytest.raises(MissingOnHubError, match=r"hub:org/three: .*404.*check the name and the revision"):
        hub.download("hub:org/three", ("config.json",), allowed=True, cache=tmp_path / "c")


def test_another_file_of_a_folder_is_another_commit(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    before = Repository.of_folder(tmp_path).commit
    assert Repository.of_folder(tmp_path).commit == before
    (tmp_path / "config.json").write_text("{ }")
    assert Repository.of_folder(tmp_path).commit != before
