#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes case_ranges.inc: the case mappings of Python (str.upper(), lower() and title()) beyond ASCII.

A range is {first, last, step, kind, distance}; a character that becomes several, or whose title differs from its capital,
is {character, kind, "text"}.
"""
from pathlib import Path

KINDS = {"upper": str.upper, "lower": str.lower, "title": str.title}


def ranges_of(kind, change):
    ranges = []
    for point in range(128, 0x110000):
        if 0xD800 <= point < 0xE000:
            continue
        made = change(chr(point))
        if len(made) != 1 or ord(made) == point:
            continue
        distance = ord(made) - point
        last = ranges[-1] if ranges else None
        if last and last[3] == distance and point - last[1] <= 2 and last[2] in (0, point - last[1]):
            last[1], last[2] = point, point - last[1]
        else:
            ranges.append([point, point, 0, distance])
    return [f"{{0x{first:x}, 0x{last:x}, {step or 1}, CaseKind::{kind}, {distance}}}" for first, last, step, distance in ranges]


def specials_of(kind, change):
    made = []
    for point in range(128, 0x110000):
        if 0xD800 <= point < 0xE000:
            continue
        text = change(chr(point))
        if len(text) > 1:
            escaped = "".join(c if ord(c) < 128 else f"\\u{ord(c):04x}" for c in text)
            made.append(f'{{0x{point:x}, CaseKind::{kind}, "{escaped}"}}')
    return made


def lines_of(name, kind, entries):
    lines, line = [], "   "
    for entry in entries:
        if len(line) + len(entry) > 116:
            lines.append(line)
            line = "   "
        line += " " + entry + ","
    return [f"constexpr {kind} {name}[] = {{", *lines, line.rstrip(","), "};"]


def main():
    simple = [entry for kind in ("upper", "lower") for entry in ranges_of(kind, KINDS[kind])]
    titles = [entry for entry in ranges_of("title", str.title)
              if entry.replace("CaseKind::title", "CaseKind::upper") not in set(simple)]
    special = [entry for kind, change in KINDS.items() for entry in specials_of(kind, change)]
    head = ["// SPDX-License-Identifier: Apache-2.0", "// Made by make_case_ranges.py from the data of Python."]
    text = head + lines_of("case_ranges", "CaseRange", simple + titles) + lines_of("case_texts", "CaseText", special)
    (Path(__file__).parent / "case_ranges.inc").write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
