#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks every #include of the project against its layers: apps -> actors -> {sections, transport} -> runtime.

Usage: check_layers.py [ROOT] [--table]. Prints a line per violation, "file:line: the include, and the allowed headers"
and exits with 1 if there is any. --table prints the table of rooms in docs/architecture.md.

L-1: a file includes headers of its layer and of the layers that LAYERS names.
L-2: a room includes itself and the rooms before it in ROOMS that it may include, so that rooms cannot form a cycle.
L-3: a library's headers appear only in its home (LIBRARIES).
L-4: headers of this project are named from the repository root, so that the other rules see them.
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

# Lowest first: (room, its subject, the rooms of its layer that it may include; None: all before it). Folders inside a
# room belong to it. Insert a new room after all rooms that it includes.
ROOMS = {
    "runtime": [
        ("core", "results and errors, ids, files, shared buffers, processes", None),
        ("tokenizer", "text to token ids and back", None),
        ("chat", "chat templates: text of conversations", None),
        ("job", "job files: values, ranges, complaints", None),
        ("files", "atomic writes, checksums, safetensors", None),
        ("model", "decoder families, Hugging Face folders, adapters", None),
        ("checkpoint", "checkpoints, their archive, export of models", None),
        ("record", "the files and the folder of a run", None),
        ("observe", "console, report, trace", None),
        ("page", "pages about runs: records to HTML and SVG", None),
        ("collective", "communicators: host threads, NCCL", None),
        ("ops", "operators on CPU and CUDA, autograd tape, parameters", None),
        ("device", "devices, their threads and memory, the CUDA backend", None),
        ("parquet", "rows of Parquet files", None),
        ("images", "image files, resampling, image processors of models", None),
        ("sound", "sound files, mel bands, sound processors of models", None),
        ("dataset", "rows of files to prepared data", None),
        ("data", "corpora: text, images, conversations", None),
        ("graph", "section graph, layouts, placement", None),
        ("wavefront", "planning of one step, bounds", None),
        ("schedule", "micro-batches, resharding, credits, lanes", None),
        ("rehearsal", "runs in virtual time", None),
    ],
    "actors": [
        ("messages", "messages and addresses; CAF's type ids", []),
        ("rpc", "RPC server and client, TLS, keys", []),
        ("served", "sections that another process computes: protocol, connection, section type", ["rpc"]),
        ("services", "network, snapshot writer, imported memory of a process", ["messages"]),
        ("launch", "processes of a run: launcher, rendezvous, keys", ["rpc"]),
        ("job", "the resolved job, its checks, data source and dry passes", ["messages", "launch"]),
        ("replica", "section replica: lane, ports, reduction, snapshots", ["messages", "services", "job"]),
        ("run", "coordinator, supervisor, record and watch of a run", ["messages", "rpc", "services", "launch", "job"]),
        ("control", "control service and its clients", ["messages", "rpc", "launch", "job", "run"]),
        ("live", "the run over HTTP: page, metrics, probes", ["messages", "rpc", "launch", "job", "run", "control"]),
        ("process", "App, start, run and end of one process", None),
    ],
}

