"""One rank of bench/scale_out.py, in Headrace or in PyTorch.

    python bench/scale_out_worker.py headrace|torch

Environment variables say which rank it is. Answers one line of JSON for each line that it reads:
`reduce MEGABYTES COUNT` all-reduces so many float32, `train MODEL HOW COUNT` trains; HOW is
`together` (gradients are averaged) or `alone`. The answer has the seconds of each step, measured
from a moment at which all ranks are ready.
"""

import json
import os
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent


class InHeadrace:
    def __init__(self):
        import headrace as tf
        import headrace.horovod as hvd

        self.tf, self.hvd = tf, hvd
        hvd.init()
        self.version = f"headrace {tf.HEADRACE_VERSION}"
        self._made = {}
        with tf.Graph().as_default():
            self._ready = tf.Session().make_callable(hvd.allreduce(tf.zeros([1])))

    def ready(self):
        self._ready()

    def reducer(self, megabytes):
        """A tensor that a kernel of the step makes, as a gradient is, and its all-reduce."""
        tf, hvd = self.tf, self.hvd
        with tf.Graph().as_default():
            session = tf.Session()
            count = megabytes * (1 << 20) // 4
            rank = tf.placeholder(tf.float32, [])
            made = tf.fill([count // 1024, 1024], rank) * 1.0
            reduced = hvd.allreduce(made, average=False)
            timed = tf.group(reduced)
            first = session.make_callable(reduced[0, 0], [rank])
            assert first(float(hvd.rank() + 1)) == hvd.size() * (hvd.size() + 1) / 2
            return session, timed, rank

    def reduce(self, megabytes, count):
        """The collective by itself, on memory that a step would have put its result into."""
        hvd = self.hvd
        from headrace._src.devices.collectives import group
        from headrace._src.horovod.process import wait

        if megabytes not in self._made:
            self._made[megabytes] = self.reducer(megabytes)
        session, timed, rank = self._made[megabytes]
        for _ in range(2):
            session.run(timed, {rank: 1.0})  # the whole path, through a session
        import numpy as np

        seconds = []
        for _ in range(count):
            memory = group().memory
            size = megabytes << 20
            array = memory.allocate(size).view(np.float32) if memory else np.empty(size // 4, "f")
            array.fill(hvd.rank() + 1)
            self.ready()
            start = time.perf_counter()
            (found,) = wait(group().all_reduce("bench", [array], "Add", False))
            seconds.append(time.perf_counter() - start)
            assert found[0] == found[-1] == hvd.size() * (hvd.size() + 1) / 2
        return seconds

    def trainer(self, name, how):
        sys.path.insert(0, str(HERE))
        from contenders.in_headrace import Parameters
        from models import MODELS

        tf, hvd, model = self.tf, self.hvd, MODELS[name]
        with tf.Graph().as_default():
            batch = model.batch(hvd.rank())
            inputs = {n: tf.placeholder(a.dtype, a.shape, name=n) for n, a in batch.items()}
            p = Parameters(model)
            loss = model.tf1(tf, p, inputs)
            optimizer = tf.train.GradientDescentOptimizer(model.learning_rate)
            if how == "together":
                optimizer = hvd.DistributedOptimizer(optimizer)
            train = optimizer.minimize(loss, var_list=list(p.trained.values()))
            session = tf.Session()
            run = session.make_callable([loss, train], list(inputs.values()))
        for each, variable in {**p.trained, **p.state}.items():
            variable.load(model.initial(each), session)
        values = list(batch.values())
        return lambda: run(*values)[0].item()

    def train(self, name, how, count):
        key = name, how
        if key not in self._made:
            self._made = {key: self.trainer(name, how)} | {
                k: v for k, v in self._made.items() if k[0] == name
            }
            for _ in range(3):
                self._made[key]()
        return timed_steps(self._made[key], self.ready, count)


class InTorch:
    def __init__(self):
        import torch
        import torch.distributed as dist

        self.torch, self.dist = torch, dist
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        self.version = f"torch {torch.__version__}, gloo"
        self._made = {}

    def ready(self):
        self.dist.barrier()

    def reduce(self, megabytes, count):
        torch, dist = self.torch, self.dist
        x = torch.empty(megabytes * (1 << 20) // 4)
        seconds = []
        for _ in range(count):
            x.fill_(dist.get_rank() + 1)
            self.ready()
            start = time.perf_counter()
            dist.all_reduce(x)
            seconds.append(time.perf_counter() - start)
            n = dist.get_world_size()
            assert x[0] == x[-1] == n * (n + 1) / 2
        return seconds

    def trainer(self, name, how):
        sys.path.insert(0, str(HERE))
        from models import MODELS

        torch, model = self.torch, MODELS[name]
        layout = torch.channels_last if model.convolutional else torch.contiguous_format

        def tensor(value):
            value = torch.tensor(value)
            return value.contiguous(memory_format=layout) if value.ndim == 4 else value

        class Loss(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.names = list(model.parameters)
                for i, n in enumerate(self.names):
                    value = tensor(model.to_torch(n, model.initial(n)))
                    self.register_parameter(f"p{i}", torch.nn.Parameter(value))

            def forward(self, batch):
                p = {n: getattr(self, f"p{i}") for i, n in enumerate(self.names)}
                return model.torch(torch, p, batch)

        module = Loss()
        if how == "together":
            module = torch.nn.parallel.DistributedDataParallel(module, gradient_as_bucket_view=True)
        optimizer = torch.optim.SGD(module.parameters(), lr=model.learning_rate, fused=True)
        batch = {n: torch.tensor(a) for n, a in model.batch(self.dist.get_rank()).items()}
        if model.convolutional:
            batch["x"] = batch["x"].permute(0, 3, 1, 2).contiguous(memory_format=layout)
        batch = {n: t.long() if t.dtype == torch.int32 else t for n, t in batch.items()}

        def step():
            optimizer.zero_grad(set_to_none=True)
            loss = module(batch)
            loss.backward()
            optimizer.step()
            return loss.item()

        return step

    train = InHeadrace.train


def timed_steps(step, ready, count):
    ready()
    seconds = []
    for _ in range(count):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    return seconds


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(**facts):
        answers.write(json.dumps(facts) + "\n")
        answers.flush()

    try:
        sys.path.insert(0, str(HERE.parent / "src"))
        rank = {"headrace": InHeadrace, "torch": InTorch}[sys.argv[1]]()
        answer(version=rank.version)
        for line in sys.stdin:
            command, *arguments = line.split()
            if command == "reduce":
                answer(seconds=rank.reduce(*map(int, arguments)))
            else:
                name, how, count = arguments
                answer(seconds=rank.train(name, how, int(count)))
    except Exception as error:
        answer(error=f"{type(error).__name__}: {str(error)[:300]}")
        raise


if __name__ == "__main__":
    main()
