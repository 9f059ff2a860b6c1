# SPDX-License-Identifier: Apache-2.0
"""Formats that carry checksums and lengths: changes inside them, with both put right."""

import base64
import ctypes
import ctypes.util
import json
import struct
import zlib

from mutators import changed_bytes, changed_text

# Made by libjpeg 6.2: 16 x 16, baseline; progressive; four components with a restart interval.
JPEGS = [base64.b64decode(text) for text in (
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDABsSFBcUERsXFhceHBsgKEIrKCUlKFE6PTBCYFVlZF9VXVtqeJmBanGQc1tdhbWGkJ6jq62rZ4C8ybqm"
    "x5moq6T/2wBDARweHigjKE4rK06kbl1upKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKT/wAARCAAQABAD"
    "ASIAAhEBAxEB/8QAFgABAQEAAAAAAAAAAAAAAAAABAMF/8QAIhAAAQMCBgMAAAAAAAAAAAAAAQIDBAAhBhExQVGRIjKx/8QAFAEBAAAAAAAAAAAA"
    "AAAAAAAAAP/EABURAQEAAAAAAAAAAAAAAAAAAAAB/9oADAMBAAIRAxEAPwAMBnS1bqVohxHJCxZCc8uTsO6HAZ0tU8QPhS2YSD6+bgHOw+9ilI//"
    "2Q==",
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDABsSFBcUERsXFhceHBsgKEIrKCUlKFE6PTBCYFVlZF9VXVtqeJmBanGQc1tdhbWGkJ6jq62rZ4C8ybqm"
    "x5moq6T/2wBDARweHigjKE4rK06kbl1upKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKT/wgARCAAQABAD"
    "ASIAAhEBAxEB/8QAFgABAQEAAAAAAAAAAAAAAAAAAwIE/8QAFAEBAAAAAAAAAAAAAAAAAAAAAP/aAAwDAQACEAMQAAABDcMn/8QAGBAAAwEBAAAA"
    "AAAAAAAAAAAAAAECBDL/2gAIAQEAAQUChHEwjQz/xAAUEQEAAAAAAAAAAAAAAAAAAAAA/9oACAEDAQE/AX//xAAUEQEAAAAAAAAAAAAAAAAAAAAA"
    "/9oACAECAQE/AX//xAAYEAADAQEAAAAAAAAAAAAAAAAAAQIQkf/aAAgBAQAGPwIdYo6f/8QAGRABAAIDAAAAAAAAAAAAAAAAAQBBEBEh/9oACAEB"
    "AAE/IZiKUY9qVdj/2gAMAwEAAgADAAAAEHP/xAAVEQEBAAAAAAAAAAAAAAAAAAAAAf/aAAgBAwEBPxCP/8QAFREBAQAAAAAAAAAAAAAAAAAAAAH/"
    "2gAIAQIBAT8Qr//EABwQAAEEAwEAAAAAAAAAAAAAAAEAESFRMUGRsf/aAAgBAQABPxDFCDTDzWdDqxQgldIXoe9C/9k=",
    "/9j/7gAOQWRvYmUAZAAAAAAA/9sAQwAbEhQXFBEbFxYXHhwbIChCKyglJShROj0wQmBVZWRfVV1baniZgWpxkHNbXYW1hpCeo6utq2eAvMm6pseZ"
    "qKuk/8AAFAgAEAAQBEMRAE0RAFkRAEsRAP/EABcAAQEBAQAAAAAAAAAAAAAAAAQDAAL/xAAnEAACAQMDAwMFAAAAAAAAAAABAhEAAwQFITESQZET"
    "YaE0UWNxwv/dAAQAAf/aAA4EQwBNAFkASwAAPwAul2eNqPpdnjaoaXZ42qWl2eNq/9Da5c+nwwv5WMfsCPn4ra656sbEEwB6jbCD2H9ea51u515F"
    "jFU7W162hu54kfcAfNT1pxdzrOOsEWVk7GQzdvAHmv/RvpdnjakaXZ42pGm21RetyFVRJJMAClabbVF63IVVEkkwAK//0iFxmaleviCrNCkAiVGw"
    "O/sBQ7bnMzruQZh2lZABC9h4ii23OZnXcgzDtKyACF7DxFEx2bLy7mQwM3GLQTMDsJ9uK//Z",
)]

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
SIZES = [0, 1, 2, 255, 16384, 16385, 65535, 0x7fffffff, 0x80000000, 0xffffffff]


