#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keeps the documents true to the code: check_docs.py ROOT [--write].

DC-1: a code block below `<!-- file: PATH -->` equals that file.
DC-2: the list between `<!-- invariants -->` and `<!-- end of invariants -->` names every numbered invariant of the
      headers, with its header.
DC-3: every relative link leads to a file that is there.
--write brings blocks and list up to date; the wording of invariants is only compared by it, so that a header may be
reworded without touching the documents.
"""
import pathlib
import re
import sys

ROOMS = ("runtime", "transport", "sections", "actors", "apps")
BLOCK = re.compile(r"(<!-- file: (\S+) -->\n```\w*\n)(.*?)(^```$)", re.S | re.M)
LIST = re.compile(r"(<!-- invariants -->\n)(.*?)(<!-- end of invariants -->)", re.S)
ENTRY = re.compile(r"^\s*//+\s+(?:[^/]*: )?([A-Z]{2}-\d+): (.*)")
COMMENT = re.compile(r"^\s*//+(\s+)(\S.*)")
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)\s]*)?\)")


def documents(root):
    return sorted([root / "README.md", *root.glob("docs/**/*.md"), *root.glob("benchmarks/**/*.md")])


def invariants(root):
    """[(header, [(id, text)])] of all headers that number invariants, by room."""
    found = []
    for room in ROOMS:
        for header in sorted((root / room).rglob("*.hpp")):
            entries = []
            goes_on = False
            for line in header.read_text().splitlines():
                entry, comment = ENTRY.match(line), COMMENT.match(line)
                if entry:
                    entries.append([entry[1], entry[2]])
                elif goes_on and comment and (len(comment[1]) >= 4 or not entries[-1][1].endswith(".")):
                    entries[-1][1] += " " + comment[2]
                else:
                    goes_on = False
                    continue
                goes_on = True
            if entries:
                found.append((header.relative_to(root).as_posix(), entries))
    return found


def invariant_list(root):
    lines = []
    for header, entries in invariants(root):
        lines.append(f"\n[{header}](../{header})")
        lines += [f"- **{name}** {text}" for name, text in entries]
    return "\n".join(lines) + "\n"


def block_problems(root, document, text):
    for _, path, body, _ in BLOCK.findall(text):
        if not (root / path).is_file():
            yield f"{document}: shows {path}, which is not there"
        elif (root / path).read_text() != body:
            yield f"{document}: its copy of {path} differs"


def list_problems(root, document, text):
    for _, body, _ in LIST.findall(text):
        listed = set()
        header = ""
        for line in body.splitlines():
            if place := re.match(r"\[(\S+)\]\(", line):
                header = place[1]
            elif entry := re.match(r"- \*\*(\S+)\*\*", line):
                listed.add((header, entry[1]))
        there = {(header, name) for header, entries in invariants(root) for name, _ in entries}
        for header, name in sorted(there - listed):
            yield f"{document}: lacks {name} of {header}"
        for header, name in sorted(listed - there):
            yield f"{document}: lists {name} of {header}, which has none"


def link_problems(document, text):
    for target in LINK.findall(re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M)):
        if not (document.parent / target).exists():
            yield f"{document}: links to {target}, which is not there"


def problems(root):
    for document in documents(root):
        if not document.is_file():
            yield f"{document} is missing"
            continue
        text = document.read_text()
        yield from block_problems(root, document, text)
        yield from list_problems(root, document, text)
        yield from link_problems(document, text)


def write(root):
    for document in documents(root):
        text = document.read_text()
        fresh = BLOCK.sub(lambda m: m[1] + (root / m[2]).read_text() + m[4], text)
        fresh = LIST.sub(lambda m: m[1] + invariant_list(root) + "\n" + m[3], fresh)
        if fresh != text:
            document.write_text(fresh)


def main(arguments):
    root = pathlib.Path(arguments[0])
    if "--write" in arguments[1:]:
        write(root)
    found = list(problems(root))
    for problem in found:
        print(problem, file=sys.stderr)
    if found:
        print("to bring blocks and lists up to date: tests/build/check_docs.py . --write", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
