"""Moirai with uni2ts' own pins beside Moirai with today's packages, in one sweep: the same numbers to 1e-4.

Downloads some three gigabytes the first time (docs/environments.md), so it has a marker of its own and is part of
neither .ci/run nor make test-slow: `python -m pytest -m download`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import moirai_twice
import numpy as np
import pytest
import toy
import yaml

from stages.config.params import parse
from stages.planning.sweeping import environments
from tasks.job import Job
from tasks.sweep.cluster import Resources
from tasks.sweep.engine import run
from tsfmscope.models import registry

ROOT = Path(__file__).parents[3]
CHECKPOINT = ROOT / "tsfmscope" / "checkpoints" / "moirai-mini"
TOLERANCE = 1e-4  # of states as they are, up to 20 in size; of forecasts in standard deviations of their series


def documented_params() -> str:
    """The example of docs/environments.md, in the place of what the default params say."""
    blocks = (ROOT / "docs" / "environments.md").read_text().split("```yaml\n")[1:]
    example = yaml.safe_load(blocks[0].partition("```")[0])
    params = yaml.safe_load((ROOT / "params" / "full.yaml").read_text())
    params["environments"] = example["environments"]
    params["models"] |= example["models"]
    return yaml.safe_dump(params, sort_keys=False)


def test_the_documented_example_is_valid_and_its_model_has_the_environment() -> None:
    (own,) = environments(parse(documented_params())).items()
    assert own[0] == "moirai-pinned"
    assert {"uni2ts==2.0.0", "torch==2.4.1", "numpy==1.26.4"} <= set(own[1].packages)


@pytest.mark.download
@pytest.mark.timeout(3600)
def test_uni2ts_own_pins_give_the_same_states_and_forecasts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    own = environments(parse(documented_params()))["moirai-pinned"]
    files, ref = registry.fingerprint(CHECKPOINT), str(CHECKPOINT)
    spec = {"family": "moirai", "ref": ref, "windows": 12, "seed": 0}
    jobs = [
        Job(moirai_twice.TASK, spec, {f"model:{ref}": registry.with_code("moirai", files, digest)}, group=group)
        for group, digest in (("ours", ""), ("theirs", own.digest))
    ]
    port = toy.port(tmp_path / "store")._replace(check=moirai_twice.do_nothing, read=moirai_twice.do_nothing)
    summary = run(jobs, port, Resources(actors=2, local_cpus=2, environments={"theirs": own}))
    assert (summary.done, summary.failed) == (2, 0), toy.read_records(tmp_path / "store")
    rows: dict[str, Any] = {
        one["rows"][0]["environment"]: one["rows"][0] for one in toy.read_records(tmp_path / "store")
    }
    ours, theirs = rows[""], rows[own.digest]
    assert theirs["versions"]["torch"].startswith("2.4.") and theirs["versions"]["numpy"].startswith("1.26.")
    assert ours["versions"]["numpy"].startswith("2.") and not ours["versions"]["torch"].startswith("2.4.")

    assert ours["states"].keys() == theirs["states"].keys()
    apart = {name: np.abs(np.subtract(ours["states"][name], theirs["states"][name])).max() for name in ours["states"]}
    forecast = np.abs(np.subtract(ours["forecast"], theirs["forecast"])).max()
    print(f"states differ by at most {max(apart.values()):.2e}, forecasts by {forecast:.2e}")
    print(ours["versions"], theirs["versions"], sep="\n")
    assert max(apart.values()) < TOLERANCE
    assert forecast < TOLERANCE
