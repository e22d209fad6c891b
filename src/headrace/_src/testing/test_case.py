"""tf.test.TestCase: a test case that builds and runs graphs and compares arrays.

Each test begins with an empty default graph and known seeds. State: the session that a test shares
with its parts (`cached_session`), and its threads.
"""

from __future__ import annotations

import os
import random
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
from absl.testing import absltest

from headrace._src.core import proto
from headrace._src.core.device_names import DeviceSpec
from headrace._src.core.errors import OpError
from headrace._src.core.export import export
from headrace._src.core.versions_and_text import GRAPH_DEF_VERSION, GRAPH_DEF_VERSION_MIN_CONSUMER
from headrace._src.graph import default
from headrace._src.ops.random.random_functions import DEFAULT_GRAPH_SEED
from headrace._src.session.session import Session
from headrace._src.testing.arrays import ArrayAssertions
from headrace._src.testing.machine import get_temp_dir
from headrace._src.testing.threads import CheckedThread

__all__ = ["TestCase"]


@export("test.TestCase")
class TestCase(ArrayAssertions, absltest.TestCase):
    """A test case with sessions, and assertions on arrays, tensors, messages and errors."""

    # Names that newer Pythons have dropped, but tests from TensorFlow 1's time use.
    assert_ = absltest.TestCase.assertTrue
    assertEquals = absltest.TestCase.assertEqual
    assertNotEquals = absltest.TestCase.assertNotEqual
    assertAlmostEquals = absltest.TestCase.assertAlmostEqual
    assertNotAlmostEquals = absltest.TestCase.assertNotAlmostEqual
    assertRaisesRegexp = absltest.TestCase.assertRaisesRegex
    assertRegexpMatches = absltest.TestCase.assertRegex
    assertNotRegexpMatches = absltest.TestCase.assertNotRegex

    def __init__(self, methodName: str = "runTest") -> None:
        super().__init__(methodName)
        self._threads: list[CheckedThread] = []
        self._temporary: str | None = None
        self._cached: tuple[Session, dict[str, Any]] | None = None

    def setUp(self) -> None:
        super().setUp()
        if self._testMethodName == "test_session":  # unittest takes it for a test
            self.skipTest("Not a test.")
        self._close_cached()
        random.seed(DEFAULT_GRAPH_SEED)
        np.random.seed(DEFAULT_GRAPH_SEED)
        default.reset()
        default.get_default_graph().seed = DEFAULT_GRAPH_SEED

    def tearDown(self) -> None:
        threads, self._threads = self._threads, []
        self._close_cached()
        for thread in threads:
            thread.check_joined()
        super().tearDown()

    def _close_cached(self) -> None:
        if self._cached is not None:
            self._cached[0].close()
            self._cached = None

    def get_temp_dir(self) -> str:
        """Return a directory for the files of this test; it starts empty."""
        if self._temporary is None:
            self._temporary = tempfile.mkdtemp(dir=get_temp_dir())
        return self._temporary

    # -- Sessions ----------------------------------------------------------------------------------

    @contextmanager
    def session(
        self, graph: Any = None, config: Any = None, use_gpu: bool = False, force_gpu: bool = False
    ) -> Iterator[Session]:
        """Yield a new session; inside the block, it and its graph are the defaults.

        Operations made inside are for the CPU, unless `use_gpu` leaves it to the system or
        `force_gpu` asks for a GPU.
        """
        with Session(graph=graph, config=config) as made, _on_device(made, use_gpu, force_gpu):
            yield made

    @contextmanager
    def cached_session(
        self, graph: Any = None, config: Any = None, use_gpu: bool = False, force_gpu: bool = False
    ) -> Iterator[Session]:
        """Yield this test's session, made by the first call; later calls must pass the same
        arguments.
        """
        asked = {"graph": graph, "config": config, "use_gpu": use_gpu, "force_gpu": force_gpu}
        if self._cached is None:
            self._cached = Session(graph=graph, config=config), asked
        session, before = self._cached
        for what, value in asked.items():
            if value is not before[what]:
                raise ValueError(
                    f"The {what}{'' if what in ('graph', 'config') else ' value'} used to get the "
                    "cached session is different than the one that was used to create the session. "
                    "Maybe create a new session with self.session()"
                )
        device = _on_device(session, use_gpu, force_gpu)
        with session.graph.as_default(), session.as_default(), device:
            yield session

    def test_session(
        self, graph: Any = None, config: Any = None, use_gpu: bool = False, force_gpu: bool = False
    ) -> Any:
        """Yield a session for a graph, or the cached one if none is given: the older name of
        both.
        """
        made = self.cached_session if graph is None else self.session
        return made(graph, config, use_gpu, force_gpu)

    def evaluate(self, tensors: Any) -> Any:
        """Return the values of tensors, in any structure, from the default session or else the
        cached one.
        """
        session = default.default_session()
        if session is not None:
            return session.run(tensors)
        with self.cached_session() as session:
            return session.run(tensors)

    # -- Threads -----------------------------------------------------------------------------------

    def checkedThread(
        self,
        target: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> CheckedThread:
        """Return a thread whose failure fails the test; it must be joined."""
        made = CheckedThread(self.fail, target, args, kwargs)
        self._threads.append(made)
        return made

    # -- Errors, messages, devices -----------------------------------------------------------------

    @contextmanager
    def assertRaisesWithPredicateMatch(
        self, exception_type: Any, expected_err_re_or_predicate: Any
    ) -> Iterator[None]:
        """Check that the block raises an error of this type that a predicate accepts, or whose
        message matches a regular expression.
        """
        try:
            yield
            self.fail(f"{exception_type.__name__} not raised")
        except Exception as error:
            wanted = expected_err_re_or_predicate
            fits = wanted if callable(wanted) else lambda e: re.search(wanted, _message(e))
            if not isinstance(error, exception_type) or not fits(error):
                raise AssertionError(f"Exception of type {type(error)}: {error}") from error

    def assertRaisesOpError(self, expected_err_re_or_predicate: Any) -> Any:
        """As above, for errors of operations."""
        return self.assertRaisesWithPredicateMatch(OpError, expected_err_re_or_predicate)

    def assertProtoEquals(
        self, expected_message_maybe_ascii: Any, message: Any, msg: str | None = None
    ) -> None:
        """Check that two messages are equal; the expected one may be given as text."""
        expected = expected_message_maybe_ascii
        if isinstance(expected, str | bytes):
            expected = proto.text_format.Parse(expected, type(message)())
        shown = [proto.text_format.MessageToString(each) for each in (expected, message)]
        if type(expected) is not type(message):
            self.fail(f"Can't compare protos of type {type(expected)} and {type(message)}.")
        self.assertMultiLineEqual(*shown, msg=msg)

    def assertProtoEqualsVersion(
        self,
        expected: str,
        actual: Any,
        producer: int = GRAPH_DEF_VERSION,
        min_consumer: int = GRAPH_DEF_VERSION_MIN_CONSUMER,
        msg: str | None = None,
    ) -> None:
        """Check that a GraphDef equals one given as text, with these versions."""
        versions = f"versions {{ producer: {producer} min_consumer: {min_consumer} }};"
        self.assertProtoEquals(f"{versions}\n{expected}", actual, msg=msg)

    @contextmanager
    def captureWritesToStream(self, stream: Any) -> Iterator[Any]:
        """Collect what is written to the file descriptor of `stream`: the result's `contents()`
        returns the text so far.
        """
        target = stream.fileno()
        stream.flush()
        kept = os.dup(target)
        with tempfile.TemporaryFile("w+b") as file:
            os.dup2(file.fileno(), target)
            try:
                yield _Captured(stream, file)
            finally:
                stream.flush()
                os.dup2(kept, target)
                os.close(kept)

    def assertDeviceEqual(self, device1: Any, device2: Any, msg: str | None = None) -> None:
        """Check that two device names, or devices, are the same."""
        names = [str(DeviceSpec.from_string(str(d)).to_string()) for d in (device1, device2)]
        message = f"Devices {names[0]} and {names[1]} are not equal. {msg or ''}"
        self.assertEqual(*names, msg=message)


class _Captured:
    """The text that a stream has written to a file."""

    def __init__(self, stream: Any, file: Any) -> None:
        self._stream = stream
        self._file = file
        self._text = ""

    def contents(self) -> str:
        """Return the text so far."""
        if not self._file.closed:
            self._stream.flush()
            self._file.seek(0)
            self._text = self._file.read().decode()
        return self._text


def _message(error: Exception) -> str:
    return error.message if isinstance(error, OpError) else str(error)  # without lines of the test


def _on_device(session: Session, use_gpu: bool, force_gpu: bool) -> Any:
    if force_gpu:
        return session.graph.device("/device:GPU:0")
    return nullcontext() if use_gpu else session.graph.device("/device:CPU:0")
