# SPDX-License-Identifier: Apache-2.0
"""Runs a case: the run, its fault, the judgement, and for some cases the run that goes on from its checkpoint."""

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
    """Thread-safe: cases share the undisturbed runs alone."""

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
        """A fault that hit nothing leaves an undisturbed run, or a run that the kind's preparations ended."""
        if scene.hung:
            return judge.hang(scene)
        return (judge.survived(scene) if scene.run.status == 0 else kind.outcome(scene)) + judge.noise(scene.run)

    def wants_resume(self, kind, scene):
        newest = max(scene.checkpoints(), default=0)
        drawn = scene.case.generator("resume").random() < self.resume_share
        return kind.resumes and drawn and 0 < newest < STEPS and not scene.hung

    @staticmethod
    def resume(scene, result):
        """To the last step: the losses are those of the undisturbed run."""
        scene.clear_leftovers()
        result.resumed_from = max(scene.checkpoints())
        processes = scene.case.generator("resumed").choice((1, scene.case.processes))
        run = scene.start("--resume", "out", processes=processes, launcher=())
        if left := scene.finish(run):
            return [f"resume: hang: {left}"]
        return judge.resumed(scene, run, result.resumed_from)

    @staticmethod
    def keep(scene, result):
        """A case that failed keeps its folder and its output; of the others nothing is left."""
        if result.bad:
            text = "\n".join(run.describe() for run in scene.runs if hasattr(run, "status"))
            (scene.folder / "log.txt").write_text(f"{result}\n{text}")
            result.folder = str(scene.folder)
            return
        if scene.out.is_mount():
            subprocess.run(["umount", "-l", str(scene.out)], check=False)
        shutil.rmtree(scene.folder, ignore_errors=True)
