# SPDX-License-Identifier: Apache-2.0
"""The width of Markdown: wrap() wraps paragraphs and list items with longer lines at 100 columns.

Code, tables, headings, HTML, block quotes, admonitions, link definitions, lines that are a single link, generated
parts (`<!-- NAME -->` to `<!-- end of NAME -->`) and paragraphs with hard line breaks stay as they are. Code spans,
link targets and HTML tags are not broken, and no line begins with a word that would begin a block. wrap(wrap(text))
equals wrap(text).
"""
import re

WIDTH = 100
MARK = r"(?:[-*+]|\d+[.)])"
ITEM = re.compile(rf"\s*{MARK}\s+(?=\S)")
FENCE = re.compile(rf"\s*(?:{MARK}\s+)?(`{{3,}}(?=[^`]*$)|~{{3,}})")
GENERATED = re.compile(r"<!-- (\w[\w ]*) -->$")
# A line that begins a block or is a block. RULE also underlines a heading.
RULE = re.compile(r"\s*(?:=+|(?:[-*_]\s*){3,})$")
VERBATIM = re.compile(r"\s*(?:#{1,6}(?:\s|$)|[>|<]|!!!|\?\?\?|\[[^\]]+\]:)|" + RULE.pattern)
TO_BLANK = re.compile(r"\s*(?:>|<(?!!--.*-->\s*$)|!!!|\?\?\?)")
HARD_BREAK = re.compile(r"(?:  |\\)\n")
DELIMITERS = re.compile(r"^(?=.*-)[\s:|-]*\|[\s:|-]*$", re.M)
LINK_ONLY = re.compile(r"!?\[[^\]]*\]\([^)]*\)[.,:;]?$")
WORD = re.compile(r"(?:(`+)(?!`).*?(?<!`)\1(?!`)|\]\((?:[^()]|\([^()]*\))*\)|<[A-Za-z/!][^<>]*>|\S)+")
BEGINS_A_BLOCK = re.compile(rf"{MARK}$|#{{1,6}}$|[>|<]|~~~|```|!!!|\?\?\?|:$|\[[^\]]+\]:|" + RULE.pattern)


def indentation(line):
    return len(line) - len(line.lstrip())


def paragraphs(lines):
    """Yields (first line, line after the last) of every paragraph and list item that may be wrapped."""
    at, inside, after_blank = 0, 0, True  # inside: text column of the current list item
    while at < len(lines):
        line, begin = lines[at], at
        at += 1
        if not line.strip():
            after_blank = True
            continue
        if after_blank and indentation(line) == 0:
            inside = 0
        if fence := FENCE.match(line):
            closed = re.compile(rf"\s*{fence[1][0]}{{{len(fence[1])},}}\s*$")
            while at < len(lines) and not closed.match(lines[at]):
                at += 1
            at += 1
        elif (name := GENERATED.match(line)) and f"<!-- end of {name[1]} -->" in lines[at:]:
            at = lines.index(f"<!-- end of {name[1]} -->", at)
        elif VERBATIM.match(line):
            while TO_BLANK.match(line) and at < len(lines) and lines[at].strip():
                at += 1
        elif after_blank and indentation(line) >= inside + 4:
            continue  # code, which may continue after a blank line
        else:
            item = ITEM.match(line)
            inside = item.end() if item else inside
            while at < len(lines) and lines[at].strip() and not (
                    ITEM.match(lines[at]) or FENCE.match(lines[at]) or VERBATIM.match(lines[at])):
                at += 1
            if at == len(lines) or not RULE.match(lines[at]):
                yield begin, at
        after_blank = False


def words_of(text):
    """Returns the words of a paragraph; a word that could begin a block stays joined to the word before it."""
    words = []
    for match in WORD.finditer(text):
        if words and (BEGINS_A_BLOCK.match(match[0]) or words[-1].endswith("\\")):
            words[-1] += " " + match[0]
        else:
            words.append(match[0])
    return words


def wrapped(lines):
    """Returns the lines of a paragraph or list item, wrapped if one of them is too long."""
    text = "\n".join(lines)
    mark = ITEM.match(lines[0])
    first = mark[0] if mark else lines[0][:indentation(lines[0])]
    if (max(map(len, lines)) <= WIDTH or HARD_BREAK.search(text) or DELIMITERS.search(text) or
            len(lines) == 1 and LINK_ONLY.match(lines[0][len(first):])):
        return lines
    found, line = [], ""
    for word in words_of(" ".join([lines[0][len(first):], *map(str.strip, lines[1:])])):
        if line and len(first) + len(line) + 1 + len(word) > WIDTH:
            found.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [(" " * len(first) if at else first) + part for at, part in enumerate([*found, line])]


def wrap(text):
    lines = text.split("\n")
    for begin, end in reversed(list(paragraphs(lines))):
        lines[begin:end] = wrapped(lines[begin:end])
    return "\n".join(lines)


def too_long(text):
    """Yields (line number, columns) of the first long line of every paragraph that wrap() would change."""
    lines = text.split("\n")
    for begin, end in paragraphs(lines):
        if wrapped(lines[begin:end]) != lines[begin:end]:
            yield next((at + 1, len(lines[at])) for at in range(begin, end) if len(lines[at]) > WIDTH)
