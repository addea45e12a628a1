-- Which numbers does each test on ranks compare, one per unit (a family, model, matrix or data set)?
-- A share is the numerical rank divided by the largest rank that the matrix allows. The number after
-- the @ in a measure is the tolerance epsilon. sample: group of the unit, if the statistic is a
-- difference of two groups. x: regressor, if the statistic is a trend.
with tolerances (epsilon) as (
    values (1e-1::double), (1e-2), (1e-3)
),

weights as (
    select
        ranks.*,
        replace(concat_ws(' ', ranks.stack, ranks.attention, ranks.matrix), ' self', '') as unit
    from weight_ranks as ranks
    semi join tolerances
        on tolerances.epsilon = ranks.epsilon
    anti join snapshot_models
        on snapshot_models.model = ranks.model
    where ranks.step is null
),

attention as (
    select * from weights
    where matrix in ('q', 'k', 'v', 'o')
),

inputs as (
    select ranks.*
    from flow_of_ranks as ranks
    semi join tolerances
        on tolerances.epsilon = ranks.epsilon
    anti join snapshot_models
        on snapshot_models.model = ranks.model
    where ranks.tokens = 'valued'
),

embeddings as (
    select
        study,
        model,
        family,
        modality,
        dataset,
        epsilon,
        avg(share) as share,
        avg(numerical_rank) as numerical_rank
    from embedding_ranks
    semi join tolerances
        using (epsilon)
    anti join snapshot_models
        using (model)
    group by all
),

slopes as (
    select
        study,
        model,
        modality,
        'input' as matrix,
        epsilon,
        concat_ws(' ', dataset, stack) as unit,
        regr_slope(share, depth) as value
    from inputs
    group by
        study,
        model,
        modality,
        epsilon,
        dataset,
        stack
    having count(distinct layer) > 1
    union all
    select
        study,
        model,
        modality,
        'attention',
        epsilon,
        unit,
        regr_slope(share, depth)
    from attention
    group by all
    having count(distinct layer) > 1
),

constants as (
    select
        study,
        model,
        epsilon,
        'layer ' || layer as unit,
        layer / max(layer) over (partition by study, model, stack) as x,
        share as value
    from matrix_ranks
    semi join tolerances
        using (epsilon)
    semi join checkpoints
        on checkpoints.model = matrix_ranks.model
        and checkpoints.input_stack = matrix_ranks.stack
    where what = 'constant'
        and tokens = 'with_special'
        and not normed
),

model_means as (
    select
        study,
        model,
        modality,
        matrix || ' slope' as matrix,
        epsilon,
        avg(value) as value
    from slopes
    group by all
    union all
    select
        study,
        model,
        modality,
        'attention',
        epsilon,
        avg(share)
    from attention
    group by all
    union all
    select
        study,
        model,
        modality,
        'embedding',
        epsilon,
        avg(share)
    from embeddings
    group by all
),

-- The first snapshot and the last weights of each training of a population.
ends as (
    select
        population.run,
        population.model,
        population.is_final
    from population
    qualify population.is_final
        or row_number() over (partition by population.run order by population.step) = 1
),

learned as (
    select
        slopes.study,
        ends.run as model,
        'learned input slope' as matrix,
        slopes.epsilon,
        avg(slopes.value) filter (where ends.is_final) - avg(slopes.value) filter (where not ends.is_final) as value
    from (
        select
            ranks.study,
            ranks.model,
            ranks.epsilon,
            regr_slope(ranks.share, ranks.depth) as value
        from flow_of_ranks as ranks
        semi join tolerances
            on tolerances.epsilon = ranks.epsilon
        where ranks.tokens = 'valued'
        group by
            ranks.study,
            ranks.model,
            ranks.epsilon,
            ranks.dataset,
            ranks.stack
        having count(distinct ranks.layer) > 1
    ) as slopes
    inner join ends
        using (model)
    group by all
    having value is not null
),

-- At the layer from which the model's own forecast is read best: directions that carry it, relative to two ranks.
carried as (
    select
        best_probes.study,
        best_probes.model,
        relative.quantity as matrix,
        relative.epsilon,
        log2(best_probes.directions) - log2(relative.directions) as value
    from best_probes
    anti join snapshot_models
        on snapshot_models.model = best_probes.model,
        lateral (
            values
                ('forecast directions less rank', 1e-2::double, best_probes.numerical_rank),
                ('forecast directions less d(0.8)', 1e-2::double, best_probes.effective_dimension)
        ) as relative (quantity, epsilon, directions)
    where best_probes.factor = 'forecast'
        and best_probes.directions > 0
        and relative.directions > 0
),

blocks as (
    select
        study,
        model,
        modality,
        'mlp less attention' as matrix,
        epsilon,
        concat_ws(' ', stack, layer) as unit,
        avg(share) filter (where matrix = 'mlp_in')
        - avg(share) filter (where matrix in ('q', 'k', 'v', 'o')) as value
    from weights
    group by
        study,
        model,
        modality,
        epsilon,
        stack,
        layer
    having value is not null
),

