"""Training: optimizers, savers, monitored sessions, and threads that feed queues."""

from headrace._src.train.inputs import batching, input_producers, queue_runners
from headrace._src.train.inspect import magnitudes, matching, parameters
from headrace._src.train.optimizers import (
    adam,
    adam_family,
    contrib_wrappers,
    external_optimizer,
    gradient_accumulation,
    layerwise,
    loss_scale,
    mixed_precision_switch,
    moving_averages,
    optimize_loss,
    optimizer,
    schedules,
    sign_optimizers,
    slots,
    step_optimizers,
)
from headrace._src.train.saving import (
    checkpoint_init,
    checkpoint_reader,
    import_meta_graph,
    save_safetensors,
    saved_model,
    saver,
)
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
