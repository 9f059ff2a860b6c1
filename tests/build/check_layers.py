#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks every #include of the project against its layers: apps -> actors -> {sections, transport} -> runtime.

Usage: check_layers.py [ROOT]. Prints one line per violation, "file:line: what, and what is allowed"; exits 1 if any.

L-1: a file includes headers of its own layer and of those that LAYERS names, no others.
L-2: a runtime room includes itself and the rooms before it in RUNTIME_ROOMS, so that rooms cannot form a cycle.
L-3: a library's headers appear only in its home (LIBRARIES).
L-4: our own headers are named from the repository root, so that the other rules see them.
"""

import re
import sys
from pathlib import Path

LAYERS = {
    "runtime": set(),
    "sections": {"runtime"},
    "transport": {"runtime"},
    "actors": {"runtime", "sections", "transport"},
    "apps": {"runtime", "sections", "transport", "actors"},
}

# Lowest first. A new room goes where it includes only rooms before it.
RUNTIME_ROOMS = ["core", "job", "state", "observe", "collective", "ops", "device", "data", "graph", "wavefront", "schedule"]

# (name, pattern of its headers, pattern of the paths that may include them, where that is in words)
CUDA_HEADERS = r"(cuda|cublas|cudnn|curand|nvtx|nvToolsExt|device_launch_parameters)[\w./-]*|nccl[\w.-]*|cub/.*|thrust/.*"
LIBRARIES = [
    ("CAF", re.compile(r"caf/.*"), re.compile(r"actors/"), "actors/"),
    ("libfabric", re.compile(r"rdma/.*"), re.compile(r"transport/"), "transport/"),
    ("Thrift", re.compile(r"thrift/.*"), re.compile(r"actors/(control|launch)/"), "actors/control/ and actors/launch/"),
    ("OpenSSL", re.compile(r"openssl/.*"), re.compile(r"actors/(control|launch)/"), "actors/control/ and actors/launch/"),
    ("CUDA", re.compile(CUDA_HEADERS), re.compile(r".*\.cuh?$|runtime/[^/]+/cuda/"), ".cu files and runtime/*/cuda/"),
]

SUFFIXES = {".hpp", ".cpp", ".h", ".cc", ".cu", ".cuh", ".inc", ".ipp"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')


def room_of(path):
    """The runtime room of a path from the root, or None for a path of another layer."""
    parts = path.split("/")
    return parts[1] if parts[0] == "runtime" else None


def layer_violation(path, header):
    """L-1 and L-2."""
    here, there = path.split("/")[0], header.split("/")[0]
    if here != there:
        if there in LAYERS[here]:
            return None
        allowed = ", ".join(f"{layer}/" for layer in sorted(LAYERS[here] | {here}))
        return f'{here}/ may not include "{header}"; it may include {allowed} (L-1)'
    here, there = room_of(path), room_of(header)
    if here is None or here == there:
        return None
    for room in (here, there):
        if room not in RUNTIME_ROOMS:
            return f"runtime/{room} is no room of RUNTIME_ROOMS in check_layers.py; give it a place there (L-2)"
    if RUNTIME_ROOMS.index(there) < RUNTIME_ROOMS.index(here):
        return None
    allowed = ", ".join(RUNTIME_ROOMS[: RUNTIME_ROOMS.index(here)]) or "nothing else"
    return f'runtime/{here}/ may not include "{header}"; below it are: {allowed} (L-2)'


def violation(root, path, header, quoted):
    """What is wrong with one include, or None."""
    if header.split("/")[0] in LAYERS:
        return layer_violation(path, header)
    if quoted and ((root / path).parent / header).exists():
        return f'"{header}" is relative; name it from the repository root (L-4)'
    for name, headers, home, where in LIBRARIES:
        if headers.fullmatch(header) and not home.match(path):
            return f"<{header}> is a header of {name}, which is known only in {where} (L-3)"
    return None


def check(root):
    """Yields "file:line: what" for every violation under `root`."""
    for layer in LAYERS:
        for file in sorted((root / layer).rglob("*")):
            if file.suffix not in SUFFIXES or not file.is_file():
                continue
            path = file.relative_to(root).as_posix()
            for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
                match = INCLUDE.match(line)
                wrong = match and violation(root, path, match[1] or match[2], match[1] is not None)
                if wrong:
                    yield f"{path}:{number}: {wrong}"


def main(arguments):
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parents[2]
    if not (root / "runtime").is_dir():
        print(f"check_layers.py: {root} has no folder runtime/; give the root of the repository", file=sys.stderr)
        return 2
    violations = list(check(root))
    print("\n".join(violations) or "layers: every include follows the arrow")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
