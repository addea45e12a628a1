"""Checks of what every family guarantees; `tsfmscope check-family my-family` runs them.

A check is a function of a Subject. Its docstring states what it demands, and it returns what it saw. See
docs/plugins.md.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tsfmscope.conformance import answers, checkpoints, matrices, states, tokens
from tsfmscope.conformance.subject import Check, Finding, Subject, judge

CHECKS: tuple[Check, ...] = (
    checkpoints.class_variables_are_valid,
    tokens.kinds_cover_windows,
    tokens.rows_are_as_promised,
    tokens.tokens_go_through_a_table,
    tokens.padding_changes_nothing,
    tokens.missing_steps_are_no_observation,
    tokens.the_future_changes_no_state_before_it,
    tokens.the_future_changes_no_forecast,
    states.rows_are_in_time_order,
    states.layers_come_in_order,
    states.layers_are_those_of_the_config,
    states.states_flow_from_block_to_block,
    states.states_are_finite,
    states.the_same_input_gives_the_same_bits,
    states.states_do_not_depend_on_the_batch,
    states.a_window_changes_itself_alone,
    states.chosen_rows_are_those_of_all,
    checkpoints.a_seed_decides_the_weights,
    checkpoints.a_wrong_config_is_named,
    checkpoints.a_saved_model_loads_as_it_was,
    checkpoints.a_checkpoint_is_safe_and_whole,
    checkpoints.a_broken_checkpoint_is_refused,
    checkpoints.half_precision_loads_in_float32,
    answers.forecasts_keep_the_unit_of_the_series,
    answers.forecasts_depend_on_the_context,
    answers.every_block_changes_states_and_forecasts,
    answers.quantiles_are_in_order,
    answers.seeds_decide_a_forecast,
    answers.forecasts_do_not_depend_on_the_batch,
    matrices.matrices_are_named_once,
    matrices.no_matrix_of_a_block_is_left_out,
    matrices.matrices_have_the_width_of_the_states,
    matrices.matrices_fit_their_names,
    matrices.attention_is_written_as_it_was_read,
    answers.it_runs_in_bfloat16,
    answers.claims_are_kept,
    answers.gradient_steps_lower_the_loss,
    answers.the_loss_depends_on_context_and_future,
)
# Checks of a family's code, which no weights can change: they make, damage and train models.
OF_CODE: tuple[Check, ...] = (
    checkpoints.class_variables_are_valid,
    checkpoints.a_seed_decides_the_weights,
    checkpoints.a_wrong_config_is_named,
    checkpoints.a_checkpoint_is_safe_and_whole,
    checkpoints.a_broken_checkpoint_is_refused,
    checkpoints.half_precision_loads_in_float32,
    answers.gradient_steps_lower_the_loss,
    answers.the_loss_depends_on_context_and_future,
)
OF_WEIGHTS: tuple[Check, ...] = tuple(check for check in CHECKS if check not in OF_CODE)


def findings(subject: Subject) -> Iterator[Finding]:
    """Run every check of a family, in order, and yield its findings."""
    return (judge(check, subject) for check in CHECKS)


def check(
    family: str, *, checkpoint: str | None = None, config: Mapping[str, Any] | None = None, context: int, horizon: int
) -> list[Finding]:
    """Run every check of a family on a checkpoint, else on a small random model of the config.

    ValueError for an unknown family or config, ModelError for what cannot be imported or loaded.
    """
    with tempfile.TemporaryDirectory() as scratch:
        subject = Subject.of(
            family, Path(scratch), checkpoint=checkpoint, config=config, context=context, horizon=horizon
        )
        return list(findings(subject))
