"""Messages that TensorFlow 1.15 wrote (wire.jsonl.gz, see record_wire.py) survive a round trip."""

import base64
import gzip
import json
from pathlib import Path

import pytest
from google.protobuf import text_format
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from headrace._src.core import proto

RECORDING = Path(__file__).with_name("wire.jsonl.gz")
SAMPLES = [json.loads(line) for line in gzip.decompress(RECORDING.read_bytes()).splitlines()]


def messages_within(message: Message):
    yield message
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            holds_messages = field.message_type.fields_by_name["value"].message_type is not None
            value = value.values() if holds_messages else []
        for child in value if field.is_repeated else [value]:
            yield from messages_within(child)


def test_every_message_is_recorded():
    messages = {n for n in proto.__all__ if isinstance(getattr(proto, n), type)}
    assert messages == {name for name, _, _ in SAMPLES}


@pytest.mark.parametrize("name", sorted({name for name, _, _ in SAMPLES}))
def test_tensorflow_message_survives(name):
    cls = getattr(proto, name)
    for content, text in [(c, t) for n, c, t in SAMPLES if n == name]:
        wire = base64.b64decode(content)
        message = cls.FromString(wire)
        assert [m for m in messages_within(message) if len(UnknownFieldSet(m))] == []
        assert message.SerializeToString(deterministic=True) == wire
        assert text_format.Parse(text, cls()) == message  # names of fields and enum values
