# SPDX-License-Identifier: Apache-2.0
"""The page of the C++ interface, made from the comments of the headers that include/maestro exports."""
import re
from pathlib import Path

EXPORT = re.compile(r'#include "([^"]+)"\s*// IWYU pragma: export')
INDENTED = re.compile(r"^( *)///(?!<) ?(.*)$")
SCOPE = re.compile(r"^(?:template <[^>]*>\s*)?(?:class|struct|enum class) (?:\[\[\w+\]\] )?(\w+)")


def declaration(lines, at):
    """The declaration that begins in line `at`, on one line, without its body, and the line after it, or None for a body."""
    text, end = "", at
    while end < min(at + 12, len(lines)):
        text += " " + lines[end].strip()
        end += 1
        if re.search(r"[;{]", text):
            break
    after = end if ";" in text and "{" not in text else None
    text = re.split(r"[;{]| : (?!:)", text.strip())[0].strip()
    return re.sub(r"\s+", " ", text.replace("[[nodiscard]] ", "").replace("virtual ", "")), after


def entries(header):
    """(depth, declaration, documentation) of everything in a header that has a comment of ///."""
    lines = header.read_text(encoding="utf-8").splitlines()
    at, private = 0, None  # the indentation of a private part
    while at < len(lines):
        if access := re.match(r"( *) (private|protected|public):", lines[at]):
            private = len(access[1]) if access[2] == "private" else None
        elif private is not None and re.match(r" {0,%d}}" % private, lines[at]):
            private = None
        match = INDENTED.match(lines[at]) if private is None else None
        if not match:
            at += 1
            continue
        depth, words = len(match[1]) // 2, []
        while at < len(lines) and (match := INDENTED.match(lines[at])):
            words.append(match[2])
            at += 1
        next_line, text = at, " ".join(words)
        while next_line is not None and next_line < len(lines) and re.match(r" *[\w\[~:<]", lines[next_line]):
            code, next_line = declaration(lines, next_line)
            if SCOPE.match(code) and text == "As above.":
                break
            yield depth, code, text
            text = "As above."


def description(header):
    """The comment at the top of a header, without its invariants."""
    words = []
    for line in header.read_text(encoding="utf-8").splitlines()[1:]:
        if not line.startswith("//") or re.match(r"// [A-Z]{2}-\d", line) or line == "//":
            break
        words.append(line.removeprefix("//").strip())
    return " ".join(words)


def escaped(text):
    """Text whose marks mean nothing to Markdown, except in code."""
    parts = text.split("`")
    return "`".join(part if at % 2 else part.replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")
                    for at, part in enumerate(parts))


def page(root):
    root = Path(root)
    lines = ["# C++ interface", "", "Made from the public headers, `#include <maestro/NAME.hpp>`. Everything is in the "
             "namespace `maestro`.", ""]
    for public in sorted((root / "include/maestro").glob("*.hpp")):
        lines += [f"## maestro/{public.name}", "", escaped(description(public)), ""]
        for exported in EXPORT.findall(public.read_text(encoding="utf-8")):
            header = root / exported
            lines += [f"### {exported}", "", escaped(description(header)), ""]
            for depth, code, text in entries(header):
                if SCOPE.match(code):
                    lines += [f"#### `{code}`", "", escaped(text), ""]
                else:
                    lines += [f"- `{code}`  ", f"  {escaped(text)}", ""]
    return "\n".join(lines)
