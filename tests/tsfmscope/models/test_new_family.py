"""A family is its module and one line of the registry: all that is known of it stands on its class."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import tsfmscope as ts
from tsfmscope.cli.app import app
from tsfmscope.models import registry
from tsfmscope.models.cards import license_of
from tsfmscope.models.registry import family_of_folder

EXAMPLE = Path(__file__).parents[3] / "docs" / "plugin" / "patch_line.py"
# Changes that make a family of the example whose config.json names a class, and not the family.
CHANGES = {
    "class PatchLine(": "class NewLine(",
    '"patch-line"': '"new-line"',
    '"model_type": self.name': '"architectures": ["NewLineForPrediction"]',
    "checkpoint_folder.check_model_type(config, folder, cls.name)": "",
    'del config["model_type"]': 'del config["architectures"]',
    "    network: Network\n": """    network: Network
    released = Released(("someone/new-line-small",), "mit", "a page")
    architectures = ("NewLineForPrediction",)
""",
    "from tsfmscope.models.base": """from tsfmscope.models.facts import Released
from tsfmscope.models.base""",
}


@pytest.fixture
def new_family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of a family whose module lies in a package of its own, with one line in the registry."""
    text = EXAMPLE.read_text()
    for old, new in CHANGES.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    (tmp_path / "added_families").mkdir()
    (tmp_path / "added_families" / "new_line.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(registry.FAMILIES, "new-line", "added_families.new_line:NewLine")
    return "new-line"


def test_a_module_and_a_line_of_the_registry_make_a_family(new_family: str, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    registry.family_class(new_family).new_example(seed=1).save(folder)
    assert family_of_folder(folder) == new_family
    release = "hub:someone/new-line-small@main"
    assert (registry.family_of_release(release), license_of(folder, release).name) == (new_family, "mit")
    assert ts.load(str(folder)).family.name == new_family
    layers = ts.inspect(str(folder), "nile", context=48, horizon=12, rows=50).layers
    assert len(layers) == 4
    done = CliRunner().invoke(app, ["check-family", new_family])
    assert done.exit_code == 0, done.output
