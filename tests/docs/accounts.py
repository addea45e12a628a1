"""Who runs each command of the documentation: tests/e2e/test_docs.py, another test, or nobody, for a reason."""

from __future__ import annotations

import re
from typing import NamedTuple

IN_ORDER = (  # pages whose commands and Python are run here, one after another, in one copy of the smoke run
    "docs/index.md",
    "README.md",
    "docs/own_study.md",
    "docs/corpus.md",
    "docs/published.md",
    "docs/sql.md",
    "docs/advice.md",
    "docs/compression.md",
    "docs/own_model.md",
    "docs/own_data.md",
    "docs/python.md",
    "docs/paper_scale.md",
)
TUTORIAL = "docs/tutorial.md"  # in a copy of its own: what it prints is compared
REASON = "reason: "
CLUSTER = (
    "tests/e2e/test_submit.py::test_results_and_lock_are_in_the_shared_folder_after_a_submitted_repro"  # on two raylets
)
STOPPED = "tests/e2e/test_submit.py::test_a_stopped_job_has_time_to_store_its_results"
CLONE = "tests/e2e/test_dvc.py::test_a_clone_that_pulled_has_nothing_to_do_and_a_new_model_runs_its_jobs_only"
ROOTED = "tests/e2e/test_dvc.py::test_a_data_root_reruns_what_depends_on_it_and_nothing_else"
EXPORTED = "tests/stages/cli/test_exporting.py::test_the_command_writes_a_dense_folder_in_a_process_of_its_own"
REPRO = "tests/e2e/test_smoke.py::test_a_second_repro_runs_external_inputs_only"
SHOWN = "tests/e2e/test_smoke.py::test_dvc_shows_the_headline_numbers_the_plots_and_the_graph"
CLI = "tests/stages/cli/test_commands.py::test_the_commands_of_the_docs_run_one_after_another"
STATUS = "tests/e2e/test_smoke.py::test_status_says_that_all_is_done"
WHEEL = "tests/test_wheel.py::test_the_wheel_runs_in_an_empty_environment_and_an_empty_folder"
ADDITIONS = "tests/test_additions.py"  # takes the steps of CONTRIBUTING.md, its Python blocks too
MOVED = "tests/store/test_manifests.py::test_rows_are_found_where_their_folders_were_moved"
BUCKET = REASON + "needs a server and dvc[s3]; tried by hand with a local server, as the page says"
SET_UP = REASON + "sets up an environment from a package index, which the suite itself runs in"


class Elsewhere(NamedTuple):
    """Commands of a page that begin so: by, a test that does what they do, or REASON and why none can."""

    page: str
    begins: str
    by: str


