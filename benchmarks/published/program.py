# SPDX-License-Identifier: Apache-2.0
"""Calls of `maestro` on workloads, in virtual time."""
import json
import subprocess
import sys

STEPS = 6  # rehearsed steps; two of them are left out


class Program:
    """`binaries`: folder of the program; `scratch`: folder for workload files."""

    def __init__(self, binaries, scratch):
        self.program = binaries / "maestro"
        self.scratch = scratch

    def write(self, workload, name="workload.json"):
        path = self.scratch / name
        path.write_text(json.dumps(workload))
        return path

    def _answer(self, workload, command, *options):
        file = self.write(workload) if isinstance(workload, dict) else workload
        done = subprocess.run([self.program, command, file, *map(str, options)], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stderr)
        return json.loads(done.stdout)

    def makespan(self, workload, policy="wavefront"):
        """Returns the milliseconds of a single planned step. `workload`: a dictionary or a file, as in period()."""
        return self._answer(workload, "simulate", "--policy", policy)["makespan_ms"]

    def period(self, workload, settings=(), free=None, constants=(), noise=0, seed=0, policy="wavefront"):
        """Returns the milliseconds from step to step in a rehearsal. `noise`: deviation of the logarithm of pass times, which
        the plan does not know."""
        options = [word for setting in settings for word in ("--set", setting)]
        options += ["--free", free] if free else []
        options += [word for constant in constants for word in ("--constant-ms", constant)]
        options += ["--noise", noise, "--seed", seed] if noise else []
        options += ["--policy", policy]
        return self._answer(workload, "emulate", "--rehearse", "--steps", STEPS, *options)["step_ms"]
