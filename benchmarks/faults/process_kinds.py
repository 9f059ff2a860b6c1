# SPDX-License-Identifier: Apache-2.0
"""Faults of processes: signals that end, stop or interrupt them, during the run or its start."""

import signal
import time

import judge
from kinds import Kind

NEAR_TIMEOUT = (2.05, 2.4)  # seconds around train.peer_timeout_s
STOP, CONT, KILL = signal.SIGSTOP, signal.SIGCONT, signal.SIGKILL


class Ends(Kind):
    """A signal that ends a process; -1 stands for a drawn worker."""

    group = "death"

    def __init__(self, name, how, rank, start=False):
        super().__init__(name)
        self.how, self.rank, self.in_start = how, rank, start
        self.processes = (2, 3) if rank != 0 or start else (1, 2, 3)
        if start:
            self.group = "start"

    def fault(self, scene):
        if self.in_start:
            scene.await_start()
            if self.rank == 0:
                scene.await_member(1)  # without children nothing could go wrong
        else:
            scene.await_training()
        pid = scene.pick(self.rank)
        scene.strike(lambda: self.hit(scene, pid))

    def hit(self, scene, pid):
        scene.run.send(pid, self.how)

    def outcome(self, scene):
        return judge.died(scene, self.how)


class Stops(Ends):
    """SIGSTOP for ever."""

    def __init__(self, name, rank, start=False):
        super().__init__(name, STOP, rank, start)
        self.group = "start" if start else "stop"
        self.processes = (2, 3)  # no process would notice that the only process stopped

    def hit(self, scene, pid):
        scene.run.send(pid, STOP)
        if self.in_start:
            scene.left_stopped = (pid,)  # the others may not have its pid yet

    def outcome(self, scene):
        if scene.run.status == 0:
            return judge.survived(scene)
        return judge.died(scene, KILL)


class IsStartedAgain(Ends):
    """A worker is lost, and rank 0 starts it again, or others take over its replicas."""

    def __init__(self, name, how):
        super().__init__(name, how, -1)
        self.group = "recovery"
        self.processes = (2, 3, 5)

    def prepare(self, scene):
        scene.options += ["--set", "train.recover=restart"]

    def outcome(self, scene):
        return judge.recovered(scene)


class LosesAGenerator(IsStartedAgain):
    """A process with a generator is lost; rank 0 has all other sections."""

    layouts = ("on_policy",)

    def __init__(self, name, how):
        super().__init__(name, how)
        self.processes = (2, 3)

    def prepare(self, scene):
        super().prepare(scene)
        for section in ("teacher", "student"):
            scene.options += ["--set", f"{section}.processes=[0]"]
        scene.options += ["--set", f"generator.processes=[1,{scene.case.processes - 1}]"]


class LosesASurvivorToo(IsStartedAgain):
    """A worker is lost, and moments later another, at any point of the recovery."""

    def __init__(self, name, how):
        super().__init__(name, how)
        self.processes = (3, 5)

    def hit(self, scene, pid):
        others = [other for rank, other in scene.run.members().items() if rank > 0 and other != pid]
        super().hit(scene, pid)
        time.sleep(scene.random.uniform(0, 0.9))
        survivor = scene.random.choice(others)
        if self.how == STOP:
            scene.left_stopped = (survivor,)  # the run may end before it notices
        scene.run.send(survivor, self.how)

    def outcome(self, scene):
        return judge.recovered_often(scene)


