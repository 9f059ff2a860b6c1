#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the size and shape of the source tree: figures.py [ROOT] [--list] [--gate]. Needs universal-ctags.

Sources are the C++ and CUDA files of the product; test files are counted separately. A class has a body (the lines of its
declaration and of the members that are defined outside it), data members, and sources that define members. Structs with
twice as many data members as functions are plain data: their members are not limited. Duplicates are pairs of runs of at
least six lines that differ in white space only; lines without a word do not count. --list prints every place over a limit.
--gate prints only classes and files over their limit, and then exits with 1.
"""

import collections
import json
import re
import statistics
import subprocess
import sys
from pathlib import Path

PRODUCT = ("include", "runtime", "transport", "sections", "actors", "apps")
SUFFIXES = {".hpp", ".cpp", ".cu", ".cuh"}
MOST_LINES, MOST_FUNCTION_LINES, MOST_PARAMETERS, LEAST_RUN = 600, 60, 7, 6
MOST_CLASS_LINES, MOST_MEMBERS, MOST_CLASS_SOURCES = 500, 25, 2


def sources(root, folders):
    return sorted(path for folder in folders for path in (root / folder).rglob("*") if path.suffix in SUFFIXES)


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0


def tags_of(files):
    """Returns the functions, classes, structs and data members that universal-ctags finds."""
    command = ["ctags", "--output-format=json", "--fields=+neSs", "--kinds-C++=fcsm", "--kinds-CUDA=fcsm",
               "--map-CUDA=+.cuh", "-f", "-", "-L", "-"]
    tags = subprocess.run(command, input="\n".join(map(str, files)), capture_output=True, text=True, check=True).stdout
    return list(map(json.loads, tags.splitlines()))


def functions(tags):
    """Returns (path, line, name, lines, parameters) of every function with a body."""
    for tag in tags:
        if tag["kind"] == "function" and "end" in tag:
            yield tag["path"], tag["line"], tag["name"], tag["end"] - tag["line"] + 1, parameters(tag.get("signature", "()"))


class ClassFigures:
    def __init__(self):
        self.first = self.last = 0
        self.path = None
        self.outside = self.functions = self.members = 0
        self.sources = set()

    def add(self, tag):
        if tag["kind"] == "member":
            self.members += 1
            return
        self.functions += 1
        if tag["path"].endswith((".cpp", ".cu")):
            self.sources.add(tag["path"])
        if tag["path"] != self.path or not self.first <= tag["line"] <= self.last:
            self.outside += tag["end"] - tag["line"] + 1

    @property
    def body(self):
        return self.last - self.first + 1 + self.outside

    def excess(self):
        """Returns the limits that the class exceeds, in words."""
        if self.body > MOST_CLASS_LINES:
            yield f"{self.body} lines of body (at most {MOST_CLASS_LINES})"
        if self.members > MOST_MEMBERS and self.members < 2 * self.functions:
            yield f"{self.members} data members (at most {MOST_MEMBERS})"
        if len(self.sources) > MOST_CLASS_SOURCES:
            yield f"members in {len(self.sources)} sources (at most {MOST_CLASS_SOURCES})"


def classes(tags):
    """Returns {name: ClassFigures}. Names in unnamed namespaces count by source: other sources may have them too."""
    found = collections.defaultdict(ClassFigures)

    def key(tag, name):
        return (tag["path"] if "__anon" in name else "", re.sub(r"__anon\w+(::)?", "", name))

    for tag in tags:
        if tag["kind"] in ("class", "struct") and "end" in tag:
            scope = tag.get("scope", "")
            figures = found[key(tag, f"{scope}::{tag['name']}" if scope else tag["name"])]
            figures.path, figures.first, figures.last = tag["path"], tag["line"], tag["end"]
    for tag in tags:
        if tag.get("scopeKind") in ("class", "struct") and (tag["kind"] == "member" or
                                                            tag["kind"] == "function" and "end" in tag):
            found[key(tag, tag["scope"])].add(tag)
    return {name: figures for (_, name), figures in found.items() if figures.path}


def parameters(signature):
    depth = count = 0
    for character in signature[1:-1]:
        depth += character in "(<[{"
        depth -= character in ")>]}"
        count += character == "," and depth == 0
    return count + 1 if signature[1:-1].strip() not in ("", "void") else 0


def duplicates(files):
    """Returns pairs of maximal equal runs: [(file, line, file, line, lines)]."""
    lines = {}
    places = collections.defaultdict(list)
    for file in files:
        kept = [(number, re.sub(r"\s+", " ", line.strip())) for number, line in enumerate(file.read_text().splitlines(), 1)
                if re.search(r"\w", line) and not line.startswith(("#include", "// SPDX", "namespace", "}  // namespace"))]
        lines[file] = kept
        for at in range(len(kept) - LEAST_RUN + 1):
            places[tuple(text for _, text in kept[at:at + LEAST_RUN])].append((file, at))
    pairs, covered = [], set()
    for found in places.values():
        for first in range(len(found)):
            for second in range(first + 1, len(found)):
                (a, i), (b, j) = found[first], found[second]
                if (a, i, b, j) in covered or a == b and abs(i - j) < LEAST_RUN:
                    continue
                run = 0
                while i + run < len(lines[a]) and j + run < len(lines[b]) and lines[a][i + run][1] == lines[b][j + run][1]:
                    covered.add((a, i + run, b, j + run))
                    run += 1
                pairs.append((a, lines[a][i][0], b, lines[b][j][0], run))
    return pairs


def over_limits(root, types, large):
    """Returns a line for every class and file over its limit."""
    for name, figures in sorted(types.items(), key=lambda item: -item[1].body):
        for excess in figures.excess():
            yield f"{Path(figures.path).relative_to(root)}:{figures.first}: {name} has {excess}"
    for path, lines in large:
        yield f"{path.relative_to(root)}: {lines} lines (at most {MOST_LINES})"


def main(arguments):
    listed = "--list" in arguments
    root = Path(next((argument for argument in arguments if not argument.startswith("--")),
                     Path(__file__).resolve().parents[2]))
    product, tests = sources(root, PRODUCT), sources(root, ["tests"])
    sizes = {path: len(path.read_text().splitlines()) for path in product + tests}
    total, tested = sum(sizes[path] for path in product), sum(sizes[path] for path in tests)
    try:
        tags = tags_of(product)
    except (FileNotFoundError, subprocess.CalledProcessError) as problem:
        print(f"figures.py: universal-ctags is needed (apt-get install universal-ctags): {problem}", file=sys.stderr)
        return 2
    found, types = list(functions(tags)), classes(tags)
    excess = list(over_limits(root, types, [(path, sizes[path]) for path in product + tests if sizes[path] > MOST_LINES]))
    if "--gate" in arguments:
        print("\n".join(excess) or "figures.py: every class and file is within its limits")
        return 1 if excess else 0
    lengths = [lines for *_, lines, _ in found]
    long = [row for row in found if row[3] > MOST_FUNCTION_LINES]
    wide = [row for row in found if row[4] > MOST_PARAMETERS]
    large = [path for path in product if sizes[path] > MOST_LINES]
    bodies = [figures.body for figures in types.values()]
    pairs = duplicates(product + tests)
    inside = [pair for pair in pairs if pair[0] in set(product) and pair[2] in set(product)]
    comments = sum(len(re.findall(r"^\s*(?://|/?\*)", path.read_text(), re.M)) for path in product)

    def row(name, value):
        print(f"| {name} | {value} |")

    def three(values):
        return f"{statistics.median(values):.0f} / {percentile(values, 0.9)} / {max(values)}"

    print("| | this tree |\n|---|---|")
    row("source files / lines", f"{len(product)} / {total:,}")
    row("file size median / p90 / max", three([sizes[path] for path in product]))
    row(f"files over {MOST_LINES} lines", len(large))
    row("classes", f"{len(types):,}")
    row("class body median / p90 / max", three(bodies))
    row(f"classes over {MOST_CLASS_LINES} lines / {MOST_MEMBERS} data members / {MOST_CLASS_SOURCES} sources", " / ".join(
        str(sum(any(word in excess for excess in figures.excess()) for figures in types.values()))
        for word in ("lines of body", "data members", "sources")))
    row("functions", f"{len(found):,}")
    row("function length median / p90 / p99 / max", f"{statistics.median(lengths):.0f} / {percentile(lengths, 0.9)} / "
        f"{percentile(lengths, 0.99)} / {max(lengths)}")
    row(f"functions over {MOST_FUNCTION_LINES} lines", f"{len(long)} ({100 * len(long) / len(found):.2f} %)")
    row(f"functions with more than 5 / {MOST_PARAMETERS} parameters", f"{sum(row[4] > 5 for row in found)} / {len(wide)}")
    row("tests : source (lines)", f"{tested:,} : {total:,} = {tested / total:.2f}")
    row("test file median / p90 / max", three([sizes[path] for path in tests]))
    row("comment lines", f"{100 * comments / total:.1f} %")
    row(f"duplicate pairs of at least {LEAST_RUN} lines, per 1,000 lines",
        f"{1000 * len(pairs) / (total + tested):.2f} ({len(pairs)}), in the product {1000 * len(inside) / total:.2f}")
    row("README lines", len((root / "README.md").read_text().splitlines()))
    if listed:
        print("\n".join(excess))
        for path, line, name, lines, _ in long:
            print(f"{Path(path).relative_to(root)}:{line}: {name} has {lines} lines")
        for path, line, name, _, count in wide:
            print(f"{Path(path).relative_to(root)}:{line}: {name} has {count} parameters")
        for a, i, b, j, run in sorted(pairs, key=lambda pair: -pair[4]):
            print(f"{a.relative_to(root)}:{i} and {b.relative_to(root)}:{j}: {run} equal lines")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
