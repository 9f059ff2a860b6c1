#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the documents match the code: check_docs.py ROOT [--write | --wrap | --invariants].

DC-1 (copies): a code block below `<!-- file: PATH -->` equals that file.
DC-2 (page of invariants): invariant_page() names every numbered invariant of the headers, with its header; `./run docs`
      writes it to docs/invariants.md (share/site/hooks.py).
DC-3 (links): every relative link leads to a file that exists, or to that page.
DC-4 (citable invariants): an invariant has a name in parentheses and is defined once, its prefix belongs to one header
      (and the sources of its name), a file below tests/ cites it, and documents cite no other codes.
DC-5 (licence): every source file and script names its licence in its first two lines.
DC-6 (rooms): the table between `<!-- rooms -->` and `<!-- end of rooms -->` is the output of check_layers.py --table.
DC-7 (version): copies of the version equal the version in CMakeLists.txt.
DC-8 (width): paragraphs and list items of Markdown have at most 100 columns (markdown_width.py).
--write updates blocks, table and versions. --wrap wraps long paragraphs. --invariants checks only DC-4.
"""
import collections
import pathlib
import re
import sys

import check_layers
import check_prose
import markdown_width

ROOMS = ("runtime", "transport", "sections", "actors", "apps", "include")
BLOCK = re.compile(r"(<!-- file: (\S+) -->\n```\w*\n)(.*?)(^```$)", re.S | re.M)
TABLE = re.compile(r"(<!-- rooms -->\n)(.*?)(<!-- end of rooms -->)", re.S)
ENTRY = re.compile(r"^\s*//+\s+(?:[^/]*: )?([A-Z]{2}-\d+)(?: \(([^()]+)\))?: (.*)")
COMMENT = re.compile(r"^\s*//+(\s+)(\S.*)")
CODE = re.compile(r"\b[A-Z]{2}-\d+\b")
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)\s]*)?\)")
HEADERS = {".hpp", ".cuh"}
SOURCES = {".cpp", ".cu", ".thrift"}
INVARIANT_PAGE = "docs/invariants.md"
VERSION = re.compile(r"^project\(maestro VERSION (\S+)", re.M)
VERSION_COPIES = {"apps/python/pyproject.toml": re.compile(r'(?<=^version = ")[^"]+', re.M),
                  "clients/python/pyproject.toml": re.compile(r'(?<=^version = ")[^"]+', re.M),
                  "share/maestro/kubernetes.yml": re.compile(r"(?<=/maestro:)\S+")}
LICENCE = "SPDX-License-Identifier: Apache-2.0"

Invariant = collections.namedtuple("Invariant", "code name text")


def documents(root):
    folders = ("*.md", "docs/**/*.md", "benchmarks/**/*.md")
    return sorted({root / "README.md", *(document for pattern in folders for document in root.glob(pattern))})


def entries_of(file):
    """Returns the invariants that a file defines; in a source, only named invariants, since it may cite others."""
    found = []
    goes_on = False
    for line in file.read_text(encoding="utf-8").splitlines():
        entry, comment = ENTRY.match(line), COMMENT.match(line)
        if entry and (entry[2] or file.suffix in HEADERS):
            found.append(list(entry.groups()))
        elif goes_on and comment and (len(comment[1]) >= 4 or not found[-1][2].endswith(".")):
            found[-1][2] += " " + comment[2]
        else:
            goes_on = False
            continue
        goes_on = True
    return [Invariant(*entry) for entry in found]


def invariants(root, suffixes=frozenset(HEADERS)):
    """Returns [(path, [Invariant])] of all files that define invariants, by room."""
    found = []
    for room in ROOMS:
        for file in sorted((root / room).rglob("*")):
            entries = entries_of(file) if file.suffix in suffixes else []
            if entries:
                found.append((file.relative_to(root).as_posix(), entries))
    return found


def invariant_page(root):
    lines = ["# Invariants\n", "The numbered invariants of all headers. The header is the contract, with the words around its",
             "invariants. Tests cite an invariant by its code."]
    for header, entries in invariants(root):
        lines.append(f"\n[{header}](../{header})")
        lines += [f"- **{code}**{f' ({name})' if name else ''} {text}" for code, name, text in entries]
    return "\n".join(lines) + "\n"


def room_table():
    return "\n".join(check_layers.table()) + "\n"


def block_problems(root, document, text):
    for _, path, body, _ in BLOCK.findall(text):
        if not (root / path).is_file():
            yield f"{document}: shows {path}, which is not there"
        elif (root / path).read_text() != body:
            yield f"{document}: its copy of {path} differs"


def table_problems(document, text):
    for _, body, _ in TABLE.findall(text):
        if body != room_table():
            yield f"{document}: its table of rooms differs from check_layers.py --table"


def link_problems(root, document, text):
    for target in LINK.findall(re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M)):
        path = document.parent / target
        if not path.exists() and path.resolve() != (root / INVARIANT_PAGE).resolve():
            yield f"{document}: links to {target}, which is not there"


def licence_problems(root):
    for file in sorted(check_prose.files(root)):
        named = file.suffix in HEADERS | SOURCES | {".py", ".cmake", ".sh"} or file.name == "CMakeLists.txt"
        if not file.is_file() or not named and file.suffix:
            continue
        head = file.read_text(encoding="utf-8", errors="replace").split("\n", 2)[:2]
        if (named or head[0].startswith("#!")) and not any(LICENCE in line for line in head):
            yield f"{file}: the first two lines lack '{LICENCE}'"


def version_copies(root):
    """Returns [(file, pattern of its version)], with the version, if the tree has a version."""
    build = root / "CMakeLists.txt"
    found = VERSION.search(build.read_text()) if build.is_file() else None
    return (found[1], [(root / path, pattern) for path, pattern in VERSION_COPIES.items()]) if found else (None, [])


def version_problems(root):
    version, copies = version_copies(root)
    for file, pattern in copies:
        found = set(pattern.findall(file.read_text())) if file.is_file() else set()
        if found != {version}:
            yield f"{file}: has version {', '.join(sorted(found)) or 'none'}, CMakeLists.txt has {version}"


def pages(root):
    return sorted(file for file in check_prose.files(root) if file.suffix == ".md" and file.is_file())


def width_problems(root):
    for page in pages(root):
        for line, columns in markdown_width.too_long(page.read_text()):
            yield (f"{page}:{line}: has {columns} columns, at most {markdown_width.WIDTH}; "
                   "check_docs.py . --wrap wraps it")


def problems(root):
    for document in documents(root):
        if not document.is_file():
            yield f"{document} is missing"
            continue
        text = document.read_text()
        yield from block_problems(root, document, text)
        yield from table_problems(document, text)
        yield from link_problems(root, document, text)
    yield from licence_problems(root)
    yield from version_problems(root)
    yield from width_problems(root)


def cited(root):
    """Returns the codes that files below tests/ cite, without the made-up codes in this check's test."""
    files = [file for file in (root / "tests").rglob("*") if file.is_file() and file.name != "check_docs_test.py"]
    return {code for file in files for code in CODE.findall(file.read_text(encoding="utf-8", errors="replace"))}


