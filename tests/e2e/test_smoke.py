"""The whole way, from `dvc repro` to the SQL answer, on the smoke profile."""

from __future__ import annotations

import html
import json
import os
import re
from pathlib import Path

import nbformat
import pyarrow.parquet as pq
import pytest
import yaml
from nbclient import NotebookClient

from tests.e2e.checkout import ROOT, Checkout

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
KINDS = {"domains", "conditions", "islands", "dimension", "growth", "inside"}
MODELS = {"chronos-t5-nano", "chronos-bolt-nano"}
PLOTS = {
    "isotropy against forecast error",
    "effective dimension by layer",
    "numerical rank by layer",
    "compressed attention against WQL",
}
SMALL = "chronos-t5-nano@aware-0.5"  # on one data set under one condition


def test_correlation_covers_both_families(smoke: Checkout) -> None:
    rows = smoke.sql("select * from correlation where study = 'isotropy' and measure = 'zeta_adjusted_corrected'")
    assert {row["grouping"] for row in rows} >= {"within_dataset", "pooled"}
    points = smoke.sql("select distinct model, dataset from nmse_against_isotropy where study = 'isotropy'")
    assert {row["model"] for row in points} == MODELS
    assert {row["dataset"] for row in points} == {"linear-2", "seasonality-2", "macrodata"}


def test_every_layer_of_both_stacks_is_measured(smoke: Checkout) -> None:
    rows = smoke.sql("select distinct model, stack, layer, normed from geometry")
    for model in (*MODELS, SMALL):
        for stack in ("encoder", "decoder"):
            found = {(r["layer"], r["normed"]) for r in rows if (r["model"], r["stack"]) == (model, stack)}
            assert found == {(layer, False) for layer in range(5)} | {(4, True)}


def test_nothing_failed_and_every_null_has_its_reason(smoke: Checkout) -> None:
    assert smoke.sql("select * from failures") == []
    assert smoke.sql("select * from geometry where zeta is null and reason is null") == []


def test_a_second_repro_runs_external_inputs_only(smoke: Checkout) -> None:
    assert smoke.repro() == ["external_inputs"]


def test_ranks_of_every_layer_matrix_and_head_are_there(smoke: Checkout) -> None:
    flow = smoke.sql("select * from flow_of_ranks where dataset = 'linear-2' and epsilon = 0.01")
    places = {(row["stack"], row["layer"]) for row in flow}
    assert places == {(stack, layer) for stack in ("encoder", "decoder") for layer in range(5)}
    assert all(1 <= row["numerical_rank"] <= row["width"] == 64 for row in flow)
    weights = smoke.sql(
        "select stack, matrix, attention, count(*) as n from weight_ranks where epsilon = 0.1 group by all"
    )
    assert {row["n"] for row in weights} == {4}  # blocks
    assert len(weights) == 6 + 10  # q, k, v, o and two of the MLP, and the decoder's cross-attention
    heads = smoke.sql("select distinct heads, head_width, width from head_ranks")
    assert heads == [{"heads": 4, "head_width": 16, "width": 64}]
    special = smoke.sql("select distinct tokens from spectra where dataset = 'constant'")
    assert {row["tokens"] for row in special} == {"valued", "with_special"}
    whats = smoke.sql("select what, count(*) as n from angles group by all")
    assert {row["what"] for row in whats} == {"tokens", "rows", "gaussian"}
    assert smoke.sql("select count(*) as n from planes where value is not null")[0]["n"] > 10


def test_a_compressed_model_is_measured_like_any_other_and_beside_its_base(smoke: Checkout) -> None:
    (made,) = smoke.sql("select * from compression_frontier")
    assert (made["base_model"], made["model"]) == ("chronos-t5-nano", SMALL)
    assert (made["method"], made["size_parameter"], made["size_rule"]) == ("activation-aware", 0.5, "share")
    assert made["attention_ratio"] == 0.5 < made["size_ratio"] < 1
    assert made["n_cells"] == 1
    assert min(made["wql_ratio"], made["mase_ratio"], made["lppl"]) > 0
    assert made["time_ratio"] is None  # one cell: each model's only job is the first that an actor does with it
    assert 0.5 < made["overlap"] <= 1
    rows = smoke.sql("select * from isotropy_by_rank")
    places = {(row["model"], row["rank_ratio"], row["stack"], row["layer"], row["normed"]) for row in rows}
    assert len(rows) == len(places) == 2 * 12  # models, layers
    assert {place[:2] for place in places} == {("chronos-t5-nano", 1), (SMALL, 0.5)}
    for table in ("geometry", "alignment", "partition", "jacobian", "forecasts", "fidelity", "dumps"):
        found = smoke.sql(f"select distinct base_model, size_parameter, size_rule from {table} where model = '{SMALL}'")
        assert found == [{"base_model": "chronos-t5-nano", "size_parameter": 0.5, "size_rule": "share"}], table
    parts = smoke.sql("select part, full_width, rank, count(*) as n from compressed_heads group by all")
    assert {(row["part"], row["full_width"], row["rank"], row["n"]) for row in parts} == {
        ("qk", 16, 8, 12),
        ("vo", 16, 8, 12),
    }


def test_status_says_that_all_is_done(smoke: Checkout) -> None:
    output = smoke.run("python", "-m", "tsfmscope", "status").stdout
    for stage in ("checkpoints", "compression", "tokens", "embeddings", "geometry", "heads", "spectra", "forecasts"):
        assert stage in output
    assert "finished" in output


