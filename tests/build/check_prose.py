#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the measurable part of the prose rule (CONTRIBUTING.md): check_prose.py [ROOT] [--list] [PATH...].

Counts words of comments, docstrings and documents that stand in for a noun or make code speak, per 1,000 words, and
exits with 1 if the whole tree exceeds a limit; docs/invariants.md, a copy of comments, is left out. --list prints every place below the given paths (default: everywhere).
"""

import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

# name, the words, the most of them per 1,000 words
LIMITS = (
    ("what", r"what(?!-if)", 1.0),
    ("say, tell, ask, know", r"say|says|said|saying|tell|tells|told|telling|ask|asks|asked|asking|know|knows|knew|known|knowing", 0.5),
    ("one, ones", r"one|ones", 3.0),
)
PATTERNS = [(name, re.compile(rf"\b(?:{words})\b", re.I), most) for name, words, most in LIMITS]
WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
CXX = {".hpp", ".cpp", ".cu", ".cuh", ".thrift"}
HASH = {".cmake", ".txt", ".sh"}
C_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|(//[^\n]*|/\*.*?\*/)', re.S)
SPDX = "SPDX-License-Identifier"


def of_cxx(text):
    for match in C_COMMENT.finditer(text):
        if match[1]:
            first = text.count("\n", 0, match.start()) + 1
            yield from ((first + at, line) for at, line in enumerate(match[1].splitlines()))


def of_shell(text):
    for number, line in enumerate(text.splitlines(), 1):
        if match := re.match(r"(?:.*\s)?(#(?!!).*)$", line):
            yield number, match[1]


def of_python(text):
    """Comments, and strings that are statements of their own."""
    before = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        opens = before in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.NL)
        if token.type == tokenize.COMMENT or token.type == tokenize.STRING and opens:
            yield from ((token.start[0] + at, line) for at, line in enumerate(token.string.splitlines()))
        if token.type != tokenize.COMMENT:
            before = token.type


def of_document(text):
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            inside = not inside
        elif not inside:
            yield number, re.sub(r"`[^`]*`|<!--.*?-->|\]\([^)]*\)", " ", line)


def reader_of(path, text):
    if path.suffix in CXX:
        return of_cxx
    if path.suffix == ".md":
        return of_document
    if path.suffix == ".py" or text.startswith("#!/usr/bin/env python3"):
        return of_python
    if path.suffix in HASH or text.startswith("#!"):
        return of_shell
    return None


def files(root):
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True, text=True)
    if listed.returncode == 0:
        return [root / name for name in listed.stdout.split("\0") if name]
    return [path for path in root.rglob("*") if path.is_file() and "build" not in path.relative_to(root).parts[:1]]


def prose(root):
    """(path, line number, text) of every line of prose below `root`."""
    for path in sorted(files(root)):
        if path.suffix not in CXX | HASH | {".md", ".py", ""} or not path.is_file() or path.name in ("LICENSE", "invariants.md"):
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        if reader := reader_of(path, text):
            relative = path.relative_to(root).as_posix()
            yield from ((relative, number, line) for number, line in reader(text) if SPDX not in line)


def main(arguments):
    wanted = [argument for argument in arguments if argument != "--list"]
    root = Path(wanted.pop(0) if wanted else Path(__file__).resolve().parents[2])
    words = 0
    counts = [0] * len(PATTERNS)
    for path, number, line in prose(root):
        if wanted and not path.startswith(tuple(wanted)):
            continue
        words += len(WORD.findall(line))
        for at, (name, pattern, _) in enumerate(PATTERNS):
            found = len(pattern.findall(line))
            counts[at] += found
            if found and "--list" in arguments:
                print(f"{path}:{number}: {name}: {line.strip()}")
    exceeded = False
    for (name, _, most), count in zip(PATTERNS, counts):
        rate = 1000 * count / max(words, 1)
        exceeded |= rate > most
        print(f"{name}: {rate:.2f} per 1,000 words of prose, at most {most} ({count} of {words})")
    return 1 if exceeded else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
