# SPDX-License-Identifier: Apache-2.0
"""Runs a case: the run, its fault, the checks, and for some cases a run that resumes from its checkpoint."""

import shutil
import subprocess
from dataclasses import dataclass, field

import judge
from layouts import STEPS
from place_kinds import PLACE_KINDS
from process_kinds import PROCESS_KINDS
from scene import NoEffect, Scene
from state_kinds import STATE_KINDS

KINDS = {kind.name: kind for kind in PROCESS_KINDS + PLACE_KINDS + STATE_KINDS}


@dataclass
class Result:
    kind: str
    group: str
    case: str
    layout: str
    processes: int
    provider: str
    phase: str = ""
    effect: bool = True
    status: int | None = None
    seconds: float = 0.0
    resumed_from: int | None = None
    bad: list = field(default_factory=list)
    notes: list = field(default_factory=list)
    folder: str = ""

    @property
    def hung(self):
        return any("hang:" in problem for problem in self.bad)


class Runner:
    """Runs cases. Thread-safe: cases share only the undisturbed runs."""

    def __init__(self, folder, baselines, limits, resume_share):
        self.folder, self.baselines, self.limits, self.resume_share = folder, baselines, limits, resume_share

    def __call__(self, case):
        kind = KINDS[case.kind]
        result = Result(case.kind, kind.group, case.name, case.layout, case.processes, case.provider)
        folder = self.folder / f"{case.kind}-{case.number}"
        scene = Scene(case, folder, self.baselines.of(case.layout), self.limits)
        try:
            self.play(kind, scene, result)
        finally:
            scene.end()
            self.keep(scene, result)
        return result

    def play(self, kind, scene, result):
        kind.prepare(scene)
        kind.start(scene)
        try:
            kind.fault(scene)
        except NoEffect as reason:
            if not scene.fault_at:
                result.effect = False
                scene.notes.append(str(reason))
        for run in scene.runs:
            left = scene.finish(run)
            scene.hung = scene.hung or left
        kind.release(scene)
        result.phase, result.status, result.seconds = scene.phase, scene.run.status, scene.seconds()
        result.bad = kind.judge(scene) if result.effect else self.judge_without_fault(kind, scene)
        if self.wants_resume(kind, scene):
            result.bad += self.resume(scene, result)
        result.notes = scene.notes

    @staticmethod
    def judge_without_fault(kind, scene):
        """Judges a run that the fault did not hit: it is undisturbed, or the kind's preparations ended it."""
        if scene.hung:
            return judge.hang(scene)
        return (judge.survived(scene) if scene.run.status == 0 else kind.outcome(scene)) + judge.noise(scene.run)

    def wants_resume(self, kind, scene):
        newest = max(scene.checkpoints(), default=0)
        drawn = scene.case.generator("resume").random() < self.resume_share
        return kind.resumes and drawn and 0 < newest < STEPS and not scene.hung

    @staticmethod
    def resume(scene, result):
        """Resumes the run to its last step, and compares its losses with the undisturbed run's."""
        scene.clear_leftovers()
        result.resumed_from = max(scene.checkpoints())
        processes = scene.case.generator("resumed").choice((1, scene.case.processes))
        run = scene.start("--resume", "out", processes=processes, launcher=())
        if left := scene.finish(run):
            return [f"resume: hang: {left}"]
        return judge.resumed(scene, run, result.resumed_from)

    @staticmethod
    def keep(scene, result):
        """Keeps the folder and the output of a failed case; removes other folders."""
        if result.bad:
            text = "\n".join(run.describe() for run in scene.runs if hasattr(run, "status"))
            (scene.folder / "log.txt").write_text(f"{result}\n{text}")
            result.folder = str(scene.folder)
            return
        if scene.out.is_mount():
            subprocess.run(["umount", "-l", str(scene.out)], check=False)
        shutil.rmtree(scene.folder, ignore_errors=True)
