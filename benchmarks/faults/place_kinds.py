# SPDX-License-Identifier: Apache-2.0
"""Faults of the environment: disk, output folder, limits, ports, and strangers that connect."""

import ctypes
import os
import shutil
import socket
import subprocess
import threading
import time

import judge
from kinds import Kind
from maestro_program import listening_ports
from scene import NoEffect

MIB = 1 << 20
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 1 << 18
has_own_mounts = False


def take_own_mounts():
    """Moves this program into a new mount namespace, if that is allowed, so that no mount outlives it."""
    global has_own_mounts
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() == 0 and libc.unshare(CLONE_NEWNS) == 0:
        has_own_mounts = libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) == 0


def mount(*words):
    subprocess.run(["mount", *map(str, words)], check=True, stdout=subprocess.DEVNULL)


class NeedsMounts(Kind):
    def why_not(self):
        return "" if has_own_mounts else "needs mounts of its own (root)"


class DiskFull(NeedsMounts):
    """The output folder is a small file system: too small from the start, or filled during the run."""

    group = "place"

    def prepare(self, scene):
        scene.filled = scene.random.random() < 0.5
        size = 100 * MIB if scene.filled else int(scene.random.uniform(0.05, 9) * MIB)
        scene.out.mkdir()
        mount("-t", "tmpfs", "-o", f"size={size}", "maestro-faults", scene.out)

    def fault(self, scene):
        if not scene.filled:
            return scene.strike(lambda: None)
        scene.await_training()
        scene.strike(lambda: self.fill(scene.out / "filler"))

    @staticmethod
    def fill(path):
        with open(path, "wb", buffering=0) as file:
            try:
                while file.write(bytes(64 * 1024)):
                    pass
            except OSError:
                pass

    def release(self, scene):
        (scene.out / "filler").unlink(missing_ok=True)
        mount("-o", f"remount,size={200 * MIB}", scene.out)

    def outcome(self, scene):
        return judge.completed_or_refused(scene)

    def bound(self, scene):
        return super().bound(scene) + scene.baseline.seconds + (0 if scene.filled else scene.limits.start)


class OutIsGone(Kind):
    """The output folder is removed, or replaced by a file, during the run."""

    group = "place"
    resumes = False

    def __init__(self, name, replaced):
        super().__init__(name)
        self.replaced = replaced

    def fault(self, scene):
        scene.await_training()
        scene.strike(lambda: self.hit(scene))

    def hit(self, scene):
        if not scene.out.exists():
            raise NoEffect("the output folder was not there")
        scene.out.rename(scene.folder / "removed")
        if self.replaced:
            scene.out.touch()
        else:
            shutil.rmtree(scene.folder / "removed", ignore_errors=True)

    def outcome(self, scene):
        return judge.completed_or_refused(scene)

    def bound(self, scene):
        return super().bound(scene) + scene.baseline.seconds  # the next checkpoint notices it


class OutIsReadOnly(NeedsMounts):
    """The output folder's file system becomes read-only during the run, and writable again afterwards."""

    group = "place"

    def prepare(self, scene):
        scene.out.mkdir()
        mount("--bind", scene.out, scene.out)

    def fault(self, scene):
        scene.await_training()
        scene.strike(lambda: subprocess.run(["mount", "-o", "remount,bind,ro", str(scene.out)], check=False))

    def release(self, scene):
        mount("-o", "remount,bind,rw", scene.out)

    def outcome(self, scene):
        return judge.completed_or_refused(scene)

    def bound(self, scene):
        return super().bound(scene) + scene.baseline.seconds


class Limited(Kind):
    """A resource limit for every process, set by prlimit. Draws a range from `ranges`, then a value from it."""

    group = "limit"

    def __init__(self, name, option, ranges, unit=1):
        super().__init__(name)
        self.option, self.ranges, self.unit = option, ranges, unit

    def why_not(self):
        return "" if shutil.which("prlimit") else "needs prlimit"

    def prepare(self, scene):
        value = scene.random.randint(*scene.random.choice(self.ranges)) * self.unit
        scene.notes.append(f"{self.option}={value}")
        scene.launcher = ["prlimit", f"--{self.option}={value}"]

    def fault(self, scene):
        scene.strike(lambda: None)

    def outcome(self, scene):
        return judge.completed_or_refused(scene)

    def bound(self, scene):
        return scene.limits.start + 2 * scene.baseline.seconds


