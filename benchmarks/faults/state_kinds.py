# SPDX-License-Identifier: Apache-2.0
"""Faults of stored state: damaged checkpoints, garbage next to them, and two runs in one folder."""

import os
import re
import shutil
import time

import judge
from kinds import Kind
from layouts import KEPT, STEPS

OTHER_SEED = ("--set", "train.seed=2")


def copy_checkpoints(scene):
    """Copies the undisturbed run's checkpoints, as if that run had ended early."""
    for step in KEPT:
        shutil.copytree(scene.baseline.checkpoint(step), scene.out / "checkpoints" / f"step-{step:08}")


def run_mark(checkpoint):
    """Returns the part of a staging folder's name that identifies the run; empty if checkpoints name no run."""
    found = re.search(r'"run(?:_id)?": *"([0-9a-f]{16})"', (checkpoint / "checkpoint.json").read_text())
    return f".{found[1]}" if found else ""


def damage(path, how, random):
    size = path.stat().st_size
    if how == "truncated":
        os.truncate(path, random.randrange(size))
    elif how == "emptied":
        os.truncate(path, 0)
    elif how == "removed":
        path.unlink()
    elif how == "lengthened":
        with open(path, "ab") as file:
            file.write(random.randbytes(random.randint(1, 5000)))
    else:
        with open(path, "r+b") as file:
            file.seek(at := random.randrange(size))
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ (1 << random.randrange(8))]))


class DamagedCheckpoint(Kind):
    """A file of the newest checkpoint is damaged; the previous checkpoint is good."""

    group = "state"

    def prepare(self, scene):
        copy_checkpoints(scene)
        newest = scene.out / "checkpoints" / f"step-{KEPT[-1]:08}"
        files = sorted(path for path in newest.rglob("*") if path.is_file())
        path, how = scene.random.choice(files), scene.random.choice(
            ("truncated", "emptied", "removed", "lengthened", "flipped"))
        damage(path, how, scene.random)
        scene.damaged = path
        scene.notes.append(f"{path.relative_to(newest)} {how}")
        scene.options = ["--resume", "out"]

    def fault(self, scene):
        scene.strike(lambda: None)

    def outcome(self, scene):
        run = scene.run
        if run.status == 0:
            return judge.resumed(scene, run, KEPT[0])
        problems = [] if run.status in (judge.STATUS_FAILED, judge.STATUS_INPUT) else [f"status {run.status}"]
        lines = run.error_lines()
        if len(lines) != 1 or scene.damaged.name not in lines[0]:
            problems.append(f"not one line that names {scene.damaged.name}: {judge.lines_of(run)}")
        return problems

    def judge(self, scene):
        if scene.hung:
            return judge.hang(scene)
        problems = self.outcome(scene) + judge.noise(scene.run) + judge.late(scene, self.bound(scene))
        shutil.rmtree(scene.out / "checkpoints" / f"step-{KEPT[-1]:08}", ignore_errors=True)
        return problems + judge.left_behind(scene) + judge.checkpoint_valid(scene)


class GarbageStaging(Kind):
    """Staging folders with garbage, as after a crash; the resumed run removes them."""

    group = "state"

    def prepare(self, scene):
        copy_checkpoints(scene)
        checkpoints = scene.out / "checkpoints"
        mark = run_mark(checkpoints / f"step-{KEPT[0]:08}")
        for name in (f"step-{KEPT[-1] + 4:08}{mark}.tmp", f"step-{KEPT[0]:08}.removed.tmp",
                     f"step-{STEPS:08}{mark}.tmp"):
            if scene.random.random() < 0.7:
                garbage = checkpoints / name / scene.random.choice(("student", "plain", "checkpoint.json", "x"))
                garbage.mkdir(parents=True)
                (garbage / "model.safetensors").write_bytes(scene.random.randbytes(scene.random.randint(0, 9000)))
        scene.options = ["--resume", "out"]

    def fault(self, scene):
        scene.strike(lambda: None)

    def outcome(self, scene):
        return judge.resumed(scene, scene.run, KEPT[-1])


class TwoRuns(Kind):
    """A second run in the same folder, some time after the first: the first trains, the second is refused."""

    group = "state"

    def prepare(self, scene):
        scene.other_seed = scene.random.random() < 0.5

    def fault(self, scene):
        gap = scene.random.uniform(0, 0.8)
        time.sleep(gap)
        other = OTHER_SEED if scene.other_seed else ()
        scene.notes.append(f"after {gap:.2f} s, {'other' if other else 'same'} seed")
        scene.strike(lambda: scene.start(*other))

    def judge(self, scene):
        first, second = scene.runs
        if scene.hung:
            return judge.hang(scene)
        if first.status != 0 and second.status == 0:
            first, second = second, first  # the later run may have claimed the folder first
        problems = [f"the one that trains: {problem}" for problem in self.of_the_one(scene, first)]
        problems += [f"the other: {problem}" for problem in judge.refused(second, "out")]
        return problems + judge.left_behind(scene, staging=True) + \
            judge.checkpoint_valid(scene, *(OTHER_SEED if scene.other_seed and first is scene.runs[1] else ()))

    @staticmethod
    def of_the_one(scene, run):
        if scene.other_seed and run is scene.runs[1]:
            return [] if run.status == 0 else [f"status {run.status}: {judge.lines_of(run)}"]
        return judge.survived(scene, run)


STATE_KINDS = [DamagedCheckpoint("damaged-checkpoint"), GarbageStaging("garbage-staging"), TwoRuns("two-runs")]