def test_dvc_shows_the_headline_numbers_the_plots_and_the_graph(smoke: Checkout) -> None:
    shown = json.loads(smoke.run("dvc", "metrics", "show", "--json").stdout)
    numbers = shown[""]["data"]["data/metrics.json"]["data"]
    blocks = {"correlation", "isotropy", "rank_slope", "compression", "skill", "theory", "published", "rows"}
    assert set(numbers) == blocks
    asked = """select spearman from correlation where study = 'isotropy' and measure = 'zeta_adjusted_corrected'
        and "grouping" = 'within_dataset'"""
    assert (
        numbers["correlation"]["within_dataset"]["zeta_adjusted_corrected"]["spearman"]
        == smoke.sql(asked)[0]["spearman"]
    )
    assert numbers["rows"]["failures"] == 0
    done = smoke.run("dvc", "plots", "show", "--json")
    drawn = json.loads(done.stdout)["data"]
    assert set(drawn) == set(PLOTS) | {f"data/checkpoints/curves/{model}/plots/metrics/loss.tsv" for model in MODELS}
    for name, (one,) in drawn.items():
        assert one["content"]["data"]["values"], name
    assert "WARNING" not in smoke.run("dvc", "plots", "show").stderr
    assert "embeddings" in smoke.run("dvc", "dag").stdout


def test_the_page_is_one_file_with_every_figure(smoke: Checkout) -> None:
    page = (smoke.folder / "data/report.html").read_text()
    for text in ("chronos-t5-nano", "chronos-bolt-nano", "effective dimension", "islands"):
        assert text.lower() in page.lower()
    assert len(page) < 15e6


def test_the_page_on_the_run_lists_what_it_was_made_from_as_dvc_lock_has_it(smoke: Checkout) -> None:
    foot = (smoke.folder / "data/run.html").read_text().partition('<footer id="provenance"')[2]
    stages = yaml.safe_load((smoke.folder / "dvc.lock").read_text())["stages"]
    outs = {out["path"]: out["md5"] for stage in stages.values() for out in stage.get("outs", [])}
    lines = [f"{outs[dep['path']]}  {dep['path']}" for dep in stages["tables"]["deps"] if dep["path"] in outs]
    assert len(lines) > 20
    for line in lines:
        assert line in foot


def test_every_study_is_a_section_and_a_picture(smoke: Checkout) -> None:
    page = (smoke.folder / "data/report.html").read_text()
    studies = yaml.safe_load((smoke.folder / "params.yaml").read_text())["studies"]
    assert {study.get("plot", "domains") for study in studies.values()} == KINDS
    for name in studies:
        assert page.count(f'id="study-{name}"') == 1
        assert f'id="plot-{name}-0"' in page
        assert (smoke.folder / f"data/figures/{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (smoke.folder / f"data/figures/{name}.pdf").read_bytes().startswith(b"%PDF")
        assert (smoke.folder / f"data/figures/{name}.svg").read_text().count("<svg") == 1
        for caption in (smoke.folder / f"data/figures/{name}.txt").read_text().strip().split("\n\n"):
            assert len(caption) > 40 and caption[-40:] in html.unescape(page)


def test_every_job_has_a_time_and_every_stage_an_idle_share(smoke: Checkout) -> None:
    rows = smoke.sql("select stage, jobs, actors, idle_share from idle_share where actor is null")
    assert {"tokens", "embeddings", "geometry", "spectra", "forecasts", "theory"} <= {row["stage"] for row in rows}
    assert all(row["actors"] >= 1 and -1e-9 <= row["idle_share"] < 1 for row in rows)
    placed = smoke.sql("select count(*) as n, count(run) as placed, count(subject) as named from timeline")
    assert placed[0]["n"] == placed[0]["placed"] == placed[0]["named"] > 200


def test_the_sql_behind_the_islands_finds_their_files(smoke: Checkout) -> None:
    page = (smoke.folder / "data/report.html").read_text()
    (sql,) = re.findall(r"<code>(select path\nfrom dumps.*?)</code>", page, re.DOTALL)
    paths = [row["path"] for row in smoke.sql(html.unescape(sql))]
    assert len(paths) == 2  # models
    assert all((smoke.folder / "data/embeddings" / path).is_file() for path in paths)


def test_rows_of_one_stage_lie_in_few_files(smoke: Checkout) -> None:
    files = list((smoke.folder / "data/geometry/geometry").glob("*"))
    assert [file.name for file in files] == ["00000.parquet"]
    keys = pq.read_table(files[0])["job_key"].to_pylist()
    assert len(keys) == len(set(keys)) == (2 * 3 * 2 + 1) * 12  # models, data sets, conditions, SMALL; layers


def test_the_notebook_of_the_docs_runs_on_the_results(smoke: Checkout, tmp_path: Path) -> None:
    notebook = nbformat.read(ROOT / "docs/results.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)  # results are of whoever runs it
    environment = {**os.environ, "IPYTHONDIR": str(tmp_path), "PYTHONPATH": str(smoke.folder)}
    NotebookClient(notebook, timeout=240, resources={"metadata": {"path": smoke.folder}}).execute(env=environment)
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("zeta_adjusted" in output.get("data", {}).get("text/plain", "") for output in shown)
    assert any("image/png" in output.get("data", {}) for output in shown)