def invariant_problems(root):
    citations = cited(root)
    codes = {}
    prefixes = {}
    for path, entries in invariants(root, HEADERS | SOURCES):
        for code, name, _ in entries:
            if name is None:
                yield f"{path}: {code} has no name; write '{code} (name): ...'"
            if code in codes:
                yield f"{path}: {code} is defined in {codes[code]}, too"
            elif code not in citations:
                yield f"{path}: {code} is cited by no file below tests/"
            codes.setdefault(code, path)
            owner = prefixes.setdefault(code[:2], path)
            if pathlib.Path(owner).with_suffix("") != pathlib.Path(path).with_suffix(""):
                yield f"{path}: the prefix of {code} belongs to {owner}"
    for document in filter(pathlib.Path.is_file, documents(root)):
        for code in sorted(set(CODE.findall(document.read_text())) - codes.keys()):
            yield f"{document.relative_to(root)}: cites {code}, which no header defines"


def write(root):
    for document in documents(root):
        text = document.read_text()
        fresh = BLOCK.sub(lambda m: m[1] + (root / m[2]).read_text() + m[4], text)
        fresh = TABLE.sub(lambda m: m[1] + room_table() + m[3], fresh)
        if fresh != text:
            document.write_text(fresh)
    version, copies = version_copies(root)
    for file, pattern in copies:
        file.write_text(pattern.sub(version, file.read_text()))


def wrap(root):
    for page in pages(root):
        text = page.read_text()
        fresh = markdown_width.wrap(text)
        if fresh != text:
            page.write_text(fresh)


def main(arguments):
    root = pathlib.Path(arguments[0])
    if "--write" in arguments[1:]:
        write(root)
    if "--wrap" in arguments[1:]:
        wrap(root)
    alone = "--invariants" in arguments[1:]
    found = list(dict.fromkeys(invariant_problems(root) if alone else problems(root)))
    for problem in found:
        print(problem, file=sys.stderr)
    if found and not alone:
        print("to bring blocks, table and versions up to date: tests/build/check_docs.py . --write", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
