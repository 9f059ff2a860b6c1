#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hostile clients of the control service: meanwhile the run trains on, bit for bit, and other clients are answered."""

import os
import random
import socket
import struct
import threading
import time
import unittest
from pathlib import Path

from control_client import Client, ttypes
from maestro_program import ENDLESS, LOADED, PATIENCE_S, SANITIZED, SystemTest, distillation
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport import TTransport

from maestro_control import Control

SECONDS = float(os.environ.get("MAESTRO_FUZZ_SECONDS", 10))
SEED = int(os.environ.get("MAESTRO_FUZZ_SEED", time.time_ns() % 1_000_000))
MOST_CLIENTS = 32
MOST_STRANGERS = 16
METHODS = ("status", "plan", "metrics", "checkpoint", "pause", "resume", "stop")


def valid_call(name, token):
    """Returns a call's frame as a generated client writes it."""
    memory = TTransport.TMemoryBuffer()
    framed = TTransport.TFramedTransport(memory)
    client = Control.Client(TBinaryProtocol(framed))
    arguments = (0, 0, 10) if name == "metrics" else ()
    getattr(client, f"send_{name}")(token, *arguments)
    return memory.getvalue()


def framed(payload):
    return struct.pack(">I", len(payload)) + payload


def call_header(name):
    return struct.pack(">Ii", 0x80010001, len(name)) + name.encode() + struct.pack(">i", 0)


def deep(levels):
    """Returns a status call whose token is a struct in a struct in a ..."""
    return framed(call_header("status") + b"\x0c\x00\x01" * levels + b"\x00" * (levels + 1))


def container(kind, element, count):
    """Returns a call whose first argument is a list, set or map that claims to have `count` elements."""
    head = bytes([kind]) + b"\x00\x01" + (bytes([element, element]) if kind == 13 else bytes([element]))
    return framed(call_header("plan") + head + struct.pack(">i", count) + b"\x00" * 16)


class Attacker(threading.Thread):
    """Opens connections in sequence and does something hostile on each."""

    def __init__(self, address, seed, stopped):
        super().__init__(daemon=True)
        host, port = address.rsplit(":", 1)
        self.at, self.random, self.stopped = (host, int(port)), random.Random(seed), stopped
        self.attacks = {}
        self.problem = None

    def run(self):
        kinds = [name for name in dir(self) if name.startswith("send_")]
        while not self.stopped.is_set():
            kind = self.random.choice(kinds)
            try:
                with socket.create_connection(self.at, timeout=5) as peer:
                    getattr(self, kind)(peer)
            except OSError:
                pass  # the service closed the connection, as it should
            except Exception as problem:  # noqa: BLE001  a broken attacker would be a test that cannot fail
                self.problem = problem
                return
            self.attacks[kind] = self.attacks.get(kind, 0) + 1

    def finish(self, peer):
        """Disconnects in one of three ways."""
        way = self.random.randrange(3)
        if way == 0:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
        elif way == 1:
            peer.shutdown(socket.SHUT_WR)
            peer.settimeout(0.2)
            peer.recv(4096)

    def send_random_bytes(self, peer):
        peer.sendall(self.random.randbytes(self.random.randrange(1, 2000)))
        self.finish(peer)

    def send_framed_random_bytes(self, peer):
        peer.sendall(framed(self.random.randbytes(self.random.randrange(0, 2000))))
        self.finish(peer)

    def send_a_huge_length(self, peer):
        length = self.random.choice((0xffffffff, 0x80000000, 0x7fffffff, (1 << 20) + 1, 1 << 30))
        peer.sendall(struct.pack(">I", length) + self.random.randbytes(100))
        self.finish(peer)

    def send_a_whole_large_frame(self, peer):
        peer.sendall(framed(b"\x80\x01\x00\x01" + bytes((1 << 20) - 100)))
        self.finish(peer)

    def send_a_truncated_call(self, peer):
        whole = valid_call(self.random.choice(METHODS), "guess")
        peer.sendall(whole[:self.random.randrange(len(whole))])
        self.finish(peer)

    def send_a_mutated_call(self, peer):
        for _ in range(20):
            call = bytearray(valid_call(self.random.choice(METHODS), "guess"))
            for _ in range(self.random.randrange(1, 4)):
                call[self.random.randrange(4, len(call))] = self.random.randrange(256)
            peer.sendall(bytes(call))
        self.finish(peer)

    def send_deep_nesting(self, peer):
        peer.sendall(deep(self.random.choice((10, 63, 64, 65, 10_000, 200_000))))
        self.finish(peer)

    def send_huge_containers(self, peer):
        kind, element = self.random.choice((13, 14, 15)), self.random.randrange(0, 18)
        peer.sendall(container(kind, element, self.random.choice((0x7fffffff, -1, 1 << 20, 100_000))))
        self.finish(peer)

    def send_wrong_types(self, peer):
        kind = self.random.randrange(0, 17)
        peer.sendall(framed(call_header(self.random.choice(METHODS)) + bytes([kind]) + b"\x00\x01" +
                            self.random.randbytes(self.random.randrange(0, 64)) + b"\x00"))
        self.finish(peer)

    def send_unknown_methods(self, peer):
        peer.sendall(framed(call_header("".join(self.random.choices("abcdef", k=8))) + b"\x00"))
        self.finish(peer)

    def send_byte_by_byte(self, peer):
        for byte in valid_call("status", "guess"):
            peer.sendall(bytes([byte]))
            if self.stopped.wait(0.02):
                return

    def send_and_never_read(self, peer):
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.settimeout(1)
        call = valid_call("plan", "guess")
        for _ in range(500):
            peer.sendall(call)

    def send_nothing_on_many_connections(self, _):
        held = []
        try:
            for _ in range(2 * MOST_CLIENTS):
                held.append(socket.create_connection(self.at, timeout=5))
            self.stopped.wait(0.3)
        finally:
            for peer in held:
                peer.close()


