#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hostile HTTP clients: they cost a run nothing and lock nobody out."""

import http.client
import socket
import threading
import time
import unittest

from http_runs import HttpTest
from maestro_program import LOADED, distillation


class Hostile(HttpTest):
    STEPS = 150

    def connect(self, at):
        peer = socket.create_connection(at, timeout=30)
        self.addCleanup(peer.close)
        return peer

    def heard(self, peer):
        """Returns all bytes sent until the service closes the connection; nothing if it resets the connection."""
        text = b""
        try:
            while chunk := peer.recv(65536):
                text += chunk
        except ConnectionError:
            pass
        return text

    def test_get_an_error_or_nothing_and_the_others_their_answers(self):  # HT-1
        run, at = self.started(None, "--pause-after", 3)  # answers do not need the cores that steps take
        cases = {
            b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n": (b"431", b"414", b""),
            b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000 + b"\r\n\r\n": (b"400", b"431", b""),
            b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 20_000 + b"\r\n": (b"400", b"431", b""),
            bytes(range(256)) * 40: (b"400", b"431", b""),
            b"\r\n\r\n": (b"400",),
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 200 + b"\n": (b"400", b""),
            b"GET /metrics HTTP/9.9\r\n\r\n": (b"400",),
            b"POST /metrics HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\nabc": (b"405",),
            b"GET /metrics HTTP/1.1\r\nRange: bytes=5-1\r\nConnection: close\r\n\r\n": (b"200", b"416"),
            b"GET /metrics.jsonl?from=%%%&from=%00 HTTP/1.1\r\nConnection: close\r\n\r\n": (b"400",),
            b"GET /../../etc/passwd HTTP/1.1\r\nConnection: close\r\n\r\n": (b"404",),
            b"GET /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n": (b"200",),
        }
        for request, expected in cases.items():
            with self.subTest(request[:60]):
                peer = self.connect(at)
                try:
                    peer.sendall(request)
                except ConnectionError:
                    pass  # refused before the request was complete
                self.assertIn(self.heard(peer)[9:12], expected)
                self.assertEqual(self.get(at, "/healthz")[0], 200)
        self.stop(run)

    def test_cannot_hold_the_service(self):  # HT-1
        run, at = self.started()
        ended = threading.Event()

        def drip(peer):
            """Sends a byte now and then: never a complete request."""
            try:
                while not ended.wait(0.3):
                    peer.sendall(b"G")
            except OSError:
                pass
        held = [self.connect(at) for _ in range(300)]  # more than the service has slots
        drips = [threading.Thread(target=drip, args=(self.connect(at),)) for _ in range(40)]
        for thread in drips:
            thread.start()
        for _ in range(20):
            self.assertEqual(self.get(at, "/healthz")[0], 200)
        begin = time.monotonic()
        slow = self.connect(at)
        slow.sendall(b"GET /healthz HTTP/1.1\r\n")
        self.assertEqual(self.heard(slow)[9:12], b"400")  # at its deadline
        self.assertLess(time.monotonic() - begin, 5 * LOADED)
        ended.set()
        for thread in drips:
            thread.join()
        for peer in held:
            peer.close()
        self.stop(run)

    def test_leave_the_run_as_it_is(self):  # HS-1, HT-2, HT-3
        job = distillation(steps=self.STEPS)
        expected = self.train(job).curve()
        run, at = self.started(job, "--pause-after", self.STEPS // 2)
        ended = threading.Event()
        answers = []

        def poll():
            while not ended.is_set():
                try:
                    answers.append(self.get(at, "/metrics")[0])
                except (OSError, http.client.HTTPException):
                    pass  # the run is over

        def never_read():
            try:
                with socket.create_connection(at, timeout=30) as peer:
                    while not ended.is_set():
                        peer.sendall(b"GET /metrics.jsonl HTTP/1.1\r\n\r\n" * 10)
            except OSError:
                pass
        clients = [threading.Thread(target=poll) for _ in range(100)]
        clients += [threading.Thread(target=never_read) for _ in range(10)]
        begin = time.monotonic()
        for client in clients:
            client.start()
        self.assertTrue(run.wait_for(lambda: answers.count(200) > 20), answers)
        self.assertTrue(run.wait_for(lambda: self.call("continue").status == 0), run.text)
        finished = run.wait()
        seconds = time.monotonic() - begin
        ended.set()
        for client in clients:
            client.join()
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertEqual(finished.curve(), expected)
        self.assertLessEqual(len(answers), 200 * (seconds + 1), "requests are read at a bounded pace")
        self.assertEqual(set(answers) - {200, 503}, set())
        self.assert_nothing_left(run)


if __name__ == "__main__":
    unittest.main(verbosity=2)