class FewThreads(Limited):
    """Runs as a user with a limited number of threads, because the limit does not apply to root."""

    def why_not(self):
        if os.geteuid() != 0 or not shutil.which("setpriv"):
            return "needs root and setpriv"
        return super().why_not()

    def prepare(self, scene):
        super().prepare(scene)
        user = 61_000 + scene.random.randrange(4000)
        for path in (scene.folder, *scene.folder.iterdir()):
            os.chown(path, user, user)
        scene.launcher = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *scene.launcher]


class SmallSharedMemory(NeedsMounts):
    """/dev/shm has a few MiB, for the run only."""

    group = "limit"
    processes = (2, 3)
    providers = ("shm",)

    def prepare(self, scene):
        size = scene.random.randint(0, 60) * MIB + 65536
        scene.notes.append(f"{size} bytes")
        scene.launcher = ["unshare", "--mount", "sh", "-c",
                          f'mount -t tmpfs -o size={size} maestro-faults /dev/shm && exec "$@"', "sh"]

    def fault(self, scene):
        scene.strike(lambda: None)

    def outcome(self, scene):
        return judge.completed_or_refused(scene)

    def bound(self, scene):
        return scene.limits.start + 2 * scene.baseline.seconds


class PortBusy(Kind):
    """A port that the job names is taken: the control service's or process 0's."""

    group = "place"

    def prepare(self, scene):
        scene.taken = socket.socket()
        scene.taken.bind(("127.0.0.1", 0))
        scene.taken.listen()
        port = scene.taken.getsockname()[1]
        if scene.case.processes > 1 and scene.random.random() < 0.5:
            scene.options = ["--set", f"transport.port={port}"]
        else:
            scene.options = ["--control", f"127.0.0.1:{port}"]
        scene.notes.append(scene.options[1])
        scene.wanted = str(port)

    def fault(self, scene):
        scene.strike(lambda: None)

    def release(self, scene):
        scene.taken.close()

    def outcome(self, scene):
        return judge.refused(scene.run, scene.wanted)


class Strangers(Kind):
    """300 connections to all listening TCP ports of the run, idle or with garbage, open until its end."""

    group = "stranger"
    processes = (2, 3)
    providers = ("tcp",)  # with shm no port listens after the start
    WORDS = (b"", b"\0" * 64, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
             b"\xff" * 4096, b"\x80\x01\x00\x01\x00\x00\x00\x06status")

    def __init__(self, name, start):
        super().__init__(name)
        self.in_start = start

    def fault(self, scene):
        scene.callers = []
        if self.in_start:
            scene.await_member(1)
            scene.strike(lambda: None)
            caller = threading.Thread(target=self.knock_until_it_trains, args=(scene,))
            caller.start()
            caller.join()
        else:
            scene.await_training(0.4)
            scene.strike(lambda: self.knock(scene, 300))
        if not scene.callers:
            scene.fault_at = 0.0
            raise NoEffect("no port listened")
        scene.notes.append(f"{len(scene.callers)} connections")

    def knock_until_it_trains(self, scene):
        while not scene.run.has_stepped() and scene.run.process.poll() is None and len(scene.callers) < 300:
            self.knock(scene, 20)
            time.sleep(0.02)  # between two rounds of connections, like a port scanner

    @staticmethod
    def knock(scene, count):
        ports = sorted(set().union(*(listening_ports(pid) for pid in scene.run.members().values())))
        for at in range(count if ports else 0):
            try:
                caller = socket.create_connection(("127.0.0.1", ports[at % len(ports)]), timeout=0.2)
            except OSError:
                continue
            scene.callers.append(caller)
            try:
                caller.send(scene.random.choice(Strangers.WORDS))
            except OSError:
                pass

    def release(self, scene):
        for caller in getattr(scene, "callers", ()):
            caller.close()


PLACE_KINDS = [
    DiskFull("disk-full"),
    OutIsGone("out-removed", replaced=False),
    OutIsGone("out-file", replaced=True),
    OutIsReadOnly("out-read-only"),
    Limited("descriptors", "nofile", ((5, 25), (10, 40), (40, 110))),
    Limited("address-space", "as", ((60, 400), (400, 1600)), MIB),
    Limited("file-size", "fsize", ((0, 200), (200, 4000)), 1024),
    FewThreads("threads", "nproc", ((4, 30), (20, 60))),
    SmallSharedMemory("small-shm"),
    PortBusy("port-busy"),
    Strangers("strangers", start=False),
    Strangers("start-strangers", start=True),
]
