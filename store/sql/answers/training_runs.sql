-- How did each training end, with which heads, and how many tokens (observed values of series) did it read per second?
-- A trial of a search that was stopped early has the values of its last logged step. The tokens per
-- second are those of the last run of a training.
with ends as (
    select
        model,
        job_key,
        max(step) as steps_done,
        arg_max(loss, step) as loss,
        min(loss) as lowest_loss
    from training
    group by all
),

pretrained as (
    -- Several models may read the same checkpoint.
    select
        recipe,
        any_value(heads) as heads
    from checkpoints
    group by recipe
),

final as (
    select
        ends.model,
        coalesce(trials.heads, pretrained.heads) as heads,
        ends.steps_done,
        coalesce(trials.ended, 'finished') as ended,
        ends.loss,
        ends.lowest_loss,
        timings.tokens_per_s,
        timings.seconds,
        timings.device
    from ends
    left join pretrained
        on pretrained.recipe = ends.job_key
    left join trials
        on trials.recipe = ends.job_key
    left join timings
        on timings.key = ends.job_key
)

select * from final
