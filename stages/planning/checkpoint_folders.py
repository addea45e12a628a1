"""Folders of pretrained checkpoints of the pipeline, and those that are committed to git."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from stages.planning.model_folders import WORK, key_of, publish, quarantine_damaged
from stages.planning.training_jobs import MODELS
from store.files import write_text
from store.stage_store import StageStore
from tasks.job import Job
from tsfmscope.models.common.checkpoint_folder import RECIPE, verify_sums

# File of a checkpoint with the rows of its training.
LOG = "training.json"
# Model card of a committed checkpoint. No checksum covers it, since it may be renewed without the weights.
CARD = "README.md"


def install(out: StageStore, name: str, job: Job, committed: str | None) -> None:
    """Use the committed checkpoint if it was made by this recipe; its log supplies the job's rows.

    If no checkpoint of this recipe exists, finished or committed, the job's rows are deleted.
    """
    source = Path(committed, name) if committed else None
    for folder in (MODELS / name, WORK / job.key):
        quarantine_damaged(folder, "checkpoints")
    if source:
        verify_sums(source)
    if key_of(MODELS / name) != job.key and source and key_of(source) == job.key:
        shutil.rmtree(WORK / job.key, ignore_errors=True)
        shutil.copytree(source, WORK / job.key, ignore=shutil.ignore_patterns(RECIPE, CARD))
        # Written last, so that an interrupted copy is not taken for a whole folder.
        write_text(WORK / job.key / RECIPE, (source / RECIPE).read_text())
        publish(MODELS / name, job)
    if key_of(MODELS / name) == job.key:
        log = json.loads((MODELS / name / LOG).read_text())
        out.adopt("training", job.key, log)
    elif key_of(WORK / job.key) != job.key:
        # Rows without a checkpoint are of no use.
        out.forget([job.key])
