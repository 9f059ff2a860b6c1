# SPDX-License-Identifier: Apache-2.0
"""All fault kinds, and their base class."""

import judge


class Kind:
    """A kind of fault. It has a name, a group in the summary, and the numbers of processes that its runs may have."""

    group = "other"  # the summary has the seconds of the groups death, stop and start
    processes = (1, 2, 3)
    layouts = ()  # layouts that it needs; none: any of the command's
    providers = ("shm", "tcp")
    resumes = True  # whether a run that it ended can resume from its checkpoint
    all_die = False  # whether it kills all processes, so that none can clean up

    def __init__(self, name):
        self.name = name

    def why_not(self):
        """Returns the reason if this machine cannot run it, else an empty text."""
        return ""

    def prepare(self, scene):
        """Prepares launcher, options and folder before the run starts."""

    def start(self, scene):
        scene.start(*scene.options)

    def fault(self, scene):
        """Hits the run (Scene.strike). Throws NoEffect."""

    def release(self, scene):
        """Cleans up after the run, before the checks."""

    def outcome(self, scene):
        """Returns the problems of the run's end."""
        return judge.survived(scene)

    def bound(self, scene):
        """Returns the limit in seconds from the fault to the end; a run that survives has time for all steps."""
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
        """Returns whether no process cleaned up: the only process was killed, or the bench ended a stopped process."""
        return scene.ended_here or (scene.case.processes == 1 and scene.run.status < 0)
