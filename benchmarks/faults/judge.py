# SPDX-License-Identifier: Apache-2.0
"""Judges a run after a fault. Every function returns a list of problems as text."""

import re
import signal
import subprocess
from dataclasses import dataclass

import maestro_program
from layouts import DEVICES, STEPS, curve_of

NOISE = ("terminate called", "unhandled exception", "internal error", "backtrace", "terminated with signal",
         "Segmentation fault", "Assertion")
STATUS_FAILED, STATUS_INPUT, STATUS_LEFT, STATUS_LOADER = 1, 2, 130, 127


@dataclass(frozen=True)
class Limits:
    """Seconds from the fault to the end of the last process."""
    running: float = 5.0
    start: float = 10.0
    cap_s: float = 75.0  # a run that still exists then has hung

    def scaled(self, factor):
        return Limits(self.running * factor, self.start * factor, self.cap_s * factor)


def shortened(line):
    return line if len(line) <= 260 else line[:257] + "..."


def lines_of(run):
    return " | ".join(shortened(line) for line in run.error_lines()) or "no error line"


# Checks of every run.

def hang(scene):
    if not scene.hung:
        return []
    word = "silent hang" if not scene.run.error_lines() else "hang"
    return [f"{word}: {scene.hung} left {scene.limits.cap_s:.0f} s after the fault; {lines_of(scene.run)}"]


def late(scene, bound):
    seconds = scene.seconds()
    return [f"late: {seconds:.1f} s; {lines_of(scene.run)}"] if not scene.hung and seconds > bound else []


def noise(run):
    """Finds noise, and more than one error on the same host."""
    text = run.text["out"] + run.text["err"]
    found = [line for line in text.splitlines() if any(word in line for word in NOISE)]
    problems = [f"noise: {shortened(found[0])}"] if found else []
    if len(run.error_lines()) > 1:
        problems.append(f"{len(run.error_lines())} error lines: {lines_of(run)}")
    return problems


def left_behind(scene, staging=False):
    left = scene.leftovers() + (scene.staging() if staging else [])
    return [f"left behind: {', '.join(sorted(left)[:4])}{' ...' if len(left) > 4 else ''}"] if left else []


def checkpoint_valid(scene, *options):
    """Checks the newest checkpoint with `maestro check`."""
    if not scene.checkpoints():
        return []
    command = [maestro_program.PROGRAM, "check", "job.toml", *DEVICES, "--resume", "out", *options]
    done = subprocess.run(command, cwd=scene.folder, env=maestro_program.own_environment(), capture_output=True,
                          text=True, check=False, stdin=subprocess.DEVNULL, timeout=120)
    return [] if done.returncode == 0 else [f"invalid checkpoint: {shortened(done.stderr.strip())}"]


# Checks of the outcome.

def same_losses(scene, run, first=1, last=STEPS):
    """Expects every step from `first` to `last` in the report, bitwise equal to the undisturbed run's."""
    if run.report is None:
        return ["no report"]
    curve = curve_of(run.report)
    wanted = {key: value for key, value in scene.baseline.curve.items() if first <= key[1] <= last}
    if set(curve) != set(wanted):
        return [f"steps {sorted({step for _, step in set(curve) ^ set(wanted)})} missing or too many"]
    wrong = sorted(step for (_, step) in wanted if any(curve[k] != wanted[k] for k in wanted if k[1] == step))
    return [f"wrong losses from step {wrong[0]}"] if wrong else []


def survived(scene, run=None):
    """Expects that the run completed as if undisturbed."""
    run = run or scene.run
    if run.status != 0:
        return [f"status {run.status} instead of 0: {lines_of(run)}"]
    return [f"error line: {lines_of(run)}"] * bool(run.error_lines()) + same_losses(scene, run)


def orderly(scene):
    """Expects that the steps were finished and saved: status 0, no error, a checkpoint of the last step."""
    run = scene.run
    if run.status != 0:
        return [f"status {run.status} instead of 0: {lines_of(run)}"]
    if run.report is None:
        return ["no report"]
    problems = [f"error line: {lines_of(run)}"] * bool(run.error_lines())
    last = run.report["last_step"]
    if last > 0 and last not in scene.checkpoints():
        problems.append(f"no checkpoint of the last step {last}; there are {sorted(scene.checkpoints())}")
    if last < STEPS and not run.report["interrupted"]:
        problems.append(f"ended with step {last}, and the report does not call it interrupted")
    if last < STEPS and (told := run.text["out"].count("stopping")) != 1:
        problems.append(f"{told} lines instead of 1 that it is stopping")
    return problems + same_losses(scene, run, last=last)


def left_early(scene):
    """Expects that a signal before the first step ended the run, in order or with at most a single line."""
    run = scene.run
    if run.status == 0 and run.report is not None:
        return orderly(scene)
    if run.status == STATUS_FAILED and not run.error_lines():
        return ["status 1 without a line"]
    accepted = (0, STATUS_FAILED, STATUS_LEFT, 128 + signal.SIGTERM, 128 + signal.SIGHUP)
    return [] if run.status in accepted or run.status < 0 else [f"status {run.status}: {lines_of(run)}"]


