#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The start of a run with several processes: strangers at its ports, deaths and stops before the first step."""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

from hosts import Hosts, why_not
from maestro_program import LOADED, SystemTest, distillation, listening_ports

NO_HOSTS = why_not()
PR_SET_CHILD_SUBREAPER = 36
CONNECTIONS = 300

# Makes connections to every TCP port that listens in this network namespace: `kind` connections, 300 or more.
SCANNER = r"""
import socket, sys, threading
kind = sys.argv[1]
held, counts = [], {}
done = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), done.set()), daemon=True).start()
def ports():
    found = set()
    for row in open("/proc/net/tcp").read().splitlines()[1:]:
        fields = row.split()
        if fields[3] == "0A":
            address, port = fields[1].split(":")
            found.add((".".join(str(int(address[at:at + 2], 16)) for at in (6, 4, 2, 0)), int(port, 16)))
    return found
print("ready", flush=True)
most = 1 if kind == "one" else 300
told = False
while not done.is_set():
    for at in ports():
        for _ in range(20):
            if counts.get(at, 0) >= most or done.is_set():
                break
            peer = socket.socket()
            peer.settimeout(1)
            try:
                peer.connect(at)
                counts[at] = counts.get(at, 0) + 1
                if not told:
                    told = print("connected", flush=True) is None
                if kind == "garbage":
                    peer.sendall(b"GET / HTTP/1.1\r\n\r\n" * 8)
            except OSError:
                pass
            if kind == "close":
                peer.close()
            else:
                held.append(peer)
    done.wait(0.01)
print(sum(counts.values()), flush=True)
"""


class StartTest(SystemTest):
    @classmethod
    def setUpClass(cls):
        # Orphans become children of this process instead of init's, so that none outlives the test.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def setUp(self):
        super().setUp()
        self.addCleanup(os.environ.__setitem__, "XDG_RUNTIME_DIR", os.environ.get("XDG_RUNTIME_DIR", ""))
        os.environ["XDG_RUNTIME_DIR"] = str(self.folder)

    def assert_trained(self, run):
        finished = run.wait()
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertEqual(finished.error_lines(), [], finished.describe())
        self.assert_nothing_left(run)


class StrangersOnOneHost(StartTest):
    def knock(self, run, kind, stop, counts, held):
        """Connects to every port and every local socket of the run as soon as it appears."""
        while not stop.is_set():
            for pid in run.marked():
                for port in listening_ports(pid):
                    self.knock_at(("127.0.0.1", port), socket.AF_INET, kind, counts, held)
            folder = self.folder / "maestro"
            for path in list(folder.iterdir()) if folder.exists() else []:
                self.knock_at(str(path), socket.AF_UNIX, kind, counts, held)

    def knock_at(self, address, family, kind, counts, held):
        for _ in range(20):
            if counts.get(address, 0) >= CONNECTIONS:
                return
            peer = socket.socket(family)
            peer.settimeout(1)
            try:
                peer.connect(address)
                counts[address] = counts.get(address, 0) + 1
                if kind == "garbage":
                    peer.sendall(b"GET / HTTP/1.1\r\n\r\n" * 8)
            except OSError:
                pass
            if kind == "close":
                peer.close()
            else:
                held.append(peer)

    def train_among(self, kind, **settings):
        run = self.start_held(distillation(), "--processes", 3, settings={"transport.provider": "tcp", **settings})
        stop, counts, held = threading.Event(), {}, []
        stranger = threading.Thread(target=self.knock, args=(run, kind, stop, counts, held))
        stranger.start()
        try:
            self.assertTrue(run.wait_for(lambda: counts), run.text)
            self.assert_trained(run)
        finally:
            stop.set()
            stranger.join()
            for peer in held:
                peer.close()

    def test_idle_connections_disturb_no_start(self):  # AE-4
        self.train_among("idle")

    def test_garbage_disturbs_no_start(self):
        self.train_among("garbage")

    def test_connections_that_come_and_go_disturb_no_start(self):
        self.train_among("close")


@unittest.skipIf(NO_HOSTS, NO_HOSTS)
class StrangersOverTls(StartTest):
    def train_among(self, kind):
        hosts = Hosts(self.folder, 1)
        self.addCleanup(hosts.remove)
        scanner = subprocess.Popen([*hosts.on(0), sys.executable, "-c", SCANNER, kind], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)
        self.addCleanup(scanner.kill)
        self.assertEqual(scanner.stdout.readline(), "ready\n")
        run = self.start_held(distillation(), "--processes", 3, "--listen", hosts.addresses[0], launcher=hosts.on(0))
        self.assertEqual(scanner.stdout.readline(), "connected\n")
        self.assertTrue(run.wait_for_text("step "), run.text)
        finished = run.wait()
        scanner.communicate()
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertEqual(finished.error_lines(), [], finished.describe())
        self.assert_nothing_left(run)

    def test_one_idle_connection_disturbs_no_start(self):  # AE-4
        self.train_among("one")

    def test_many_idle_connections_disturb_no_start(self):
        self.train_among("idle")

    def test_garbage_disturbs_no_start(self):
        self.train_among("garbage")

    def test_connections_that_come_and_go_disturb_no_start(self):
        self.train_among("close")


