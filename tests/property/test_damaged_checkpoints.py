"""A checkpoint damaged at any byte of any file raises DataLossError, or gives the saved values."""

import shutil
from pathlib import Path

import pytest

from headrace._src.checkpoint.open_checkpoint import open_checkpoint
from headrace._src.core.errors import DataLossError
from tests.fixtures.checkpoints import tensors

RECORDED = Path(tensors.__file__).parent
FILES = [
    ("v2", "v2.index"),
    ("v2", "v2.data-00000-of-00001"),
    ("v2_slices", "v2_slices.index"),
    ("v1_slices", "v1_slices"),
]


def contents(prefix):
    with open_checkpoint(prefix) as checkpoint:
        read = {name: checkpoint.read(name) for name in checkpoint.stored}
    return {n: (v.dtype, v.shape, str(v.tolist())) for n, v in read.items()}


@pytest.mark.parametrize(("name", "damaged"), FILES)
def test_every_byte(tmp_path, name, damaged):
    for file in RECORDED.glob(f"{name}*"):
        shutil.copy(file, tmp_path)
    path, saved = tmp_path / damaged, contents(tmp_path / name)
    whole = path.read_bytes()
    lost = 0
    for at in range(len(whole)):
        flipped = whole[:at] + bytes([whole[at] ^ (1 << at % 8)]) + whole[at + 1 :]
        for data in (flipped, whole[:at]):
            path.write_bytes(data)
            try:
                found = contents(tmp_path / name)
            except DataLossError:
                lost += 1
            else:
                assert found == saved, f"byte {at}"
    # Only padding, and a block that is always empty, are not under a checksum.
    assert lost > 2 * len(whole) - 70
