# SPDX-License-Identifier: Apache-2.0
"""Runs with a live page, for tests of the page."""

import http.client
import os
import re
import time

from maestro_program import ENDLESS, PATIENCE_S, SystemTest, distillation


class HttpTest(SystemTest):
    def setUp(self):
        super().setUp()
        self.addCleanup(os.environ.__setitem__, "XDG_RUNTIME_DIR", os.environ.get("XDG_RUNTIME_DIR", ""))
        os.environ["XDG_RUNTIME_DIR"] = str(self.folder)  # keeps other runs of this user out

    def started(self, job=None, *options, at="0", settings=None):
        """Returns a run under way, and (host, port) of its page."""
        run = self.start(job or distillation(steps=ENDLESS), "--http", at, *options, settings=settings)
        self.assertTrue(run.wait_for_text("step "), run.text)
        found = re.search(r"^  live page: http://([\d.]+):(\d+)/$", run.text["out"], re.M)
        self.assertTrue(found, run.text)
        return run, ("127.0.0.1", int(found[2]))

    def get(self, at, path, headers=None, method="GET"):
        """Returns (status, headers, text)."""
        connection = http.client.HTTPConnection(*at, timeout=PATIENCE_S)
        try:
            connection.request(method, path, headers=headers or {})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read().decode()
        finally:
            connection.close()

    def until(self, at, path, condition):
        deadline = time.monotonic() + PATIENCE_S
        while True:
            status, _, text = self.get(at, path)
            if condition(status, text):
                return text
            self.assertLess(time.monotonic(), deadline, (status, text))
            time.sleep(0.05)  # no event reports a change there

    def stop(self, run):
        run.interrupt()
        finished = run.wait()
        self.assertEqual(finished.status, 0, finished.describe())
        return finished
