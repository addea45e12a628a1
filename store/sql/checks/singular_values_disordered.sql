-- Singular values are descending and not negative, and there are as many as the shape of the matrix allows.
with final as (
    select
        study,
        model,
        dataset,
        what,
        matrix,
        stack,
        layer,
        head,
        n_rows,
        n_columns,
        len(singular_values) as n
    from spectra
    where len(singular_values) != least(n_rows, n_columns)
        or list_min(singular_values) < 0
        or singular_values != list_reverse_sort(singular_values)
)

select * from final
