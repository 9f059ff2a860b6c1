# SPDX-License-Identifier: Apache-2.0
"""Bytes per token that `maestro teach` writes for a small teacher, which is first trained on rows of text."""

import json
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "apps"))
from maestro_program import job_text  # noqa: E402

STEPS, MEGABYTES = 150, 1
SHAPE = {"family": "llama", "layers": 4, "width": 128, "heads": 4, "positions": 128, "micro_batch": 8}


def run(program, folder, *words):
    done = subprocess.run([program, *map(str, words)], cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"maestro {words[0]} failed: {done.stderr}")
    return done.stdout


def measure(program, folder, rows, tokenizer):
    """Prints a JSON line for each --top-p."""
    with open(rows) as lines, open(folder / "small.jsonl", "w") as small:
        while small.tell() < MEGABYTES * 1e6:
            small.write(next(lines))
    data = {"path": str(folder / "small.jsonl"), "tokenizer": str(tokenizer), "sequence": 128}
    train = {"steps": STEPS, "global_batch": 16, "out": "teacher", "validation_samples": 8}
    teacher = {**SHAPE, "lr": 0.003, "warmup_steps": 20}
    (folder / "teacher.toml").write_text(job_text({"name": "teacher", "app": "language_model", "train": train, "data": data,
                                                   "teacher": teacher}))
    run(program, folder, "train", "teacher.toml", "--fresh", "--control", "none")
    (folder / "job.toml").write_text(job_text({
        "name": "teach", "app": "distillation", "train": {**train, "out": "student"}, "data": data,
        "teacher": {"weights": str(folder / "teacher/models/teacher"), "micro_batch": 8}, "student": SHAPE}))
    for p in (1.0, 0.99, 0.9):
        text = run(program, folder, "teach", "job.toml", "--out", f"records-{p}", "--top-k", 64, "--top-p", p)
        found = re.search(r"(\d+) tokens, ([\d.]+) bytes a token \(([\d.]+) entries\), ([\d.e-]+)% of", text)
        tokens, size, entries, rest = map(float, found.groups())
        print(json.dumps({"teach": {"top_k": 64, "top_p": p, "tokens": int(tokens), "bytes_per_token": size,
                                    "entries": entries, "percent_left_out": rest}}), flush=True)