class Joins(Kind):
    """A process joins the run and takes over teacher replicas; some moments later it leaves or is lost, or a worker of
    the run is lost."""

    group = "joining"
    layouts = ("joined",)
    processes = (2, 3)

    def __init__(self, name, how, of_run=False):
        """Sends signal `how` to the joined process (`of_run`: to a worker); None runs `maestro leave`."""
        super().__init__(name)
        self.how, self.of_run = how, of_run

    def prepare(self, scene):
        scene.options += ["--set", "train.recover=restart"]

    def fault(self, scene):
        scene.await_training(share=0.2)
        joined = scene.join()
        if scene.random.random() < 0.7:
            joined.wait_for_text("joined the run")
        time.sleep(scene.random.uniform(0, 0.4))
        if self.of_run:
            pid = scene.pick(-1)
            return scene.strike(lambda: scene.run.send(pid, self.how))
        number = scene.case.processes  # the first rank after the initial ranks
        scene.victim = (number, joined.process.pid)
        if self.how is None:
            return scene.strike(lambda: scene.command("leave", "--process", str(number)))
        if self.how == STOP:
            scene.left_stopped = (joined.process.pid,)  # the run may end before it notices
        return scene.strike(lambda: joined.send(joined.process.pid, self.how))

    def outcome(self, scene):
        ends_well = self.how in (None, signal.SIGTERM) and scene.runs[1].text["out"].count("joined the run")
        problems = judge.survived(scene)
        if ends_well and scene.runs[1].status != 0:
            problems.append(f"who left ended with status {scene.runs[1].status}: {judge.lines_of(scene.runs[1])}")
        return problems


class Pauses(Kind):
    """SIGSTOP of a process, and SIGCONT after some time."""

    processes = (2, 3)

    def __init__(self, name, rank, least, most, outcome, often=()):
        """Draws half of the pauses from the range `often`."""
        super().__init__(name)
        self.rank, self.least, self.most, self.judged = rank, least, most, outcome
        self.ranges = ((least, most), often or (least, most))
        self.group = "stop" if least >= 3 else "other"

    def fault(self, scene):
        pause = scene.random.uniform(*scene.random.choice(self.ranges))
        scene.await_training()
        pid = scene.pick(self.rank)
        scene.notes.append(f"{pause:.2f} s")
        scene.strike(lambda: scene.run.send(pid, STOP))
        if scene.pause(pause) and pid in scene.run.marked():
            scene.run.send(pid, CONT)

    def outcome(self, scene):
        return self.judged(scene)

    def bound(self, scene):
        return super().bound(scene) + self.most * (self.least < 3)


class PausesAll(Kind):
    """All processes are stopped and continued together, as by Ctrl-Z and fg or in a paused container."""

    def __init__(self, name, least, most):
        super().__init__(name)
        self.least, self.most = least, most

    def fault(self, scene):
        pause = scene.random.uniform(self.least, self.most)
        scene.await_training()
        scene.notes.append(f"{pause:.2f} s")
        scene.strike(lambda: scene.run.send_group(STOP))
        if scene.pause(pause):
            scene.run.send_group(CONT)

    def bound(self, scene):
        return super().bound(scene) + self.most


class KillsAll(Kind):
    all_die = True

    def fault(self, scene):
        scene.await_training()
        scene.strike(lambda: scene.run.send_group(KILL))

    def outcome(self, scene):
        status = scene.run.status
        return [] if status == -KILL else [f"status {status} instead of {-KILL}"]


class AsksToEnd(Kind):
    """A signal after which the run finishes and saves the steps that were handed out."""

    def __init__(self, name, how, to="root", again=(), start=0.2):
        """`again`: range (least, most) of seconds until a second signal. `start`: share of cases during the start."""
        super().__init__(name)
        self.how, self.to, self.again, self.share = how, to, again, start
        if to == "worker":
            self.processes = (2, 3)

    def await_moment(self, scene):
        if scene.random.random() < self.share:
            scene.await_start(least=0.0)
        else:
            scene.await_training()

    def fault(self, scene):
        self.await_moment(scene)
        pid = scene.pick(-1 if self.to == "worker" else 0)
        once = (lambda: scene.run.send_group(self.how)) if self.to == "group" else \
            (lambda: scene.run.send(pid, self.how))
        scene.strike(once)
        if self.again:
            gap = scene.random.uniform(*self.again)
            scene.notes.append(f"again after {gap:.2f} s")
            if scene.pause(gap) and scene.run.process.poll() is None:
                once()

    def outcome(self, scene):
        if self.to == "worker":
            return self.outcome_of_a_worker(scene)
        if scene.phase == "start":
            return judge.left_early(scene)
        if self.again and scene.run.status == judge.STATUS_LEFT:
            return []
        return judge.orderly(scene)

    def outcome_of_a_worker(self, scene):
        """Expects that the run ignores the signal, ends in order, or ends with the worker and names it."""
        if scene.run.status == 0:
            return judge.orderly(scene)
        if scene.phase == "start":
            return judge.left_early(scene)
        return judge.one_named_error(scene) + \
            [f"status {scene.run.status} instead of 1"] * (scene.run.status != judge.STATUS_FAILED)

    def bound(self, scene):
        if self.to == "worker":
            return super().bound(scene)
        return scene.limits.running if scene.phase != "start" else scene.limits.start


