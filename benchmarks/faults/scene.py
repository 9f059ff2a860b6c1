# SPDX-License-Identifier: Apache-2.0
"""A case of the fault bench: its folder, its runs, and the fault's moment and victims."""

import json
import os
import random
import re
import shutil
import signal
import stat
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from layouts import DEVICES, EVERY, STEPS, write_inputs
from maestro_program import PROGRAM, Run, own_environment, state_of


LAST_WORDS = re.compile(r": signal SIG(SEGV|ABRT|BUS|FPE|ILL)$")


class NoEffect(Exception):
    """The fault hit nothing: the run had ended, or the victim was not there."""


@dataclass(frozen=True)
class Case:
    """The choices that a case's seed decides before its run starts."""
    kind: str
    number: int
    seed: int
    layout: str
    processes: int
    provider: str

    @property
    def name(self):
        return f"{self.kind}/{self.number}"

    def generator(self, purpose):
        return random.Random(f"{self.seed}/{self.name}/{purpose}")


def draw_case(kind, number, seed, layouts):
    chosen = random.Random(f"{seed}/{kind.name}/{number}")
    layout, processes = chosen.choice(list(kind.layouts or layouts)), chosen.choice(kind.processes)
    provider = chosen.choice(kind.providers)
    return Case(kind.name, number, seed, layout, processes, provider if processes > 1 else "none")


class FaultyRun(Run):
    """A run that a fault hits. It has separate folders for sockets and temporary files."""

    def __init__(self, folder, arguments, report, launcher, places):
        self.began = time.monotonic()
        super().__init__(folder, arguments, report, launcher, places)

    def send(self, pid, how):
        if state_of(pid) == "Z":
            raise NoEffect("the victim had ended")
        try:
            os.kill(pid, how)
        except ProcessLookupError:
            raise NoEffect("the victim had ended") from None

    def send_group(self, how):
        try:
            os.killpg(self.process.pid, how)
        except ProcessLookupError:
            raise NoEffect("the run had ended") from None

    def has_stepped(self):
        return "step " in self.text["err"]

    def has_finished_steps(self):
        return f"step {STEPS}/{STEPS}" in self.text["err"]

    def wait_gone(self, cap_s, besides=()):
        """Waits until only `besides` are left. Returns (time, {pid: state} of processes left after cap_s)."""
        deadline = time.monotonic() + cap_s
        left = {self.process.pid}  # a process that has just started does not show its variables yet
        looked_at = time.monotonic()
        while time.monotonic() < deadline:
            if any(state_of(pid) != "Z" for pid in left - set(besides)):
                time.sleep(0.01)  # no event reports the end of a process that is not a child
                if time.monotonic() > looked_at + 0.25:
                    looked_at = time.monotonic()
                    self.pids_seen.update(self.marked())  # leftovers are attributed by pid
                continue
            left = set(self.marked())
            if left <= set(besides):
                return time.monotonic(), {}
        return time.monotonic(), {pid: state_of(pid) for pid in left}

    def collect(self):
        """Reads status, output and report after all processes have ended."""
        self.end()
        for reader in self.readers:
            reader.join(10)
        self.status = self.process.returncode
        self.report = None
        if self.report_path is not None and self.report_path.is_file():
            try:
                self.report = json.loads(self.report_path.read_text())
            except ValueError:
                self.report = None

    def error_lines(self):
        """Returns the error lines without the line of a process that a fault ended, whose loss rank 0 reports."""
        lines = [line for line in self.text["err"].splitlines() if line.startswith("error:")]
        return [line for line in lines if not LAST_WORDS.search(line)] if len(lines) > 1 or self.status == 0 else lines

    def describe(self):
        return f"status {self.status}\n--- stdout\n{self.text['out']}--- stderr\n{self.text['err']}"


