# SPDX-License-Identifier: Apache-2.0
"""Runs the real `maestro` program in a new folder and checks the files it leaves.

The environment variable MAESTRO_PROGRAM names the program. Every process has its run's mark in its environment, so
that orphans are found, and processes of other runs never are.
"""

import functools
import json
import os
import random
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest
import uuid
from pathlib import Path

PROGRAM = os.environ.get("MAESTRO_PROGRAM", "maestro")
CLIENT = Path(PROGRAM).resolve().parent.parent / "python"  # in the build: maestro_client with its generated code
SANITIZED = bool(os.environ.get("MAESTRO_SANITIZE"))
MARK = "MAESTRO_TEST_RUN"
LAUNCHERS = ("SLURM_", "OMPI_", "PMIX_", "TORCHELASTIC_", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE", "MASTER_")
RANKS = ("MAESTRO_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")  # the first that is set counts
STATE = tempfile.TemporaryDirectory(prefix="maestro-test-state-")  # not the list of the user
os.environ["XDG_STATE_HOME"] = STATE.name
LINE_TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ", re.M)  # at the start of every line of a run
# For anything that a loaded machine may delay, so that a failing test ends.
PATIENCE_S = 600.0 if SANITIZED else 120.0
SLOWNESS = 5 if SANITIZED else 1  # a silent process counts as lost this many times later
LOADED = 6 * SLOWNESS  # allowed slowdown next to other work; benchmarks measure the real times
ENDLESS = 1_000_000  # steps of a run that the test ends: more than any machine does within PATIENCE_S


def own_environment():
    """Returns this process's environment without variables set by a launcher of the tests."""
    return {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS) and name not in RANKS}


def without_times(text):
    """Returns a run's lines without their times, as tests compare them."""
    return LINE_TIME.sub("", text)


def text_corpus(size=40_000, seed=7):
    """Returns text with something to learn: sentences with words from a small vocabulary."""
    words = "the a old small river stone light runs falls over under quick slow and then stays with every green".split()
    chosen = random.Random(seed)
    parts, length = [], 0
    while length < size:
        sentence = " ".join(chosen.choice(words) for _ in range(chosen.randint(4, 11))).capitalize() + ".\n"
        parts.append(sentence)
        length += len(sentence)
    return "".join(parts)[:size]


