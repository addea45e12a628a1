-- Last run of each stage
select
    stage,
    started,
    seconds,
    jobs,
    done,
    reused,
    failed,
    commit,
    versions,
    hardware,
    cpus,
    gpus,
    seed
from runs
qualify row_number() over (partition by stage order by started desc) = 1
order by started