class Timeout(AsksToEnd):
    """Signals like coreutils' `timeout`: to the program, and at once to its group."""

    def __init__(self, name):
        super().__init__(name, signal.SIGTERM)

    def fault(self, scene):
        self.await_moment(scene)
        pid = scene.pick(0)
        gap = scene.random.uniform(0, 0.005)  # signals that are pending at the same time count once

        def twice():
            scene.run.send(pid, self.how)
            time.sleep(gap)
            scene.run.send_group(self.how)
        scene.strike(twice)


PROCESS_KINDS = [
    Ends("kill-worker", KILL, -1),
    Ends("kill-root", KILL, 0),
    KillsAll("kill-all"),
    Ends("segv-worker", signal.SIGSEGV, -1),
    Ends("segv-root", signal.SIGSEGV, 0),
    Ends("abrt-worker", signal.SIGABRT, -1),
    Ends("abrt-root", signal.SIGABRT, 0),
    IsStartedAgain("recover-kill", KILL),
    IsStartedAgain("recover-stop", STOP),
    IsStartedAgain("recover-segv", signal.SIGSEGV),
    LosesAGenerator("generator-kill", KILL),
    LosesAGenerator("generator-stop", STOP),
    LosesAGenerator("generator-segv", signal.SIGSEGV),
    LosesASurvivorToo("recover-kill-two", KILL),
    LosesASurvivorToo("recover-stop-two", STOP),
    Joins("join-leave", None),
    Joins("join-term", signal.SIGTERM),
    Joins("join-kill", KILL),
    Joins("join-stop", STOP),
    Joins("join-kill-worker", KILL, of_run=True),
    Stops("stop-worker", -1),
    Stops("stop-root", 0),
    Pauses("pause-worker-short", -1, 0.05, 1.3, judge.survived),
    Pauses("pause-root-short", 0, 0.05, 1.3, judge.survived),
    Pauses("pause-worker-middle", -1, 1.5, 2.8, judge.survived_or_died, NEAR_TIMEOUT),
    Pauses("pause-root-middle", 0, 1.5, 2.8, judge.survived_or_died, NEAR_TIMEOUT),
    Pauses("pause-worker-long", -1, 3.0, 5.0, judge.survived_or_died),
    Pauses("pause-root-long", 0, 3.0, 5.0, judge.survived_or_died),
    PausesAll("pause-all-short", 0.2, 1.5),
    PausesAll("pause-all-long", 3.6, 6.5),
    AsksToEnd("term-root", signal.SIGTERM),
    AsksToEnd("term-worker", signal.SIGTERM, "worker"),
    AsksToEnd("term-group", signal.SIGTERM, "group"),
    Timeout("term-timeout"),
    AsksToEnd("int-root", signal.SIGINT),
    AsksToEnd("int-group", signal.SIGINT, "group"),
    AsksToEnd("int-twice", signal.SIGINT, "group", again=(0.03, 0.9)),
    AsksToEnd("int-twice-slow", signal.SIGINT, "group", again=(1.05, 1.6)),
    AsksToEnd("hup", signal.SIGHUP, "group"),
    AsksToEnd("usr1", signal.SIGUSR1),
    AsksToEnd("xcpu", signal.SIGXCPU),
    AsksToEnd("xfsz", signal.SIGXFSZ),
    Ends("start-kill-worker", KILL, -1, start=True),
    Ends("start-kill-root", KILL, 0, start=True),
    Stops("start-stop-worker", -1, start=True),
    Stops("start-stop-root", 0, start=True),
    AsksToEnd("start-term-group", signal.SIGTERM, "group", start=1.0),
    AsksToEnd("start-int-group", signal.SIGINT, "group", start=1.0),
]