def chunk(kind, body, length=None):
    return (struct.pack(">I", len(body) if length is None else length) + kind + body +
            struct.pack(">I", zlib.crc32(kind + body)))


def png(side=16, colour_type=2):
    """Rows of `side` pixels: grey, RGB, palette, grey with alpha or RGBA, 8 bits a sample."""
    samples = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour_type]
    rows = b"".join(b"\0" + bytes((x * y) % 251 for x in range(side * samples)) for y in range(side))
    header = struct.pack(">IIBBBBB", side, side, 8, colour_type, 0, 0, 0)
    palette = [(b"PLTE", bytes(range(256)) * 3)] if colour_type == 3 else []
    return [(b"IHDR", header), *palette, (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]


def changed_png(rng):
    """A picture with one or two changed chunks; every checksum is right."""
    chunks = png(16, rng.choice([0, 2, 3, 4, 6]))
    length = None
    for _ in range(rng.choice([1, 1, 2])):
        at = rng.randrange(len(chunks))
        kind, body = chunks[at]
        way = rng.randrange(6)
        if way == 0 and chunks[0][0] == b"IHDR" and len(chunks[0][1]) == 13:
            at, (kind, body) = 0, chunks[0]
            width, height = (rng.choice([16, rng.choice(SIZES)]) for _ in range(2))
            if rng.random() < 0.3:  # a great picture in a small file
                width = height = rng.choice([4096, 13000, 16384])
            chunks[at] = (kind, struct.pack(">II", width, height) +
                          bytes(rng.choice([body[8 + i], rng.randrange(256)]) for i in range(5)))
        elif way == 1 and kind == b"IDAT":
            try:
                chunks[at] = (kind, zlib.compress(changed_bytes(rng, zlib.decompress(body))))
            except zlib.error:
                chunks[at] = (kind, changed_bytes(rng, body))
        elif way == 2:
            del chunks[at]
        elif way == 3:
            chunks.insert(rng.randrange(len(chunks) + 1), chunks[at])
        elif way == 4:
            length = (at, rng.choice(SIZES))
        else:
            chunks[at] = (kind, changed_bytes(rng, body))
        if not chunks:
            break
    data = PNG_SIGNATURE + b"".join(
        chunk(kind, body, length[1] if length and length[0] == at else None) for at, (kind, body) in enumerate(chunks))
    return changed_bytes(rng, data) if rng.random() < 0.2 else data


def changed_jpeg(rng):
    data = bytearray(rng.choice(JPEGS))
    if rng.random() < 0.5:  # the length or the first bytes of a segment
        markers = [at for at in range(2, len(data) - 8) if data[at] == 0xff and data[at + 1] not in (0, 0xff)]
        at = rng.choice(markers)
        place = at + rng.randint(1, 8)
        data[place] = rng.choice([0, 1, 255, rng.randrange(256)])
    return changed_bytes(rng, bytes(data)) if rng.random() < 0.7 else bytes(data)


def changed_safetensors(rng, data):
    """Mostly of the header, whose length is put right; sometimes of the length itself or anywhere."""
    length = struct.unpack("<Q", data[:8])[0]
    if rng.random() < 0.8:
        header = changed_text(rng, data[8:8 + length])
        claimed = len(header) if rng.random() < 0.9 else rng.choice([0, 1, 8, 2**31, 2**63, 2**64 - 1])
        return struct.pack("<Q", claimed) + header + data[8 + length:]
    return changed_bytes(rng, data)


class Xxh128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


def load_xxh3():
    """XXH3-128 as 32 hexadecimal digits, by the library that the program is linked with."""
    library = ctypes.CDLL(ctypes.util.find_library("xxhash") or "libxxhash.so.0")
    library.XXH3_128bits.restype = Xxh128
    library.XXH3_128bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]

    def digits(data):
        value = library.XXH3_128bits(data, len(data))
        return f"{value.high:016x}{value.low:016x}"
    return digits


def sealed(manifest, xxh3):
    """The text of a checkpoint.json with its own checksum put right."""
    manifest = {key: value for key, value in manifest.items() if key != "self_xxh3_128"}
    compact = json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    manifest["self_xxh3_128"] = xxh3(compact.encode(errors="surrogatepass"))
    return json.dumps(manifest, sort_keys=True, ensure_ascii=False).encode(errors="surrogatepass")


def resealed(text, xxh3):
    """`text` with its checksum put right, where it is still JSON of an object."""
    try:
        manifest = json.loads(text)
        return sealed(manifest, xxh3) if isinstance(manifest, dict) else text
    except (ValueError, RecursionError):
        return text