def as_toml(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {as_toml(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(as_toml(part) for part in value) + "]"
    return json.dumps(value)  # JSON and TOML are equal for strings, numbers, booleans and lists


def job_text(job):
    """Returns TOML of {"name": ..., "train": {...}, ...}: plain values first, then a table per section."""
    lines = [f"{key} = {as_toml(value)}" for key, value in job.items() if not isinstance(value, dict)]
    for name, table in job.items():
        if isinstance(table, dict):
            lines.append(f"[{name}]")
            lines += [f"{key} = {as_toml(value)}" for key, value in table.items()]
    return "\n".join(lines) + "\n"


def decoder(**changes):
    return {"layers": 2, "width": 32, "heads": 2, "positions": 32, "micro_batch": 4, "lr": 1e-3, **changes}


def language_model(**train):
    return {
        "name": "test",
        "app": "language_model",
        "train": {"steps": 12, "global_batch": 8, "validation_samples": 8, "out": "out", "recover": "off",
                  **train},
        "data": {"path": "corpus.txt", "sequence": 32},
        "teacher": decoder(replicas=1),
    }


def distillation(**train):
    """Returns a job: a frozen (random) teacher, a student that learns from it, and a plain student."""
    job = language_model(**train)
    job["app"] = "distillation"
    job["teacher"] = {"layers": 2, "width": 48, "heads": 2, "positions": 32, "micro_batch": 8, "replicas": 1,
                      "weights": "random"}
    job["student"] = decoder()
    job["plain"] = decoder()
    return job


def options_of(settings):
    arguments = []
    for key, value in settings.items():
        arguments += ["--set", f"{key}={as_toml(value)}"]
    return arguments


def undisturbed(test):
    """A test that compares measured times: repeated up to four times if it fails, as other work may have lengthened
    the times. `self.stretch` may multiply its emulated times, since other work adds a constant time to each pass."""
    @functools.wraps(test)
    def until_it_holds(self):
        for self.stretch in (1, 2, 4, 8, 16):
            try:
                return test(self)
            except AssertionError:
                if self.stretch == 16:
                    raise
    return until_it_holds


def state_of(pid):
    """Returns the letter of proc(5); Z also if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "Z"


class Finished:
    def __init__(self, status, out, err, report):
        self.status, self.out, self.err, self.report = status, out, err, report

    def error_lines(self):
        return [line for line in self.err.splitlines() if line.startswith("error:")]

    def curve(self, *names, after=0):
        """Returns {(section, step): values of the given columns} for training steps after `after` that have one."""
        names = names or ("loss", "grad_norm")
        return {(row["section"], row["step"]): tuple(row.get(name) for name in names)
                for row in self.report["steps"] if row["step"] > after and not row.keys().isdisjoint(names)}

    def describe(self):
        return f"status {self.status}\nstdout:\n{self.out}\nstderr:\n{self.err}"


class Run:
    """A run under way, in a separate process group. `launcher`: the words before the program's name."""

    def __init__(self, folder, arguments, report=None, launcher=(), variables=None):
        self.folder, self.report_path = folder, report
        self.held_at = None  # the control service of a run from start_held()
        self.mark = uuid.uuid4().hex
        self.changed = threading.Condition()
        self.printed = {"out": "", "err": ""}
        self.text = {"out": "", "err": ""}  # without_times()
        self.pids_seen, self.sockets_seen = set(), {}  # listening sockets: {inode: port}
        environment = {**own_environment(), MARK: self.mark, **(variables or {})}
        self.process = subprocess.Popen([*launcher, PROGRAM, *arguments], cwd=folder, env=environment,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        start_new_session=True)
        self.readers = [threading.Thread(target=self._read, args=(stream, name), daemon=True)
                        for stream, name in ((self.process.stdout, "out"), (self.process.stderr, "err"))]
        for reader in self.readers:
            reader.start()

    def _read(self, stream, name):
        with stream:
            while chunk := os.read(stream.fileno(), 65536):
                with self.changed:
                    self.printed[name] += chunk.decode(errors="replace")
                    self.text[name] = without_times(self.printed[name])
                    self.changed.notify_all()

    def wait_for_text(self, wanted, name=None):
        """Waits until `wanted` appears in a stream. Returns False at once if the run ends without it."""
        deadline = time.monotonic() + PATIENCE_S
        with self.changed:
            while not any(wanted in text for key, text in self.text.items() if name in (None, key)):
                ended = not any(reader.is_alive() for reader in self.readers)
                if ended or time.monotonic() > deadline:
                    self.text["status"] = str(self.process.poll())  # tests print the text if they fail
                    return False
                self.changed.wait(0.05)
        return True

    def wait_for(self, condition):
        """Waits until `condition()` holds. Returns False if the run ends first."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if self.process.poll() is not None or time.monotonic() > deadline:
                return condition()
            time.sleep(0.002)  # no event reports a change in a file or in /proc
        return True

    def marked(self):
        """Returns {pid: variables} of all processes that belong to this run, including its launchers."""
        found = {}
        mark = f"{MARK}={self.mark}".encode()
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                variables = Path("/proc", entry, "environ").read_bytes().split(b"\0")
                state = Path("/proc", entry, "stat").read_text().rsplit(")", 1)[1].split()[0]
            except OSError:
                continue
            if mark in variables and state != "Z":
                found[int(entry)] = dict(v.decode(errors="replace").split("=", 1) for v in variables if b"=" in v)
        return found

    def members(self):
        """Returns {rank: pid} of the running processes."""
        found, without_rank = {}, []  # rank 0 that starts the others, and the remote shells that it has started
        for pid, variables in self.marked().items():
            ranks = [variables[name] for name in RANKS if name in variables]
            if ranks:
                found[int(ranks[0])] = pid
            else:
                without_rank.append(pid)
        if without_rank:
            found.setdefault(0, self.process.pid if self.process.pid in without_rank else without_rank[0])
        self.pids_seen.update(found.values())
        for pid in found.values():
            self.sockets_seen.update(listening_sockets(pid))
        return found

    def release(self, unless=None):
        """Lets a run of start_held() continue, whether it has already paused or not. After a loss, a run is for a
        moment without its service; if it then prints `unless`, a later release() or wait() continues it."""

        def resumed():
            if subprocess.run([PROGRAM, "continue", "--at", self.held_at], env=own_environment(), stdin=subprocess.DEVNULL,
                              capture_output=True, check=False).returncode == 0:
                self.held_at = None
            return self.held_at is None or unless is not None and unless in self.text["err"]

        if self.held_at is not None:
            self.wait_for(resumed)

    def wait(self):
        """Waits for the end of the program and of everything that holds its output. Releases the run."""
        self.release()
        try:
            self.process.wait(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(self.standing()) from None
        for reader in self.readers:
            reader.join(PATIENCE_S)
        report = None
        if self.report_path is not None and self.report_path.exists():
            report = json.loads(self.report_path.read_text())
        return Finished(self.process.returncode, self.text["out"], self.text["err"], report)

    def standing(self):
        """Returns the output of a run that should have ended, and what its replicas wait for."""
        found = [str(self.text)]
        for folder in sorted(path.parent.parent for path in self.folder.glob("*/record/events.jsonl")):
            asked = subprocess.run([PROGRAM, "status", folder], env=own_environment(), stdin=subprocess.DEVNULL,
                                   capture_output=True, text=True, check=False)
            found.append(asked.stdout or asked.stderr)
        return f"the run has not ended within {PATIENCE_S:.0f} s\n" + "\n".join(found)

    def leftovers(self):
        """Returns what is left of this run: processes, shared-memory segments, listening ports."""
        self.members()
        left = [f"process {pid}" for pid in self.marked()]
        for name in os.listdir("/dev/shm"):
            segment = re.match(r"maestro-\d+-(\d+)-", name)
            if segment and int(segment[1]) in self.pids_seen:
                left.append(f"segment {name}")
        busy = listening_inodes()  # another program may listen at the same port by now, but not with the same socket
        return left + [f"port {port}" for inode, port in self.sockets_seen.items() if inode in busy]

    def interrupt(self):
        os.killpg(self.process.pid, signal.SIGINT)

    def end(self):
        """Kills all its processes at the same moment."""
        if self.process.poll() is None:  # otherwise the number may be another run's: process ids wrap within minutes
            os.killpg(self.process.pid, signal.SIGKILL)
        for pid in self.marked():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait(timeout=PATIENCE_S)


def listening_inodes():
    """Returns {socket inode: port} of this machine's listening TCP sockets."""
    found = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            fields = row.split()
            if fields[3] == "0A":
                found[fields[9]] = int(fields[1].rsplit(":", 1)[1], 16)
    return found


def listening_sockets(pid):
    """Returns {socket inode: port} of a process's listening TCP sockets."""
    listening = listening_inodes()
    found = {}
    try:
        for entry in os.listdir(f"/proc/{pid}/fd"):
            target = os.readlink(f"/proc/{pid}/fd/{entry}")
            if target.startswith("socket:[") and target[8:-1] in listening:
                found[target[8:-1]] = listening[target[8:-1]]
    except OSError:
        pass  # it ended in the meantime
    return found


def listening_ports(pid):
    return set(listening_sockets(pid).values())


def free_port():
    """Returns a port for a server that starts later. The system gives no other process a port of this range by itself:
    it is below the range for connections and for servers that name no port."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.SystemRandom().randrange(10_000, first) if first > 11_000 else 0
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return probe.getsockname()[1]
            except OSError:
                pass  # in use


class SystemTest(unittest.TestCase):
    maxDiff = 2000
    undisturbed = {}  # runs of twin(), by job and options

    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="maestro-test-")
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        (self.folder / "corpus.txt").write_text(text_corpus())
        self.runs = 0

    def write_job(self, job, name="job.toml"):
        (self.folder / name).write_text(job_text(job))
        return name

    def start(self, job, *options, settings=None, launcher=(), variables=None):
        """Starts `maestro train` with a job given as a dictionary; `settings` become --set options. Runs of a test may
        use the same folder one after the other: files of an earlier run are moved aside."""
        self.runs += 1
        report = self.folder / f"report{self.runs}.json"
        name = self.write_job(job, f"job{self.runs}.toml")
        if not {"--resume", "--fresh"} & set(options):
            options = ("--fresh", *options)
        arguments = ["train", name, *options, *options_of(settings or {}), "--report", report.name]
        run = Run(self.folder, [str(part) for part in arguments], report, launcher, variables)
        self.addCleanup(run.end)
        return run

    def start_held(self, job, *options, after=None, **more):
        """Starts a run that cannot end before release() or wait(): it pauses after step `after` (default: half of its
        steps) if it gets that far."""
        after = job["train"]["steps"] // 2 if after is None else after
        address = f"unix:{self.folder}/held{self.runs}.sock"
        run = self.start(job, *options, "--pause-after", after, "--control", address, **more)
        run.held_at = address
        return run

    def train(self, job, *options, settings=None, launcher=(), variables=None):
        finished = self.start(job, *options, settings=settings, launcher=launcher, variables=variables).wait()
        self.assertEqual(finished.status, 0, finished.describe())
        return finished

    def twin(self, job, *options):
        """Returns the finished run of the same job in one undisturbed process, without checkpoints before its end.
        Tests with equal jobs share it; its folder is deleted."""
        train = {key: value for key, value in job["train"].items() if key != "checkpoint_every"}
        key = (job_text({**job, "train": train}), options)
        if key not in self.undisturbed:
            apart = {"train.out": "reference", "train.checkpoint_every": 0}
            self.undisturbed[key] = self.train(job, *options, settings=apart)
        return self.undisturbed[key]

    def call(self, *arguments, variables=None):
        """Runs the program with any arguments to its end."""
        run = Run(self.folder, [str(part) for part in arguments], variables=variables)
        self.addCleanup(run.end)
        return run.wait()

    def assert_refused(self, wanted, *arguments):
        """Checks that the call ends with status 2 and prints a single error line, which contains `wanted`."""
        finished = self.call(*arguments)
        self.assertEqual(finished.status, 2, finished.describe())
        self.assertEqual(finished.out, "", finished.describe())
        lines = finished.err.splitlines()
        self.assertEqual(len(lines), 1, finished.describe())
        self.assertTrue(lines[0].startswith("error: "), finished.describe())
        self.assertIn(wanted, lines[0])

    def assert_nothing_left(self, run):
        self.assertEqual(run.leftovers(), [])

    def assert_close(self, expected, actual, tolerance):
        """Checks that two curves agree within a relative tolerance."""
        self.assertEqual(expected.keys(), actual.keys())
        for key, values in expected.items():
            for wanted, found in zip(values, actual[key], strict=True):
                self.assertLessEqual(abs(wanted - found), tolerance * abs(wanted), f"at {key}: {wanted} and {found}")
