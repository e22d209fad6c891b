"""Image files of all kinds, written by hand: PNG, BMP and GIF. Valid Python 3.7, as the cases are.

The JPEG files were written by an encoder, and are kept in tests/fixtures/images.
"""

import os
import struct
import zlib

import numpy as np

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "fixtures")


def jpeg_file(name):
    with open(os.path.join(FOLDER, "images", name + ".jpg"), "rb") as file:
        return file.read()


def samples(height, width, channels, bits, seed=0):
    """Smooth rows with some noise, as integers of `bits` bits."""
    rng = np.random.RandomState(seed)
    y, x, c = np.mgrid[:height, :width, :channels]
    top = (1 << bits) - 1
    wave = 0.5 + 0.4 * np.sin(x / 5.0 + y / 3.0 + c) + rng.uniform(-0.1, 0.1, x.shape)
    return np.clip(wave * top, 0, top).astype(np.int64)


# -- PNG

ADAM7 = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2)]
ADAM7 += [(1, 0, 2, 1)]  # (row, column, step of rows, step of columns)
COLORS = {"gray": (0, 1), "rgb": (2, 3), "palette": (3, 1), "gray_alpha": (4, 2), "rgba": (6, 4)}


def chunk(kind, data):
    crc = zlib.crc32(kind + data) & 0xFFFFFFFF
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc)


def packed_rows(pixels, bits):
    height = pixels.shape[0]
    flat = pixels.reshape(height, -1)
    if bits == 16:
        return flat.astype(">u2").view(np.uint8).reshape(height, -1)
    if bits == 8:
        return flat.astype(np.uint8)
    binary = (flat[:, :, None] >> np.arange(bits - 1, -1, -1)) & 1
    return np.packbits(binary.reshape(height, -1).astype(np.uint8), axis=1)


def filtered(rows, step, filters):
    """Rows with a filter byte each: the filters in turn."""
    out = []
    above = np.zeros(rows.shape[1], np.int64)
    for i, row in enumerate(rows.astype(np.int64)):
        kind = filters[i % len(filters)]
        left = np.concatenate([np.zeros(step, np.int64), row])[: len(row)]
        corner = np.concatenate([np.zeros(step, np.int64), above])[: len(row)]
        guess = left + above - corner
        a, b, c = abs(guess - left), abs(guess - above), abs(guess - corner)
        paeth = np.where((a <= b) & (a <= c), left, np.where(b <= c, above, corner))
        zero = np.zeros_like(row)
        base = [zero, left, above, (left + above) // 2, paeth][kind]
        out.append(bytes(bytearray([kind])) + ((row - base) & 255).astype(np.uint8).tobytes())
        above = row
    return b"".join(out)


def png_file(
    color="rgb", bits=8, height=13, width=17, interlaced=False, filters=(0, 1, 2, 3, 4), extra=()
):
    """A PNG file; `extra`: (name, data) of chunks before the pixels."""
    kind, channels = COLORS[color]
    pixels = samples(height, width, channels, bits)
    colors = 1 << min(bits, 8)
    chunks = []
    if color == "palette":
        pixels = pixels * 7 % (colors if bits < 8 else 200)
        palette = np.random.RandomState(3).randint(0, 256, (min(colors, 200), 3))
        chunks.append((b"PLTE", palette.astype(np.uint8).tobytes()))
    step = max(1, channels * bits // 8)
    data = b""
    for top, left, down, right in ADAM7 if interlaced else [(0, 0, 1, 1)]:
        part = pixels[top::down, left::right]
        if part.size:
            data += filtered(packed_rows(part, bits), step, filters)
    header = struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, int(interlaced))
    body = zlib.compress(data)
    cut = len(body) // 2
    chunks = [(b"IHDR", header)] + chunks + list(extra)
    chunks += [(b"IDAT", body[:cut]), (b"IDAT", body[cut:]), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*c) for c in chunks)


# -- BMP


def bmp_file(channels=3, height=5, width=7, upside_down=False, header=40, gap=0):
    """A BMP file without compression; rows from the bottom unless upside_down."""
    pixels = samples(height, width, channels, 8).astype(np.uint8)
    rows = pixels if upside_down else pixels[::-1]
    size = (width * channels + 3) // 4 * 4
    data = b"".join(row.tobytes().ljust(size, b"\0") for row in rows)
    offset = 14 + header + gap
    signed = -height if upside_down else height
    info = struct.pack("<IiiHHIIiiII", header, width, signed, 1, channels * 8, 0, 0, 0, 0, 0, 0)
    start = struct.pack("<2sIHHI", b"BM", offset + len(data), 0, 0, offset)
    return start + info.ljust(header + gap, b"\0") + data


# -- GIF


def lzw(codes, bits):
    """LZW as GIF stores it, of color indices."""
    clear, end = 1 << bits, (1 << bits) + 1
    out, size, acc, count = bytearray(), bits + 1, 0, 0

    def put(code):
        nonlocal acc, count
        acc |= code << count
        count += size
        while count >= 8:
            out.append(acc & 255)
            acc >>= 8
            count -= 8

    put(clear)
    table = {(i,): i for i in range(clear)}
    word = ()
    for code in codes:
        longer = (*word, code)
        if longer in table:
            word = longer
            continue
        put(table[word])
        if len(table) + 2 < 4096:
            table[longer] = len(table) + 2
            if len(table) + 2 > (1 << size) and size < 12:
                size += 1
        else:
            put(clear)
            size = bits + 1
            table = {(i,): i for i in range(clear)}
        word = (code,)
    if word:
        put(table[word])
    put(end)
    if count:
        out.append(acc & 255)
    blocks = bytearray([bits])
    for i in range(0, len(out), 255):
        part = out[i : i + 255]
        blocks += bytearray([len(part)]) + part
    return bytes(blocks) + b"\0"


def gif_frame(
    left=0,
    top=0,
    height=11,
    width=9,
    colors=16,
    seed=0,
    local=False,
    interlaced=False,
    control=None,
):
    bits = max(2, (colors - 1).bit_length())
    pixels = samples(height, width, 1, bits, seed)[:, :, 0]
    if interlaced:
        order = [range(0, height, 8), range(4, height, 8), range(2, height, 4), range(1, height, 2)]
        pixels = pixels[[y for part in order for y in part]]
    flags = (0x80 | (bits - 1)) * local | 0x40 * interlaced
    data = b"" if control is None else b"\x21\xf9\x04" + control + b"\0"
    data += struct.pack("<BHHHHB", 0x2C, left, top, width, height, flags)
    if local:
        data += palette_bytes(1 << bits, seed + 50)
    return data + lzw(pixels.ravel().tolist(), bits)


def palette_bytes(colors, seed=9):
    return np.random.RandomState(seed).randint(0, 256, (colors, 3)).astype(np.uint8).tobytes()


def gif_file(frames, height=11, width=9, colors=16, version=b"GIF89a", shared=True):
    bits = max(2, (colors - 1).bit_length())
    flags = (0x80 | (bits - 1)) if shared else 0
    head = version + struct.pack("<HHBBB", width, height, flags, 0, 0)
    return head + (palette_bytes(1 << bits) if shared else b"") + b"".join(frames) + b";"