series_slopes as (
    select
        slopes.*,
        checkpoints.family,
        count(distinct checkpoints.family) over study_slopes as n_families,
        count(distinct slopes.model) over study_slopes as n_models
    from (
        select * exclude (modality)
        from model_means
        where modality = 'series'
            and matrix like '% slope'
        union all by name
        select
            study,
            model,
            'constant slope' as matrix,
            epsilon,
            regr_slope(value, x) as value
        from constants
        group by all
        having count(distinct x) > 1
        union all by name
        select
            study,
            model,
            matrix,
            epsilon,
            avg(value) as value
        from blocks
        where modality = 'series'
        group by all
        union all by name
        select * from learned
        union all by name
        select * from carried
    ) as slopes
    inner join checkpoints
        on checkpoints.model = slopes.model
    window study_slopes as (partition by slopes.study, slopes.matrix, slopes.epsilon)
),

-- A mean over fewer than six families, or models of them, says little about others.
overall as (
    select
        study,
        'family' as "grouping",
        'all' as block,
        matrix as quantity,
        epsilon,
        'mean' as statistic,
        null as sample,
        family as unit,
        null::double as x,
        avg(value) as value
    from series_slopes
    where n_families >= 6
    group by all
    union all
    select
        study,
        'models',
        'all',
        matrix,
        epsilon,
        'mean',
        null,
        model,
        null,
        value
    from series_slopes
    where n_families < 6
        and n_models >= 6
),

growth as (
    select
        study,
        'model' as "grouping",
        model as block,
        matrix || ' slope' as quantity,
        epsilon,
        'mean' as statistic,
        null as sample,
        unit,
        null::double as x,
        value
    from slopes
    union all
    select
        study,
        'model',
        model,
        matrix,
        epsilon,
        'mean',
        null,
        unit,
        null,
        value
    from blocks
    union all
    select
        study,
        'model',
        model,
        'constant slope',
        epsilon,
        'trend',
        null,
        unit,
        x,
        value
    from constants
),

family_means as (
    select
        means.study,
        means.matrix,
        means.epsilon,
        case means.modality when 'series' then 'series' else 'other' end as sample,
        checkpoints.family,
        avg(means.value) as value
    from model_means as means
    inner join checkpoints
        on checkpoints.model = means.model
    group by all
),

contrasts as (
    select
        study,
        'modality' as "grouping",
        'all' as block,
        matrix as quantity,
        epsilon,
        'difference' as statistic,
        sample,
        family as unit,
        null::double as x,
        value
    from family_means
    qualify count(*) filter (where sample = 'series') over (partition by study, matrix, epsilon) > 0
        and count(*) filter (where sample != 'series') over (partition by study, matrix, epsilon) > 0
),

signals as (
    select
        study,
        'signal' as "grouping",
        'all' as block,
        'noise less sinusoid' as quantity,
        epsilon,
        'mean' as statistic,
        null as sample,
        model as unit,
        null::double as x,
        max(share) filter (where dataset = 'noise') - max(share) filter (where dataset = 'sinusoid') as value
    from embeddings
    group by all
    having count(*) filter (where dataset in ('noise', 'sinusoid')) = 2
),

grid_values as (
    select
        study,
        model,
        family,
        'embedding rank' as quantity,
        epsilon,
        avg(numerical_rank) as value
    from embeddings
    group by all
    union all
    select
        study,
        model,
        family,
        'query',
        epsilon,
        avg(share)
    from attention
    where matrix = 'q'
    group by all
    union all
    select
        heads.study,
        heads.model,
        checkpoints.family,
        'head query',
        heads.epsilon,
        avg(heads.head_rank)
    from head_ranks as heads
    inner join checkpoints
        on checkpoints.model = heads.model
    semi join tolerances
        on tolerances.epsilon = heads.epsilon
    where heads.matrix = 'q'
        and heads.step is null
    group by all
),

trends as (
    select
        grid_values.study,
        'x_axis' as "grouping",
        grid_values.family as block,
        grid_values.quantity,
        grid_values.epsilon,
        'trend' as statistic,
        null as sample,
        grid_values.model as unit,
        log2(model_x_values.x) as x,
        grid_values.value
    from grid_values
    inner join model_x_values
        using (study, model)
),

all_units as (
    select * from growth
    union all by name
    select * from overall
    union all by name
    select * from contrasts
    union all by name
    select * from signals
    union all by name
    select * from trends
),

final as (
    select
        study,
        'rank_tests' as answer,
        quantity || '@' || format('{:g}', epsilon) as measure,
        "grouping",
        block,
        statistic,
        sample,
        unit,
        x,
        value
    from all_units
    union all by name
    select * from schedule_units
    union all by name
    select * from compression_units
    union all by name
    select * from fidelity_units
    union all by name
    select * from pretrained_units
)

select * from final
