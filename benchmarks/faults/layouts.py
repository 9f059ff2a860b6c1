# SPDX-License-Identifier: Apache-2.0
"""The job that the fault bench trains, in several layouts, and the undisturbed run of each layout."""

import copy
import json
import shutil
import subprocess
import threading
import time

import maestro_program
from maestro_program import decoder, job_text, own_environment, text_corpus

STEPS = 40
EVERY = 4  # steps between checkpoints
KEPT = (16, 20)  # checkpoints of the undisturbed run that resumed runs start from
DEVICES = ("--cpu-devices", "16")
SIZES = {"width": 96, "heads": 4, "positions": 64, "micro_batch": 2}

LAYOUTS = {
    "flat": {},
    "split": {"student": {"pipeline": 2, "tensor": 2}},
    "zero": {"student": {"replicas": 2, "zero": True}},
    "all": {"student": {"pipeline": 2, "tensor": 2, "replicas": 2, "zero": True},
            "plain": decoder(**SIZES, layers=2, pipeline=2, context=2)},
    "teachers": {"teacher": {"replicas": 4, "tensor": 2, "pipeline": 2, "micro_batch": 1}},
    "students": {"student": {"replicas": 2}},
    "on_policy": {"generator": {"replicas": 2, "slots": 2, "staleness": 1, "max_tokens": 16, "prompt_tokens": 16}},
    "joined": {"teacher": {"replicas": {"least": 1, "most": 4}, "micro_batch": 1}},
}


def job_of(layout):
    """Returns a job with 40 steps of 12 samples and a checkpoint every 4 steps."""
    job = {
        "name": "faults",
        "app": "distillation",
        "train": {"steps": STEPS, "global_batch": 12, "checkpoint_every": EVERY, "keep_checkpoints": 3,
                  "validation_samples": 12, "out": "out", "recover": "off"},
        "data": {"path": "corpus.txt", "sequence": 64},
        "teacher": {**SIZES, "weights": "random", "layers": 2, "micro_batch": 4, "replicas": 1},
        "student": decoder(**SIZES, layers=4),
    }
    for section, table in copy.deepcopy(LAYOUTS[layout]).items():
        job[section] = {**job.get(section, {}), **table}
    return job


def write_inputs(folder, layout):
    """Writes job.toml and corpus.txt. Returns the folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "corpus.txt").write_text(text_corpus())
    (folder / "job.toml").write_text(job_text(job_of(layout)))
    return folder


def curve_of(report):
    """Returns {(section, step): figures} from a run's report."""
    return {(row["section"], row["step"]): tuple(row.get(name) for name in ("loss", "ce", "kl", "grad_norm"))
            for row in report["steps"]}


class Undisturbed:
    """A layout's run in a single process: its curve, its checkpoints, and the seconds from first step to end."""

    def __init__(self, folder, layout):
        self.folder = write_inputs(folder, layout)
        command = [maestro_program.PROGRAM, "train", "job.toml", *DEVICES, "--report", "report.json", "--control",
                   "none", "--set", "train.keep_checkpoints=100"]
        with subprocess.Popen(command, cwd=folder, env=own_environment(), stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as run:
            lines = [run.stderr.readline()]
            begin = time.monotonic()
            lines += run.stderr.readlines()
            self.seconds = time.monotonic() - begin
        if run.returncode != 0:
            raise SystemExit(f"the undisturbed run of layout {layout} failed: {''.join(lines)}")
        self.curve = curve_of(json.loads((folder / "report.json").read_text()))

    def checkpoint(self, step):
        return self.folder / "out" / "checkpoints" / f"step-{step:08}"


class Baselines:
    """The undisturbed run of every layout, made on first use. Thread-safe."""

    def __init__(self, folder):
        self.folder = folder
        self.lock = threading.Lock()
        self.made = {}

    def of(self, layout):
        with self.lock:
            if layout not in self.made:
                self.made[layout] = Undisturbed(self.folder / f"undisturbed-{layout}", layout)
            return self.made[layout]