def one_named_error(scene):
    """Expects exactly 1 line that names the lost process, its section and replica, and the step."""
    run, (rank, pid) = scene.run, scene.victim
    lines = run.error_lines()
    if len(lines) != 1:
        return [f"{len(lines)} error lines instead of 1: {lines_of(run)}"]
    if scene.phase != "running" or run.has_finished_steps():
        return []
    if f"process {rank} (pid {pid}" not in lines[0]:
        return [f"does not name process {rank} (pid {pid}): {lines_of(run)}"]
    wanted = {"section": r"section '", "replica": r"replica \d", "step": r"in step \d+"}
    missing = [name for name, pattern in wanted.items() if not re.search(pattern, lines[0])]
    return [f"no {', '.join(missing)} in: {lines_of(run)}"] if missing else []


def died(scene, how):
    """Expects that signal `how` ended the victim, or that the others ended the stopped victim."""
    run, (rank, _) = scene.run, scene.victim
    if run.status == 0 and run.has_finished_steps():
        return survived(scene)
    if scene.case.processes == 1:
        return [] if run.status == -how else [f"status {run.status} instead of {-how}: {lines_of(run)}"]
    wanted = (-how, -signal.SIGKILL) if rank == 0 else (STATUS_FAILED,)
    problems = [] if run.status in wanted else [f"status {run.status} instead of {wanted[0]}: {lines_of(run)}"]
    if scene.phase == "start" and rank == 0:  # its children may be too young to report it
        return problems
    return problems + one_named_error(scene)


def recovered(scene):
    """Expects that the run continued without the lost process, as if undisturbed, with a warning that names it."""
    run, (rank, pid) = scene.run, scene.victim
    if scene.phase != "running" or run.has_finished_steps() and not (run.report or {}).get("recoveries"):
        return survived(scene) if run.status == 0 else completed_or_refused(scene)
    problems = survived(scene)
    if problems:
        return problems
    warnings = [line for line in run.text["err"].splitlines() if line.startswith("warning:")]
    named = re.compile(rf"lost process {rank} \(pid {pid}(, section '.*replica \d.*)?\) in step \d+.*recovery 1 of ")
    if scene.case.provider == "shm" and len(warnings) == 2 and "keeps back the ends of all later writes" in warnings[1]:
        scene.notes.append("the lost process had not read a write, and the group went back")
        warnings.pop()
    if len(warnings) != 1 or not named.search(warnings[0]):
        problems.append(f"{len(warnings)} warnings, or without process {rank} (pid {pid}): {warnings[:2]}")
    return problems + samples_missed(scene)


def recovered_often(scene):
    """Expects that the run continued after two losses. After a loss that follows its last step it ends with a line."""
    warnings = [line for line in scene.run.text["err"].splitlines() if line.startswith("warning:")]
    if scene.run.status != 0 and scene.run.has_finished_steps() and len(warnings) < 2:
        return completed_or_refused(scene)
    problems = survived(scene)
    if problems:
        return problems
    if scene.phase == "running" and not 0 < len(warnings) <= 3:
        problems.append(f"{len(warnings)} warnings: {warnings[:4]}")
    return problems + samples_missed(scene)


def samples_missed(scene):
    """Expects that each sample was read and trained once."""
    counted = [scene.run.report["samples"][name] for name in ("read", "trained")]
    return [] if counted == [STEPS * 12] * 2 else [f"samples read and trained: {counted}"]


def survived_or_died(scene):
    """Accepts both outcomes of a pause near the time limit, but only the paused process may be named and ended."""
    return survived(scene) if scene.run.status == 0 else died(scene, signal.SIGKILL)


def completed_or_refused(scene, run=None):
    """Expects that a run without enough of a resource trains on, or ends with a single line."""
    run = run or scene.run
    if run.status == 0:
        return survived(scene, run)
    if run.status == STATUS_LOADER and "error while loading shared libraries" in run.text["err"]:
        return []
    if run.status not in (STATUS_FAILED, STATUS_INPUT):
        return [f"status {run.status}: {lines_of(run)}"]
    return [] if len(run.error_lines()) == 1 else [f"{len(run.error_lines())} error lines instead of 1: "
                                                   f"{shortened(run.text['err'][-200:]).strip()!r}"]


def refused(run, *wanted):
    """Expects status 2 for wrong input, and a single line with any of the wanted words."""
    if run.status != STATUS_INPUT:
        return [f"status {run.status} instead of {STATUS_INPUT}: {lines_of(run)}"]
    lines = run.error_lines()
    if len(lines) != 1:
        return [f"{len(lines)} error lines instead of 1: {lines_of(run)}"]
    return [] if any(word in lines[0] for word in wanted) else [f"names none of {wanted}: {lines_of(run)}"]


def resumed(scene, run, after):
    """Checks a run that resumed from a checkpoint."""
    if run.status != 0:
        return [f"resume: status {run.status}: {lines_of(run)}"]
    if run.report is None:
        return ["resume: no report"]
    if after is not None and run.report["resumed_from"] != after:
        return [f"resume: from step {run.report['resumed_from']} instead of {after}"]
    first = run.report["resumed_from"] + 1
    problems = same_losses(scene, run, first) + noise(run) + left_behind(scene, staging=True)
    return [f"resume: {problem}" for problem in problems]
