#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes character_ranges.inc: the class of every code point in Unicode 16.

Needs `pip install unicodedata2==16.0.0`. A range is `first << 8 | class`; the next range ends it.
"""

from pathlib import Path

import unicodedata2

# character.hpp names them.
SUBJECT = {"Lu": 1, "Lt": 1, "Ll": 2, "Lm": 3, "Lo": 3, "Mn": 4, "Mc": 4, "Me": 4, "Nd": 5, "Nl": 5, "No": 5}
SPACE, PUNCTUATION, CONNECTOR = 6, 16, 32
WHITE = {*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000}


def class_of(point):
    category = unicodedata2.category(chr(point))
    if point in WHITE:
        return SPACE
    return SUBJECT.get(category, 0) | PUNCTUATION * (category[0] == "P") | CONNECTOR * (category == "Pc")


def main():
    assert unicodedata2.unidata_version == "16.0.0", unicodedata2.unidata_version
    ranges, last = [], None
    for point in range(0x110000):
        now = class_of(point)
        if now != last:
            ranges.append(f"0x{point << 8 | now:x},")
            last = now
    lines, line = [], ""
    for entry in ranges:
        if len(line) + len(entry) > 118:
            lines.append(line.rstrip())
            line = ""
        line += entry + " "
    lines.append(line.rstrip())
    head = "// SPDX-License-Identifier: Apache-2.0\n// Made by make_character_ranges.py from the data of Unicode 16.\n"
    (Path(__file__).parent / "character_ranges.inc").write_text(head + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