# (name, pattern of its headers, pattern of the paths that may include them, description of these paths)
CUDA_HEADERS = r"(cuda|cublas|cudnn|curand|nvtx|nvToolsExt|device_launch_parameters)[\w./-]*|nccl[\w.-]*|cub/.*|thrust/.*"
LIBRARIES = [
    ("CAF", re.compile(r"caf/.*"), re.compile(r"actors/(messages|replica|run|control|live|process)/"), "rooms of actors/ that hold actors"),
    ("Oniguruma", re.compile(r"onig.*"), re.compile(r"runtime/tokenizer/"), "runtime/tokenizer/"),
    ("utf8proc", re.compile(r"utf8proc.*"), re.compile(r"runtime/tokenizer/"), "runtime/tokenizer/"),
    ("SentencePiece", re.compile(r"sentencepiece.*"), re.compile(r"runtime/tokenizer/"), "runtime/tokenizer/"),
    ("a codec", re.compile(r"snappy\.h|zstd\.h|lz4\w*\.h|brotli/.*"), re.compile(r"runtime/parquet/"), "runtime/parquet/"),
    ("libsndfile", re.compile(r"sndfile\.h"), re.compile(r"runtime/sound/"), "runtime/sound/"),
    ("libarchive", re.compile(r"archive(_entry)?\.h"), re.compile(r"runtime/dataset/"), "runtime/dataset/"),
    ("libfabric", re.compile(r"rdma/.*"), re.compile(r"transport/"), "transport/"),
    ("Thrift", re.compile(r"thrift/.*"), re.compile(r"actors/(control|launch|rpc|served)/|runtime/parquet/"),
     "actors/control/, actors/launch/, actors/rpc/, actors/served/ and runtime/parquet/"),
    ("OpenSSL", re.compile(r"openssl/.*"), re.compile(r"actors/(control|launch|rpc)/"), "actors/control/, actors/launch/ and actors/rpc/"),
    ("cpp-httplib", re.compile(r"httplib\.h"), re.compile(r"actors/live/"), "actors/live/"),
    ("CUDA", re.compile(CUDA_HEADERS), re.compile(r".*\.cuh?$|runtime/[^/]+/cuda/"), ".cu files and runtime/*/cuda/"),
]

SUFFIXES = {".hpp", ".cpp", ".h", ".cc", ".cu", ".cuh", ".inc", ".ipp"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')


def room_of(path):
    """Returns the room of a path from the root, or None for a layer without rooms."""
    parts = path.split("/")
    return parts[1] if parts[0] in ROOMS and len(parts) > 1 else None


def allowed_rooms(layer, room):
    names = [name for name, _, _ in ROOMS[layer]]
    allowed = next(allowed for name, _, allowed in ROOMS[layer] if name == room)
    return names[: names.index(room)] if allowed is None else allowed


def layer_violation(path, header):
    """Returns the violation of L-1 or L-2, or None."""
    layer, there = path.split("/")[0], header.split("/")[0]
    if layer != there:
        if there in LAYERS[layer]:
            return None
        allowed = ", ".join(f"{name}/" for name in sorted(LAYERS[layer] | {layer}))
        return f'{layer}/ may not include "{header}"; it may include {allowed} (L-1)'
    here, there = room_of(path), room_of(header)
    if here is None or here == there:
        return None
    for room in (here, there):
        if room not in [name for name, _, _ in ROOMS[layer]]:
            return f"{layer}/{room} is no room of ROOMS in check_layers.py; give it a place there (L-2)"
    allowed = allowed_rooms(layer, here)
    if there in allowed:
        return None
    return f'{layer}/{here}/ may not include "{header}"; below it are: {", ".join(allowed) or "nothing else"} (L-2)'


def table():
    """Returns the rooms as a Markdown table, lowest first."""
    yield "| room | subject | may include |"
    yield "|---|---|---|"
    for layer, rooms in ROOMS.items():
        for room, subject, allowed in rooms:
            names = "the rooms above" if allowed is None else ", ".join(allowed) or "no other room"
            yield f"| {layer}/{room} | {subject} | {names} |"


def violation(root, path, header, quoted):
    """Returns the violation of an include, or None."""
    if header.split("/")[0] in LAYERS:
        return layer_violation(path, header)
    if quoted and ((root / path).parent / header).exists():
        return f'"{header}" is relative; name it from the repository root (L-4)'
    for name, headers, home, where in LIBRARIES:
        if headers.fullmatch(header) and not home.match(path):
            return f"<{header}> is a header of {name}, which is known only in {where} (L-3)"
    return None


def check(root):
    """Yields "file:line: violation" for every violation under `root`."""
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
    if "--table" in arguments:
        print("\n".join(table()))
        return 0
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parents[2]
    if not (root / "runtime").is_dir():
        print(f"check_layers.py: {root} has no folder runtime/; give the root of the repository", file=sys.stderr)
        return 2
    violations = list(check(root))
    print("\n".join(violations) or "layers: every include follows the arrow")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
