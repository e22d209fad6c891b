"""PyTorch: eager, eager with channels last, or compiled (channels last for images); bfloat16 by
autocast.
"""

from __future__ import annotations

import contextlib
import os

import torch


class Contender:
    version = f"torch {torch.__version__}"

    def __init__(self, model, mode):
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        self._model = model
        self._layout = torch.contiguous_format
        if model.convolutional and mode != "eager":
            self._layout = torch.channels_last
        p = {n: self._tensor(model.to_torch(n, model.initial(n))) for n in model.parameters}
        state = {n: self._tensor(model.initial(n)) for n in model.state}
        for value in p.values():
            value.requires_grad_()
        # What is looked up has gradients of rows, which the fused update doesn't take.
        whole = [value for n, value in p.items() if n not in model.looked_up]
        rows = [p[n] for n in model.looked_up]
        rate = model.learning_rate
        self._optimizers = [torch.optim.SGD(whole, lr=rate, fused=True)] if whole else []
        self._optimizers += [torch.optim.SGD(rows, lr=rate)] if rows else []

        def loss(batch):
            return model.torch(torch, p | state, batch)

        self._loss = torch.compile(loss) if mode == "compile" else loss

    def _tensor(self, value):
        value = torch.tensor(value)
        return value.contiguous(memory_format=self._layout) if value.ndim == 4 else value

    def load(self, batch):
        tensors = {n: torch.tensor(a) for n, a in batch.items()}
        if self._model.convolutional:
            images = tensors["x"].permute(0, 3, 1, 2)
            tensors["x"] = images.contiguous(memory_format=self._layout)
        self._batch = {n: t.long() if t.dtype == torch.int32 else t for n, t in tensors.items()}

    def step(self):
        precision = contextlib.nullcontext()
        if self._model.bfloat16:
            precision = torch.autocast("cpu", torch.bfloat16)
        if not self._optimizers:
            with torch.inference_mode():
                return self._loss(self._batch).item()
        for optimizer in self._optimizers:
            optimizer.zero_grad(set_to_none=True)
        with precision:
            loss = self._loss(self._batch)
        loss.backward()
        for optimizer in self._optimizers:
            optimizer.step()
        return loss.item()
