"""Commands of the documentation that the tests of its pages do not run: other tests do what they do, or none can."""

from __future__ import annotations

import re

IN_ORDER = (  # pages whose commands and Python are run here, one after another, in one copy of the smoke run
    "docs/index.md",
    "README.md",
    "docs/reading.md",
    "docs/own_study.md",
    "docs/corpus.md",
    "docs/published.md",
    "docs/sql.md",
    "docs/findings/advice.md",
    "docs/compression.md",
    "docs/fev.md",
    "docs/models.md",
    "docs/own_model.md",
    "docs/own_data.md",
    "docs/python.md",
    "docs/forecasting.md",
    "docs/paper_scale.md",
)
TUTORIAL = "docs/tutorial.md"  # in a copy of its own: what it prints is compared
# Page -> beginnings of commands that set up an environment, need a cluster, a server, GPUs or hours, open a window, or
# are run by another test.
# fmt: off
NOT_RUN = {
    TUTORIAL: ("make setup", "source"),
    # The four commands of one CSV file: tests/e2e/test_one_csv.py
    "README.md": (
        "make repro", "make test", "make setup", "tsfmscope score mine.csv",
        "tsfmscope compress chronos-2-mini small ", "tsfmscope export small ", "tsfmscope forecast small-onnx",
    ),
    "docs/own_study.md": (
        "make repro", "dvc repro", "dvc stage list", "dvc metrics show", "dvc plots show", "export TSFMSCOPE_DATA",
        "dvc exp run", "dvc remote add", "dvc pull",
    ),
    "docs/corpus.md": ("tsfmscope corpus",),
    "docs/cli.md": ("tsfmscope",),
    "docs/plugins.md": ("tsfmscope check-family", "uv pip install", "python -c ", "tsfmscope inspect random"),
    # The search for a size takes a minute, and the comparison of ways three: tests/e2e/test_one_csv.py,
    # tests/tsfmscope/functions/test_faster.py
    "docs/compression.md": (
        "tsfmscope export data", "tsfmscope certify chronos", "tsfmscope compress chronos-bolt-mini smallest",
        "tsfmscope compress chronos-bolt-mini fast",
    ),
    # Examples of help, which tests/tsfmscope/cli/test_commands.py runs.
    "docs/inside.md": ("tsfmscope",),
    "docs/shrink.md": ("tsfmscope compress", "tsfmscope export", "tsfmscope forecast"),
    "docs/own_data.md": ("dvc repro",),
    # tests/docs/test_population.py runs its queries
    "docs/population.md": ("make profile", "tsfmscope plan", "dvc repro", "tsfmscope sql", "tsfmscope test-results"),
    "docs/results/learning/README.md": ("tsfmscope sql",),
    "docs/results/population/README.md": ("make profile", "dvc repro", "tsfmscope save-results", "tsfmscope sql"),
    "docs/paper_scale.md": (
        "export TSFMSCOPE_DATA", "make repro", "dvc repro geometry", "make submit",
    ),
    "docs/cluster.md": (
        "cd /shared", "ray get-auth-token", "export RAY_AUTH_MODE", ".venv/bin/ray", "make submit", "ray job list",
        "ray job logs", "ray job stop", "tsfmscope status", "ray stop",
    ),
    "docs/remotes.md": (
        "mv", "dvc cache dir", "dvc remote add -d results /mnt", "dvc push", "git", "pip install 'dvc[s3]'",
        "dvc remote add -d results s3:", "dvc remote modify",
    ),
    "docs/install.md": (
        "pip install tsfmscope", "tsfmscope", "pip install 'tsfmscope", "pip install --no-deps uni2ts", "docker",
        "podman", "uv venv", "uv pip install --python", "TSFMSCOPE_TOTO2_PYTHON=",
    ),
    "CONTRIBUTING.md": ("make test", "make profile", "cp docs/plugin", "python -", "tsfmscope "),
    "docs/results/full/README.md": ("make profile",),
    "docs/results/ranks/README.md": ("make profile",),
    "docs/results/compression/README.md": ("make profile",),
}
# fmt: on


def elsewhere(page: str, line: str) -> str | None:
    """The entry that a command falls under; None: it is run here."""
    return next((beginning for beginning in NOT_RUN.get(page, ()) if line.startswith(beginning)), None)


def here(page: str) -> bool:
    """Whether the page's commands are run here."""
    return page in IN_ORDER or page == TUTORIAL


def words_only(line: str) -> str:
    """A printed line with its numbers, times and spaces out of the way: those differ between machines."""
    return re.sub(r"\s+", " ", re.sub(r"[\d.,:]*\d[\d.,:]*(e[+-]?\d+)?", "#", line)).replace("-#", "#").strip()
