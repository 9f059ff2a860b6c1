# SPDX-License-Identifier: Apache-2.0
"""Measures a program from outside: CPU and wall time between two lines of its output, per unit of work."""

import json
import os
import pathlib
import pty
import re
import signal
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MAESTRO = pathlib.Path(os.environ.get("MAESTRO_BINARY_DIR", ROOT / "build" / "release")) / "bin" / "maestro"


def clean_environment():
    environment = {**os.environ, "TERM": "xterm"}
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):  # would slow the peer down
        environment.pop(name, None)
    return environment


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def steps_in(text):
    """Returns the number of the last step in lines such as `step  7/100  loss 1.5`."""
    return max((int(number) for number in re.findall(r"step +(\d+)/", text)), default=0)


def read_until(output, pid, units_in, first, last):
    """Returns the output until `last` units, and (units, seconds, CPU seconds) at `first` and at `last`."""
    text, marks = "", []
    for wanted in (first, last):
        while (done := units_in(text)) < wanted:
            try:
                text += output.read(65536).decode(errors="replace")
            except OSError:  # no process holds the terminal
                raise EOFError(f"ended early:\n{text[-2000:]}") from None
        marks.append((done, time.perf_counter(), cpu_seconds(pid)))
    if marks[0][0] == marks[1][0]:
        raise EOFError("the units are too short to be timed")
    return text, marks


def unit_cost(command, cores, units_in, first, last):
    """Returns a process's mean costs of the units `first` to `last` on the first `cores` cores, and its output.

    units_in(text) is the number of finished units according to the output, which goes to a terminal, because maestro
    shows every step there at once. Ends the process after the last unit.
    """
    allowed = sorted(os.sched_getaffinity(0))[:cores]
    own, terminal = pty.openpty()
    process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=terminal,
                               stderr=terminal, env=clean_environment(),
                               preexec_fn=lambda: os.sched_setaffinity(0, allowed))
    os.close(terminal)
    try:
        with open(own, "rb", buffering=0) as output:
            text, marks = read_until(output, process.pid, units_in, first, last)
    except (OSError, EOFError) as error:
        raise SystemExit(f"{' '.join(map(str, command))}: {error}") from None
    finally:
        os.kill(process.pid, signal.SIGKILL)  # process.kill() would reap it, and its costs with it
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    units, wall, cpu = (end - begin for begin, end in zip(*marks))
    return {"cores": cores, "wall_ms": 1000 * wall / units, "cpu_ms": 1000 * cpu / units,
            "max_rss_mb": usage.ru_maxrss / 1024}, text


def has_modules(python, *modules):
    done = subprocess.run([python, "-c", f"import {', '.join(modules)}"], capture_output=True)
    if done.returncode != 0:
        print(f"no comparison with PyTorch: {python} has not both of {' and '.join(modules)}; "
              "--torch PYTHON names another", flush=True)
    return done.returncode == 0


class Best:
    """The least wall time, CPU time and memory over all rounds, by configuration."""

    def __init__(self, *key):
        self.key, self.rows = key, {}

    def add(self, row):
        """Prints a measurement at once, as a benchmark takes minutes."""
        print(json.dumps({name: round(value, 3) if isinstance(value, float) else value for name, value in row.items()}),
              flush=True)
        key = tuple(row[name] for name in self.key)
        best = self.rows.setdefault(key, dict(row))
        for name in ("wall_ms", "cpu_ms", "max_rss_mb"):
            best[name] = min(best[name], row[name])

    def print_table(self, per_second, unit):
        """Prints rates per second of wall time, and maestro's ratios to the fastest peer, if any."""
        columns = [*self.key, f"{unit}/s", "wall ms", "CPU ms", "peak MB", "speed", "CPU time", "memory"]
        print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
        for key, row in self.rows.items():
            peers = [other for rest, other in self.rows.items() if rest[0] != "maestro" and rest[1:] == key[1:]]
            cells = [*key, f"{1000 * per_second / row['wall_ms']:.3g}", f"{row['wall_ms']:.0f}", f"{row['cpu_ms']:.0f}",
                     f"{row['max_rss_mb']:.0f}"]
            if key[0] == "maestro" and peers:
                peer = min(peers, key=lambda other: other["wall_ms"])
                cells += [f"{peer['wall_ms'] / row['wall_ms']:.2f}x", f"{row['cpu_ms'] / peer['cpu_ms']:.2f}x",
                          f"{row['max_rss_mb'] / peer['max_rss_mb']:.2f}x"]
            print("| " + " | ".join(map(str, cells)) + " |" + " |" * (len(columns) - len(cells)))
