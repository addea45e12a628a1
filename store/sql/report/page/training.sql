-- Training
select model, step, loss, learning_rate
from training
order by model, step