@dataclass
class Scene:
    case: Case
    folder: Path
    baseline: object
    limits: object
    launcher: list = field(default_factory=list)
    options: list = field(default_factory=list)
    runs: list = field(default_factory=list)
    notes: list = field(default_factory=list)
    victim: tuple = ()  # (rank, pid)
    left_stopped: tuple = ()  # pids that a fault stopped for ever
    ended_here: bool = False  # the bench ended the rest of the run
    fault_at: float = 0.0
    phase: str = "start"  # the run's phase at the fault: start, running, ending
    dead_at: float = 0.0
    hung: dict = field(default_factory=dict)

    def __post_init__(self):
        write_inputs(self.folder, self.case.layout)
        for name in ("runtime", "tmp"):
            (self.folder / name).mkdir(mode=0o700)
        self.random = self.case.generator("fault")

    @property
    def run(self):
        return self.runs[0]

    @property
    def out(self):
        return self.folder / "out"

    def start(self, *options, processes=None, launcher=None):
        """Starts `maestro train` in the case's folder."""
        processes = processes or self.case.processes
        report = f"report{len(self.runs)}.json"
        arguments = ["train", "job.toml", *DEVICES, "--processes", str(processes), "--report", report, *options]
        if processes > 1 and self.case.provider != "none":
            arguments += ["--set", f"transport.provider={self.case.provider}"]
        self.runs.append(FaultyRun(self.folder, arguments, self.folder / report,
                                   self.launcher if launcher is None else launcher, self.variables()))
        return self.runs[-1]

    def join(self):
        """Starts a process that takes over teacher replicas, and adds it to `runs`."""
        self.runs.append(FaultyRun(self.folder, ["join", "--section", "teacher"], None, self.launcher, self.variables()))
        return self.runs[-1]

    def command(self, *words):
        """Runs a client of the run to its end."""
        environment = {**own_environment(), **self.variables()}
        subprocess.run([PROGRAM, *words], cwd=self.folder, env=environment, capture_output=True, check=False, timeout=60)

    def variables(self):
        return {"XDG_RUNTIME_DIR": str(self.folder / "runtime"), "TMPDIR": str(self.folder / "tmp"),
                "MAESTRO_REPOSITORY": str(self.folder)}

    # Moments, drawn with the case's seed.

    def await_training(self, share=0.6):
        """Waits for a moment between the first step and `share` of all steps, judged by the existing checkpoints."""
        steps = self.random.uniform(0, share) * STEPS
        begun = self.run.wait_for_text("step ", "err")
        while begun and max(self.checkpoints(), default=0) + EVERY <= steps:
            if self.run.process.poll() is not None:
                break
            time.sleep(0.005)  # no event reports a new folder
        if self.run.process.poll() is not None:
            raise NoEffect("the run had ended")
        time.sleep(steps % EVERY / STEPS * self.baseline.seconds)

    def await_start(self, least=0.0, most=1.0):
        """Waits for a moment in the first second, at any progress of the run."""
        time.sleep(max(0.0, self.run.began + self.random.uniform(least, most) - time.monotonic()))

    def await_member(self, rank):
        """Waits for a rank. Returns its pid."""
        while rank not in (members := self.run.members()):
            if self.run.process.poll() is not None or time.monotonic() > self.run.began + self.limits.cap_s:
                raise NoEffect(f"process {rank} was not there")
            time.sleep(0.01)  # no event reports a process started by another process
        return members[rank]

    def pick(self, rank):
        """Chooses the victim: rank 0 or a random worker."""
        if rank != 0:
            rank = self.random.randint(1, self.case.processes - 1)
        pid = self.run.process.pid if rank == 0 else self.await_member(rank)
        self.victim = (rank, pid)
        return pid

    def strike(self, action):
        """Injects the fault; its seconds count from here."""
        if self.run.process.poll() is not None:
            raise NoEffect("the run had ended")
        self.run.members()
        stepped, finished = self.run.has_stepped(), self.run.has_finished_steps()
        self.phase = "ending" if finished else "running" if stepped else "start"
        self.fault_at = time.monotonic()
        try:
            action()
        except NoEffect:
            self.fault_at = 0.0
            raise

    def pause(self, seconds):
        """Waits; returns false if the run ended meanwhile."""
        dead_at, left = self.run.wait_gone(seconds)
        if not left:
            self.dead_at = dead_at
        return bool(left)

    def finish(self, run):
        """Waits for the end of a run until the cap; a run that is left then has hung and is killed."""
        dead_at, left = run.wait_gone(self.limits.cap_s, self.left_stopped)
        if run is self.run:
            self.dead_at, self.hung = self.dead_at or dead_at, left
        if not left and self.left_stopped and run.marked():
            self.ended_here = True
            self.notes.append("the stopped process was left stopped")
        run.collect()
        return left

    def seconds(self):
        return self.dead_at - (self.fault_at or self.run.began)

    # Leftovers.

    def checkpoints(self):
        """Returns the committed checkpoints by step."""
        found = {}
        for path in self.out.glob("checkpoints/step-*"):
            number = path.name.removeprefix("step-")
            if number.isdigit() and path.is_dir():
                found[int(number)] = path
        return found

    def leftovers(self):
        """Returns sockets, temporary files and shared-memory segments of the case's runs."""
        left = []
        for place in ("runtime", "tmp"):
            for path in (self.folder / place).rglob("*"):
                if not path.is_dir():
                    what = "socket" if stat.S_ISSOCK(path.lstat().st_mode) else "file"
                    left.append(f"{what} {path.relative_to(self.folder)}")
        pids = {str(pid) for run in self.runs for pid in run.pids_seen}
        left += [f"segment {name}" for name in os.listdir("/dev/shm")
                 if name.startswith("maestro-") and name.split("-")[2:3] and name.split("-")[2] in pids]
        return left

    def staging(self):
        return [path.name for path in self.out.glob("checkpoints/*.tmp")] + \
               [str(path.relative_to(self.folder)) for path in self.folder.rglob(".maestro-*")]

    def clear_leftovers(self):
        """Removes leftovers, so that the first run's processes are not mistaken for a resumed run's."""
        for place in ("runtime", "tmp"):
            shutil.rmtree(self.folder / place, ignore_errors=True)
            (self.folder / place).mkdir(mode=0o700, exist_ok=True)
            os.chown(self.folder / place, self.folder.stat().st_uid, -1)

    def end(self):
        for run in self.runs:
            for pid in run.marked():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            run.end()
