# SPDX-License-Identifier: Apache-2.0
"""A run of the program on an input, and its problems."""

import dataclasses
import os
import re
import signal
import subprocess
import threading

LONGEST_LINE = 2100  # bytes: the limit of Console, with the prefix and the mark of the cut
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
LINE_TIME = re.compile(r"^\d{4}-\d\d-\d\dT[\d:.]+Z ", re.M)  # in front of the lines of a run
LAUNCHERS = ("SLURM_", "OMPI_", "PMIX_", "TORCHELASTIC_", "MAESTRO_", "MASTER_", "LOCAL_", "RANK", "WORLD_SIZE")


@dataclasses.dataclass
class Limits:
    seconds: float = 20.0
    megabytes: int = 700  # resident
    statuses: tuple = (0, 2)
    list_lines: bool = False  # an error may go on in lines that start with two spaces (samples left out of a corpus)


@dataclasses.dataclass
class Verdict:
    status: int
    seconds: float
    megabytes: float
    problems: list
    text: str


def own_environment(variables):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
    return {**kept, "MAESTRO_REPOSITORY": os.environ.get("MAESTRO_REPOSITORY", ""), **variables}


def complaints(status, error_text, limits):
    """Problems of an exit status and the bytes of standard error."""
    problems = []
    if status < 0:
        return [f"signal {signal.Signals(-status).name}"]
    if status not in limits.statuses:
        problems.append(f"status {status}")
    try:
        text = error_text.decode()
    except UnicodeDecodeError:
        problems.append("no UTF-8")
        text = error_text.decode(errors="replace")
    lines = LINE_TIME.sub("", text).split("\n")
    if lines.pop():
        problems.append("the last line does not end")
    errors = [line for line in lines if line.startswith("error: ")]
    if len(errors) != (0 if status == 0 else 1):
        problems.append(f"{len(errors)} error lines")
    known = ("error: ", "warning: ", *(("  ",) if limits.list_lines else ()))
    if status != 0 and any(not line.startswith(known) for line in lines):
        problems.append("other lines")
    if any(len(line.encode()) > LONGEST_LINE for line in lines):
        problems.append("a line too long")
    if CONTROL.search(text):
        problems.append("control bytes")
    if "internal error" in text:
        problems.append("internal error")
    return problems


def run(command, folder, variables, limits):
    """Runs `command` in `folder` to its end, or to the end of its time."""
    with open(folder / ".stderr", "w+b") as errors:
        process = subprocess.Popen(command, cwd=folder, env=own_environment(variables), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True)
        late = threading.Event()

        def end():
            late.set()
            os.killpg(process.pid, signal.SIGKILL)

        timer = threading.Timer(limits.seconds, end)
        timer.start()
        _, status, usage = os.wait4(process.pid, 0)
        timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        text = errors.read()
    megabytes = usage.ru_maxrss / 1024
    problems = ["hang"] if late.is_set() else complaints(process.returncode, text, limits)
    if megabytes > limits.megabytes:
        problems.append("memory")
    seconds = usage.ru_utime + usage.ru_stime
    return Verdict(process.returncode, seconds, megabytes, problems, text.decode(errors="replace"))
