# SPDX-License-Identifier: Apache-2.0
"""Random changes of valid input: of bytes, of text with numbers, strings and keys, and of the nesting of values."""

import re

NUMBERS = ["0", "-1", "1", "2", "0.5", "-0.0", "1e-300", "1e300", "1e308", "1e999", "-1e999", "9" * 400, "-" + "9" * 400,
           "0." + "3" * 400, "65536", "2147483647", "2147483648", "4294967296", "9007199254740993", "1099511627776",
           "9223372036854775807", "9223372036854775808", "18446744073709551615", "18446744073709551616", "nan", "inf",
           "1e1000000000", "0x7fffffffffffffff", "true", "null"]
STRINGS = ["", "a" * 5000, "line\\nbreak", "two\\n  lines", "\\u001b[2J", "\\u009b2J", "\\u0000", "caf\\u00e9", "../../etc",
           "/dev/zero", ".", "%s%n", "\\ud800", "\u202eturned", "x" * 70000]
ODD_BYTES = [b"\0", b"\n", b"\x1b", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc2\x9b", b"\r", b"\x7f", b"[", b"{", b'"', b","]
DEPTHS = [10, 63, 64, 65, 300, 5000, 100_000, 300_000]
NUMBER = re.compile(rb"-?\b\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\b")
QUOTED = re.compile(rb'"(?:[^"\\\n]|\\.)*"')
VALUE = re.compile(rb'-?\b\d+(?:\.\d+)?\b|"(?:[^"\\\n]|\\.)*"|\b(?:true|false|null)\b')


def span(rng, data, longest=200):
    begin = rng.randrange(len(data) + 1)
    return begin, min(len(data), begin + rng.randint(1, longest))


def flip_bits(rng, data):
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8])):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def cut(rng, data):
    return data[:rng.randrange(len(data) + 1)]


def drop(rng, data):
    begin, end = span(rng, data)
    return data[:begin] + data[end:]


def splice(rng, data):
    begin, end = span(rng, data)
    at = rng.randrange(len(data) + 1)
    return data[:at] + data[begin:end] + data[at:]


def repeat(rng, data):
    begin, end = span(rng, data, 60)
    return data[:end] + data[begin:end] * rng.choice([1, 3, 100, 1000]) + data[end:]


def insert(rng, data):
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice(ODD_BYTES) * rng.choice([1, 1, 1, 50]) + data[at:]


def noise(rng, data):
    begin, end = span(rng, data, 16)
    return data[:begin] + rng.randbytes(end - begin) + data[end:]


def replace_match(rng, data, pattern, text):
    found = list(pattern.finditer(data))
    if not found:
        return flip_bits(rng, data)
    match = rng.choice(found)
    return data[:match.start()] + text + data[match.end():]


def other_number(rng, data):
    return replace_match(rng, data, NUMBER, rng.choice(NUMBERS).encode())


def other_string(rng, data):
    return replace_match(rng, data, QUOTED, b'"' + rng.choice(STRINGS).encode() + b'"')


def other_value(rng, data):
    values = NUMBERS + [f'"{text}"' for text in STRINGS] + ["[]", "{}", "[1, 2]", '{"a": 1}', '[["a"]]']
    return replace_match(rng, data, VALUE, rng.choice(values).encode())


def nest(rng, data):
    depth = rng.choice(DEPTHS)
    opening, closing = rng.choice([(b"[", b"]"), (b'{"a":', b"}"), (b"[[],", b"]"), (b"{a=", b"}")])
    inner = b"1" + (closing * depth if rng.random() < 0.8 else b"")
    return replace_match(rng, data, VALUE, opening * depth + inner)


def swap_lines(rng, data):
    lines = data.split(b"\n")
    a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    return b"\n".join(lines)


def repeat_line(rng, data):
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    return b"\n".join(lines[:at] + [lines[at]] * rng.choice([2, 2, 50]) + lines[at + 1:])


BYTES = [flip_bits, flip_bits, cut, drop, splice, repeat, insert, noise]
TEXT = [other_number, other_number, other_string, other_value, other_value, nest, swap_lines, repeat_line]


def changed_bytes(rng, data):
    for _ in range(rng.choice([1, 1, 2, 4])):
        data = rng.choice(BYTES)(rng, data)
    return data


def changed_text(rng, data):
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        data = rng.choice(TEXT if rng.random() < 0.7 else BYTES)(rng, data)
    return data
