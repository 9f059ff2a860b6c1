# SPDX-License-Identifier: Apache-2.0
"""The kinds of faults, and the base of them all."""

import judge


class Kind:
    """A kind of fault. A kind has a name, a group of the summary, and the numbers of processes that it may hit."""

    group = "other"  # death, stop, start: their seconds are in the summary
    processes = (1, 2, 3)
    layouts = ()  # those it needs; none: any of the command's
    providers = ("shm", "tcp")
    resumes = True  # whether a run that it ended can go on from its checkpoint
    all_die = False  # nothing can tidy up behind SIGKILL of all

    def __init__(self, name):
        self.name = name

    def why_not(self):
        """Why it cannot be tried on this machine; nothing where it can."""
        return ""

    def prepare(self, scene):
        """Before the run starts: launcher, options, content of the folder."""

    def start(self, scene):
        scene.start(*scene.options)

    def fault(self, scene):
        """Hits the run (Scene.strike). Throws NoEffect."""

    def release(self, scene):
        """After the run, before anything is looked at."""

    def outcome(self, scene):
        """Problems of the run's end."""
        return judge.survived(scene)

    def bound(self, scene):
        """Seconds from the fault to the end; those of a run that survives allow for all of its steps."""
        if scene.run.status == 0:
            return scene.limits.start + 5 * scene.baseline.seconds
        return scene.limits.running if scene.phase == "running" else scene.limits.start

    def judge(self, scene):
        if scene.hung:
            return judge.hang(scene)
        problems = self.outcome(scene) + judge.noise(scene.run) + judge.late(scene, self.bound(scene))
        if not (self.all_die or self.leaves_all(scene)):
            problems += judge.left_behind(scene, staging=scene.run.status == 0)
        return problems + judge.checkpoint_valid(scene)

    def leaves_all(self, scene):
        """Whether the only process was killed, or the bench ended a stopped process: then nothing can have tidied up."""
        return scene.ended_here or (scene.case.processes == 1 and scene.run.status < 0)