@unittest.skipIf(NO_HOSTS, NO_HOSTS)
class ShortCuts(StartTest):
    CUT_S = 1.0  # TCP may retransmit this long after the cut; the default peer timeout is too short on loaded machines

    def listens(self, hosts, at):
        return hosts.addresses[at] in {".".join(str(byte) for byte in bytes.fromhex(address)[::-1])
                                       for address in hosts.listening(at) if len(address) == 8}

    def test_a_host_that_is_cut_off_for_a_moment_joins_all_the_same(self):
        for at in (0, 1):
            with self.subTest(f"when host {at} listens"):
                hosts = Hosts(self.folder, 3)
                self.addCleanup(hosts.remove)
                run = self.start_held(distillation(peer_timeout_s=6), "--hosts", ",".join(hosts.addresses), "--ssh",
                                      hosts.remote_shell(), after=0, launcher=hosts.on(0))
                self.assertTrue(run.wait_for(lambda: self.listens(hosts, at)), run.text)
                hosts.cut_off(1)
                time.sleep(self.CUT_S)  # duration of the cut
                self.assertNotIn("step ", run.text["err"])
                hosts.join_again(1)
                self.assert_trained(run)
                hosts.remove()

    def test_a_host_whose_link_comes_up_late_joins_all_the_same(self):
        hosts = Hosts(self.folder, 3)
        self.addCleanup(hosts.remove)
        hosts.set_link(1, "down")
        run = self.start(distillation(peer_timeout_s=6), "--hosts", ",".join(hosts.addresses), "--ssh", hosts.remote_shell(),
                         launcher=hosts.on(0))
        self.assertTrue(run.wait_for(lambda: hosts.pids(1)), run.text)
        time.sleep(self.CUT_S)
        hosts.set_link(1, "up")
        self.assert_trained(run)


class Deaths(StartTest):
    ORPHANS_S = 2.0

    def reached(self, run, moment):
        """Waits until the start has reached `moment` or the run has started; self.members then has its processes."""
        def seen():
            self.members = run.members()
            return self.members

        sockets = lambda kind: [path for path in (self.folder / "maestro").glob(f"*.{kind}")]
        moments = {
            "a child is there": lambda: 1 in seen(),
            "the last child is there": lambda: 2 in seen(),
            "all are there": lambda: len(seen()) == 3,
            "rank 0 takes connections": lambda: sockets("peers"),
            "all take connections": lambda: len(sockets("peers")) == 3,
        }
        return run.wait_for(lambda: moments[moment]() or "paused after" in run.text["out"])

    def caught(self, moment, **settings):
        """Returns a run whose start has reached `moment`; it does not train, since nothing resumes it."""
        run = self.start(distillation(steps=10000, **settings), "--processes", 3, "--pause-after", 0)
        self.assertTrue(self.reached(run, moment), run.text)
        return run

    def test_the_others_leave_at_once_when_rank_0_dies(self):  # JS-4
        for moment in ("a child is there", "all are there", "rank 0 takes connections", "all take connections"):
            with self.subTest(moment):
                run = self.caught(moment)
                os.kill(run.process.pid, signal.SIGKILL)
                begin = time.monotonic()
                self.assertTrue(run.wait_for(lambda: run.process.poll() is not None))
                while run.marked():
                    self.assertLess(time.monotonic() - begin, self.ORPHANS_S * LOADED, run.text)
                    time.sleep(0.01)  # no event reports a change of /proc
                self.assertLessEqual(len(run.wait().error_lines()), 1, run.text)

    def test_a_process_that_is_killed_ends_the_start_with_status_1(self):
        run = self.caught("the last child is there")
        os.kill(self.members[2], signal.SIGKILL)
        finished = run.wait()
        self.assertEqual((finished.status, len(finished.error_lines())), (1, 1), finished.describe())
        self.assertIn("process 2", finished.error_lines()[0])
        self.assertIn("signal 9", finished.error_lines()[0])
        self.assert_nothing_left(run)

    def test_a_process_that_is_stopped_is_named_within_its_time(self):
        for rank in (1, 2):
            with self.subTest(rank=rank):
                run = self.caught("a child is there" if rank == 1 else "the last child is there", peer_timeout_s=2)
                os.kill(self.members[rank], signal.SIGSTOP)
                begin = time.monotonic()
                finished = run.wait()
                self.assertLess(time.monotonic() - begin, 5 * LOADED, finished.describe())
                self.assertEqual((finished.status, len(finished.error_lines())), (1, 1), finished.describe())
                self.assertIn(f"process {rank}", finished.error_lines()[0])
                self.assert_nothing_left(run)

    def test_the_others_leave_when_rank_0_is_stopped(self):  # JS-4
        run = self.caught("a child is there", peer_timeout_s=2)
        os.kill(run.process.pid, signal.SIGSTOP)
        deadline = time.monotonic() + 5 * LOADED
        while set(run.marked()) - {run.process.pid}:
            self.assertLess(time.monotonic(), deadline, run.text)
            time.sleep(0.01)  # no event reports a change of /proc
        self.assertLessEqual(len([line for line in run.text["err"].splitlines() if line.startswith("error:")]), 1)
        run.end()

    def test_without_libfabric_they_leave_with_a_single_line(self):
        (self.folder / "libfabric.so.1").touch()  # found first, but not a library
        path = os.pathsep.join([str(self.folder), os.environ.get("LD_LIBRARY_PATH", "")])
        run = self.start(distillation(), "--processes", 3, variables={"LD_LIBRARY_PATH": path})
        finished = run.wait()
        self.assertEqual((finished.status, len(finished.error_lines())), (2, 1), finished.describe())
        self.assertIn("cannot load libfabric, by which processes exchange tensors", finished.error_lines()[0])
        self.assert_nothing_left(run)

    def test_without_a_provider_they_leave_with_a_single_line(self):
        finished = self.start(distillation(), "--processes", 3, variables={"FI_PROVIDER": "nothing"}).wait()
        self.assertEqual((finished.status, len(finished.error_lines())), (2, 1), finished.describe())
        self.assertIn("libfabric offers none of", finished.error_lines()[0])


if __name__ == "__main__":
    unittest.main(verbosity=2)
