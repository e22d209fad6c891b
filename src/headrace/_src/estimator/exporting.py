"""Export models. In: a model in PREDICT mode, and a checkpoint. Out: a SavedModel, in a directory
that appears whole or not at all.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from typing import Any

from headrace._src.core import log
from headrace._src.core.errors import NotFoundError
from headrace._src.estimator.estimator_spec import EstimatorSpec
from headrace._src.estimator.serving import build_signatures
from headrace._src.graph.graph import Graph
from headrace._src.graph.keys import GraphKeys
from headrace._src.session.session import Session
from headrace._src.train.saving.saved_model import saved_model_names
from headrace._src.train.saving.saved_model.saved_model_builder import SavedModelBuilder
from headrace._src.train.saving.saver import Saver
from headrace._src.train.sessions.scaffold import Scaffold

__all__ = ["export_model"]

_ATTEMPTS = 10


def export_model(
    base: Any,
    model: Callable[[], tuple[Any, EstimatorSpec]],
    checkpoint: str,
    config: Any,
    assets_extra: Mapping[str, str],
    as_text: bool,
    strip_default_attrs: bool,
) -> bytes:
    """Export a model: `model` builds it in a new graph and returns the receiver of requests and the
    spec. Return the directory, which is named by the time.
    """
    directory = _new_directory(os.fsdecode(base))
    parent, name = os.path.split(directory)
    unfinished = os.path.join(parent, f"temp-{name}")
    builder = SavedModelBuilder(unfinished)
    with Graph().as_default() as graph:
        receiver, spec = model()
        signatures = build_signatures(receiver, spec.export_outputs or {})
        saver = spec.scaffold.saver or Saver(sharded=True)
        local_init_op = spec.scaffold.local_init_op
        if local_init_op is None:
            local_init_op = Scaffold.default_local_init_op()
        with Session(config=config) as session:
            _restore(saver, session, checkpoint)
            builder.add_meta_graph_and_variables(
                session,
                [saved_model_names.SERVING],
                signatures,
                assets_collection=graph.get_collection(GraphKeys.ASSET_FILEPATHS),
                main_op=local_init_op,
                strip_default_attrs=strip_default_attrs,
                saver=saver,
            )
    builder.save(as_text)
    for name, source in assets_extra.items():
        target = os.path.join(unfinished, saved_model_names.EXTRA_ASSETS_DIRECTORY, name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(source, target)
    os.rename(unfinished, directory)
    return directory.encode()


def _restore(saver: Saver, session: Session, checkpoint: str) -> None:
    try:
        saver.restore(session, checkpoint)
    except NotFoundError as error:
        raise ValueError(
            "Could not load all requested variables from checkpoint. Please make sure your "
            "model_fn does not expect variables that were not saved in the checkpoint.\n\n"
            f"Encountered error while restoring checkpoint from: `{checkpoint}`:\n\n{error}"
        ) from error


def _new_directory(base: str) -> str:
    """Return the path of a new directory, named by the seconds since 1970, so that names sort by
    age.
    """
    for attempt in range(_ATTEMPTS):
        directory = os.path.join(base, str(int(time.time())))
        if not os.path.exists(directory):
            return directory
        log.warning(
            "Directory %s already exists; retrying (attempt %d/%d)",
            *(directory, attempt + 1, _ATTEMPTS),
        )
        time.sleep(1)
    raise RuntimeError(
        f"Failed to obtain a unique export directory name after {_ATTEMPTS} attempts."
    )