ELSEWHERE = (
    Elsewhere(TUTORIAL, "make setup", SET_UP),
    Elsewhere(TUTORIAL, "source", SET_UP),
    Elsewhere("README.md", "make repro", REPRO),
    Elsewhere("README.md", "make setup", SET_UP),
    Elsewhere("docs/own_study.md", "make repro", REPRO),
    Elsewhere("docs/index.md", "make repro", REPRO),
    Elsewhere("docs/own_study.md", "dvc repro", REPRO),
    Elsewhere("docs/own_study.md", "dvc dag", SHOWN),
    Elsewhere("docs/own_study.md", "dvc metrics show", SHOWN),
    Elsewhere("docs/own_study.md", "dvc plots show", SHOWN),
    Elsewhere("README.md", "make test", REASON + "it is what runs this"),
    Elsewhere("docs/own_study.md", "export TSFMSCOPE_DATA", ROOTED),
    Elsewhere("docs/corpus.md", "tsfmscope corpus", "tests/stages/cli/test_corpora.py"),
    Elsewhere("docs/own_study.md", "dvc exp run", "tests/e2e/test_dvc.py::test_an_experiment_runs_and_is_kept"),
    Elsewhere("docs/own_study.md", "dvc remote add", CLONE),
    Elsewhere("docs/own_study.md", "dvc pull", CLONE),
    Elsewhere("docs/cli.md", "tsfmscope", CLI),
    Elsewhere("docs/advice.md", "tsfmscope recommend mine.csv", CLI),
    Elsewhere("docs/advice.md", "tsfmscope recommend nile", "tests/stages/cli/test_recommend.py"),
    Elsewhere(
        "docs/plugins.md",
        "tsfmscope check-family",
        "tests/test_plugin.py::test_it_passes_the_conformance_suite",
    ),
    Elsewhere(
        "docs/plugins.md",
        "uv pip install",
        "tests/test_plugin.py::test_the_install_command_of_the_page_adds_the_package_to_this_environment",
    ),
    Elsewhere("docs/compression.md", "tsfmscope export chronos", EXPORTED),
    Elsewhere("docs/own_data.md", "dvc repro", ROOTED),
    Elsewhere("docs/paper_scale.md", "export TSFMSCOPE_DATA", ROOTED),
    Elsewhere("docs/paper_scale.md", "make repro", REASON + "needs released checkpoints and GPUs"),
    Elsewhere("docs/paper_scale.md", "dvc repro geometry", REASON + "needs released checkpoints and GPUs"),
    Elsewhere("docs/paper_scale.md", "make submit", CLUSTER),
    Elsewhere("docs/cluster.md", "cd /shared", SET_UP),
    Elsewhere("docs/cluster.md", "ray get-auth-token", CLUSTER),
    Elsewhere("docs/cluster.md", "export RAY_AUTH_MODE", CLUSTER),
    Elsewhere("docs/cluster.md", ".venv/bin/ray", CLUSTER),
    Elsewhere("docs/cluster.md", "make submit", CLUSTER),
    Elsewhere("docs/cluster.md", "ray job list", REASON + "Ray's own; it lists what the next one follows"),
    Elsewhere("docs/cluster.md", "ray job logs", CLUSTER),
    Elsewhere("docs/cluster.md", "ray job stop", STOPPED),
    Elsewhere("docs/cluster.md", "tsfmscope status", STATUS),
    Elsewhere("docs/cluster.md", "ray stop", REASON + "would end every Ray of the machine, other people's too"),
    Elsewhere("docs/shared_folder.md", "mkdir", MOVED),
    Elsewhere("docs/shared_folder.md", "mv", MOVED),
    Elsewhere("docs/shared_folder.md", "rm", MOVED),
    Elsewhere("docs/shared_folder.md", "dvc remote add -d results /mnt", CLONE),
    Elsewhere("docs/shared_folder.md", "dvc push", CLONE),
    Elsewhere("docs/shared_folder.md", "git", CLONE),
    Elsewhere("docs/shared_folder.md", "pip install 'dvc[s3]'", BUCKET),
    Elsewhere("docs/shared_folder.md", "dvc remote add -d results s3:", BUCKET),
    Elsewhere("docs/shared_folder.md", "dvc remote modify", BUCKET),
    Elsewhere("docs/install.md", "pip install tsfmscope", WHEEL),
    Elsewhere("docs/install.md", "tsfmscope", WHEEL),
    Elsewhere(
        "docs/install.md", "pip install 'tsfmscope", REASON + "pip asks an index for what uni2ts needs; see the page"
    ),
    Elsewhere("docs/install.md", "pip install --no-deps uni2ts", REASON + "as the line before it"),
    Elsewhere(
        "docs/install.md", "docker", REASON + "needs a builder and its base image; tests/test_release.py lints the file"
    ),
    Elsewhere(
        "docs/install.md", "podman", REASON + "needs a builder and its base image; tests/test_release.py lints the file"
    ),
    Elsewhere("docs/environments.md", "python -m pytest -m download", REASON + "downloads some three gigabytes"),
    Elsewhere("CONTRIBUTING.md", "make test", REASON + "it is what runs this"),
    Elsewhere("CONTRIBUTING.md", "cp docs/plugin", ADDITIONS),
    Elsewhere("CONTRIBUTING.md", "python -m ", ADDITIONS),
    Elsewhere("CONTRIBUTING.md", "tsfmscope ", ADDITIONS),
    Elsewhere(
        "docs/results/full/README.md", "make profile", REASON + "nine minutes; the full studies are the default's code"
    ),
    Elsewhere("docs/results/ranks/README.md", "make profile", REASON + "pretrains 27 models: an hour of one core"),
    Elsewhere("docs/results/compression/README.md", "make profile", REASON + "pretrains 54 models: hours"),
)


def elsewhere(page: str, line: str) -> Elsewhere | None:
    """The entry that a command falls under; None: it is run here."""
    return next((one for one in ELSEWHERE if one.page == page and line.startswith(one.begins)), None)


def here(page: str) -> bool:
    """Whether the page's commands are run here."""
    return page in IN_ORDER or page == TUTORIAL


def words_only(line: str) -> str:
    """A printed line with its numbers, times and spaces out of the way: those differ between machines."""
    return re.sub(r"\s+", " ", re.sub(r"[\d.,:]*\d[\d.,:]*(e[+-]?\d+)?", "#", line)).replace("-#", "#").strip()
