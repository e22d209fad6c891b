"""Training: optimizers, savers, monitored sessions, and threads that feed queues."""

from headrace._src.train.inputs import batching, input_producers, queue_runners
from headrace._src.train.inspect import magnitudes, matching, parameters
from headrace._src.train.optimizers import (
    adam,
    adam_family,
    external_optimizer,
    layerwise,
    loss_scale,
    moving_averages,
    optimize_loss,
    optimizer,
    schedules,
    sign_optimizers,
    slots,
    step_optimizers,
)
from headrace._src.train.optimizers import contrib_wrappers as wrappers
from headrace._src.train.optimizers import gradient_accumulation as accumulation
from headrace._src.train.optimizers import mixed_precision_switch as mixed_precision
from headrace._src.train.saving import (
    checkpoint_init,
    checkpoint_reader,
    import_meta_graph,
    saved_model,
    saver,
)
from headrace._src.train.saving import save_safetensors as safetensors
from headrace._src.train.sessions import (
    basic_loops,
    coordinator,
    global_step,
    hooks,
    monitored_session,
    monitored_training,
    scaffold,
    session_creators,
    session_manager,
    session_run_hook,
    slim_learning,
    supervisor,
)
