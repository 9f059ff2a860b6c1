#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the measurable part of the prose rules (CONTRIBUTING.md): check_prose.py [ROOT] [--list] [--rates] [PATH...].

Counts chains of words and stand-ins for nouns per 1,000 words of a room, and exits with 1 if a room exceeds a limit. Words
are those of comments, docstrings, documents and the product's messages (string literals of four words or more). A room is
a folder of the second level in the product, and of the first level elsewhere. --list prints every place below the given
paths (default: everywhere), --rates a table of all rooms.
"""

import collections
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

# name, the pattern, the most places per 1,000 words. Text of a file is searched, with its lines joined by "\n".
LIMITS = (
    ("those of", r"\b(?:those|these|that)\s(?:of|that|which|who)\b", 0.3),
    ("of which", r"\b(?:of|by|from|in)\s(?:which|whom|whose)\b", 0.4),
    ("three of", None, 0.2),  # within twelve words
    ("where", r"\bwhere\b", 0.8),
    ("behind/beside/likewise/alone/whole/own", r"\b(?:behind|beside|likewise|alone|whole|own)\b", 1.5),
    ("is no NOUN", r"\b(?:is|are|has|have)\sno\b(?!\s(?:longer|more)\b)", 0.4),
    ("picture/mend", r"\b(?:pictures?|mend(?:s|ed|ing)?)\b", 0.1),
    ("field comment that starts with no noun", r"///< (?:of|likewise|by|as|those|its)\b", 0),
    ("function comment that starts with no verb", r"^/// (?:Of|Whether|Likewise|Behind|As)\b", 0),
)
PATTERNS = [(name, re.compile(pattern, re.M if "///" in pattern else re.I) if pattern else None, most)
            for name, pattern, most in LIMITS]
SMALL = 2  # places of a kind that a room of few words may have
PRODUCT = {"runtime", "transport", "sections", "actors", "apps"}
WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
CXX = {".hpp", ".cpp", ".cu", ".cuh", ".thrift"}
HASH = {".cmake", ".txt", ".sh"}
CXX_PROSE = re.compile(r'R"(\w*)\(.*?\)\1"|"((?:[^"\\\n]|\\.)*)"|(//[^\n]*|/\*.*?\*/)', re.S)
SPDX = "SPDX-License-Identifier"


def of_cxx(text, messages):
    for match in CXX_PROSE.finditer(text):
        first = text.count("\n", 0, match.start()) + 1
        if match[3]:
            yield from ((first + at, line.strip()) for at, line in enumerate(match[3].splitlines()))
        elif messages and match[2] and len(WORD.findall(match[2])) >= 4:
            yield first, match[2]


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


def prose_of(path, room, text):
    """(line number, text) of every line of prose, or nothing."""
    if path.suffix in CXX:
        return of_cxx(text, room.split("/")[0] in PRODUCT)
    if path.suffix == ".md":
        return of_document(text)
    if path.suffix == ".py" or text.startswith("#!/usr/bin/env python3"):
        return of_python(text)
    if path.suffix in HASH or text.startswith("#!"):
        return of_shell(text)
    return ()


def files(root):
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True, text=True)
    if listed.returncode == 0:
        return [root / name for name in listed.stdout.split("\0") if name]
    return [path for path in root.rglob("*") if path.is_file() and "build" not in path.relative_to(root).parts[:1]]


def room_of(relative):
    if len(relative.parts) == 1:
        return "."
    return "/".join(relative.parts[:2]) if relative.parts[0] in PRODUCT and len(relative.parts) > 2 else relative.parts[0]


def prose(root):
    """(path, room, lines) of every file with prose below `root`; lines are (number, text)."""
    for path in sorted(files(root)):
        if path.suffix not in CXX | HASH | {".md", ".py", ""} or path.name == "LICENSE" or not path.is_file():
            continue
        relative = path.relative_to(root)
        text = path.read_text(encoding="utf-8", errors="replace")
        lines = [(number, line) for number, line in prose_of(path, room_of(relative), text) if SPDX not in line]
        if lines:
            yield relative.as_posix(), room_of(relative), lines


def three_of(text):
    """Starts of chains: three times "of" within twelve words, each counted once."""
    words = list(WORD.finditer(text))
    found = [at for at, word in enumerate(words) if word[0].lower() == "of"]
    at = 0
    while at + 2 < len(found):
        if found[at + 2] - found[at] < 12:
            yield words[found[at]].start()
            at += 3
        else:
            at += 1


def places(lines):
    """(name, line number, line) of everything that is counted in a file."""
    text = "\n".join(line for _, line in lines)
    starts = [0]
    for _, line in lines:
        starts.append(starts[-1] + len(line) + 1)
    for name, pattern, _ in PATTERNS:
        at = 0
        for start in (match.start() for match in pattern.finditer(text)) if pattern else three_of(text):
            while starts[at + 1] <= start:
                at += 1
            yield (name, *lines[at])


def table(words, counts):
    print(" ".join(["room".ljust(22), "words".rjust(7), *(name[:9].rjust(9) for name, *_ in LIMITS)]))
    for room in sorted(words, key=lambda each: -words[each]):
        rates = (f"{1000 * counts[room][name] / words[room]:9.2f}" for name, *_ in LIMITS)
        print(" ".join([room.ljust(22), f"{words[room]:7}", *rates]))


def main(arguments):
    wanted = [argument for argument in arguments if not argument.startswith("--")]
    root = Path(wanted.pop(0) if wanted else Path(__file__).resolve().parents[2])
    words, counts = collections.Counter(), collections.defaultdict(collections.Counter)
    for path, room, lines in prose(root):
        if wanted and not path.startswith(tuple(wanted)):
            continue
        words[room] += sum(len(WORD.findall(line)) for _, line in lines)
        for name, number, line in places(lines):
            counts[room][name] += 1
            if "--list" in arguments:
                print(f"{path}:{number}: {name}: {line.strip()}")
    if "--rates" in arguments:
        table(words, counts)
    exceeded = [(room, name, most) for room in sorted(words) for name, _, most in LIMITS
                if counts[room][name] > max(most * words[room] / 1000, SMALL if most else 0)]
    for room, name, most in exceeded:
        print(f"{room}: {name}: {counts[room][name]} places in {words[room]} words, "
              f"{1000 * counts[room][name] / words[room]:.2f} per 1,000, at most {most}")
    return 1 if exceeded else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