def resident_mib(pid):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmRSS")


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


class HostileClients(SystemTest):
    def setUp(self):
        super().setUp()
        self.addCleanup(os.environ.__setitem__, "XDG_RUNTIME_DIR", os.environ.get("XDG_RUNTIME_DIR", ""))
        os.environ["XDG_RUNTIME_DIR"] = str(self.folder)

    def started(self):
        job = distillation(steps=ENDLESS)
        job["teacher"]["layers"] = 8  # fewer steps a second: their rows do not dominate the memory
        run = self.start(job, "--control", "127.0.0.1:0")
        self.assertTrue(run.wait_for_text("step "), run.text)
        address = next(line for line in run.text["out"].splitlines() if "control at" in line).split()[-1]
        return run, address, (self.folder / "maestro" / f"{address}.token").read_text().strip()

    def test_a_run_trains_on_undisturbed(self):  # CT-1, DO-1
        print(f"seed {SEED}", flush=True)
        run, address, token = self.started()
        pid = run.process.pid
        with Client(address, token) as control:
            while control.status().step < 20:
                pass
            before = resident_mib(pid), descriptors(pid)
            stopped = threading.Event()
            attackers = [Attacker(address, SEED + at, stopped) for at in range(8)]
            for attacker in attackers:
                attacker.start()
            first, most, slowest, answers = control.status().step, before, 0.0, 0
            begun, kinds = time.monotonic(), [kind for kind in dir(Attacker) if kind.startswith("send_")]

            def goes_on():  # until each kind has been tried, which takes longer on a loaded machine
                tried = {kind for attacker in attackers for kind in list(attacker.attacks)}
                return time.monotonic() < begun + (SECONDS if len(tried) == len(kinds) else SECONDS + PATIENCE_S)
            while goes_on():
                begin = time.monotonic()
                status = control.status()
                slowest = max(slowest, time.monotonic() - begin)
                answers += 1
                self.assertEqual(status.state, ttypes.State.RUNNING)
                most = max(most[0], resident_mib(pid)), max(most[1], descriptors(pid))
                stopped.wait(0.1)
            stopped.set()
            for attacker in attackers:
                attacker.join(30)
                self.assertIsNone(attacker.problem)
            last = control.status().step
            control.stop()
        finished = run.wait()
        attacks = {kind: sum(attacker.attacks.get(kind, 0) for attacker in attackers)
                   for kind in sorted({kind for attacker in attackers for kind in attacker.attacks})}
        print(f"{sum(attacks.values())} attacks: {attacks}", flush=True)
        print(f"steps {first} to {last}, {answers} answers, slowest {slowest * 1000:.0f} ms, memory {before[0]:.0f} to "
              f"{most[0]:.0f} MiB, descriptors {before[1]} to {most[1]}", flush=True)
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertEqual(kinds, list(attacks))
        self.assertGreater(last, first + 10 * SECONDS / 60)
        self.assertLess(slowest, 2.0 * LOADED)  # eight attackers and the run share two cores
        rows = (last - first) * 4 / 1024  # MiB: the run keeps rows of every step for its report
        if not SANITIZED:  # sanitizers use more memory
            self.assertLess(most[0] - before[0], 2 * MOST_CLIENTS + 32 + rows)  # the largest message, twice per client
        self.assertLessEqual(most[1], before[1] + MOST_CLIENTS + MOST_STRANGERS + 4)
        self.assert_learnt_the_same(finished, last)

    def assert_learnt_the_same(self, disturbed, step):
        run, address, token = self.started()
        with Client(address, token) as control:
            while control.status().step < min(step, 300):
                time.sleep(0.01)
            control.stop()
        undisturbed = run.wait().curve()
        curve = disturbed.curve()
        common = undisturbed.keys() & curve.keys()
        self.assertGreater(len(common), 2 * 10 * SECONDS / 60)
        self.assertEqual({key: undisturbed[key] for key in common}, {key: curve[key] for key in common})


if __name__ == "__main__":
    unittest.main(verbosity=2)
