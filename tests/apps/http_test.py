#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Watches real runs over HTTP: figures, page, probes, the record, and access to them."""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import unittest

from http_runs import HttpTest
from maestro_program import ENDLESS, PATIENCE_S, Run, distillation, language_model

NAMES = {"maestro_step", "maestro_last_step_timestamp_seconds", "maestro_loss", "maestro_grad_norm",
         "maestro_learning_rate", "maestro_samples", "maestro_tokens", "maestro_step_seconds", "maestro_busy_ratio",
         "maestro_device_busy_ratio", "maestro_step_time_over_bound",
         "maestro_busy_seconds", "maestro_step_end_seconds", "maestro_wait_seconds", "maestro_rma_bytes",
         "maestro_transfer_bytes", "maestro_transfer_seconds", "maestro_memory_bytes", "maestro_checkpoint_last_step", "maestro_bad_samples",
         "maestro_recoveries", "maestro_run_state", "maestro_build_info"}


def prometheus_parser():
    try:
        from prometheus_client import parser
    except ImportError:  # Debian's package is for Debian's interpreter, but has only Python code
        sys.path.append("/usr/lib/python3/dist-packages")
        try:
            from prometheus_client import parser
        except ImportError:
            return None
    return parser


class Figures(HttpTest):
    def scrape(self, at):
        """Returns {name: [(labels, value)]} of all samples."""
        parser = prometheus_parser()
        if parser is None:
            self.skipTest("the Python package prometheus_client is missing")
        status, headers, text = self.get(at, "/metrics")
        self.assertEqual((status, headers["Content-Type"]), (200, "text/plain; version=0.0.4; charset=utf-8"))
        families = list(parser.text_string_to_metric_families(text))
        found = {}
        for family in families:
            self.assertTrue(family.documentation, family.name)
            for sample in family.samples:
                found.setdefault(sample.name, []).append((sample.labels, sample.value))
        return {family.name for family in families}, found

    def test_are_those_of_the_run(self):
        run, at = self.started(distillation(steps=ENDLESS, checkpoint_every=5), "--processes", 2)

        def complete(status, text):  # with a checkpoint, several steps, and a wait of the student
            waits = [line for line in text.splitlines() if line.startswith("maestro_wait_seconds_total{")]
            return (status == 200 and "maestro_step_time_over_bound" in text
                    and re.search(r"(?m)^maestro_checkpoint_last_step [1-9]", text)
                    and any('section="student"' in wait and 'on="teacher"' in wait for wait in waits))
        self.until(at, "/metrics", complete)
        names, found = self.scrape(at)
        self.assertEqual(names, NAMES)
        value = {name: samples[0][1] for name, samples in found.items()}
        self.assertEqual({labels["section"] for labels, _ in found["maestro_loss"]}, {"student", "plain"})
        for name in ("maestro_busy_ratio", "maestro_busy_seconds_total", "maestro_wait_seconds_total"):
            self.assertEqual({(labels["section"], labels["replica"]) for labels, _ in found[name]} - {("corpus", "0")},
                             {("teacher", "0"), ("student", "0"), ("plain", "0")}, name)
        waits = {(labels["section"], labels["on"]) for labels, _ in found["maestro_wait_seconds_total"]}
        self.assertIn(("student", "teacher"), waits)
        edges = {labels["edge"]: value for labels, value in found["maestro_transfer_bytes_total"]}
        self.assertGreater(edges["teacher.hidden -> student.teacher_hidden"], 0)
        self.assertLess(abs(value["maestro_last_step_timestamp_seconds"] - time.time()), 60)
        self.assertEqual(value["maestro_step_seconds_count"], value["maestro_step"])
        self.assertEqual(value["maestro_samples_total"], 8 * value["maestro_step"])
        self.assertGreater(value["maestro_tokens_total"], 0)
        self.assertGreater(value["maestro_rma_bytes_total"], 0)
        self.assertGreater(value["maestro_memory_bytes"], 1e6)
        self.assertEqual(value["maestro_checkpoint_last_step"] % 5, 0)
        self.assertGreater(value["maestro_checkpoint_last_step"], 0)
        states = {labels["state"]: value for labels, value in found["maestro_run_state"]}
        self.assertEqual(states, {"starting": 0, "running": 1, "pausing": 0, "paused": 0, "stopping": 0, "finished": 0})
        rising = ("maestro_step", "maestro_samples_total", "maestro_step_seconds_count")
        self.until(at, "/metrics", lambda status, text: status == 200 and all(
            float(re.search(rf"(?m)^{name} (.*)$", text)[1]) > value[name] for name in rising))
        self.stop(run)

    def test_have_the_time_of_transfers_between_processes(self):
        for processes, between in ((2, True), (1, False)):
            run, at = self.started(distillation(steps=ENDLESS), "--processes", processes,
                                   settings={"train.deterministic": False})
            # Bytes are counted when a tensor leaves, its time when the receiver has it, maybe a step later.
            line = 'maestro_transfer_seconds_total{edge="teacher.hidden -> student.teacher_hidden"'
            self.until(at, "/metrics", lambda status, text: status == 200 and line in text)
            _, found = self.scrape(at)
            edges = {labels["edge"]: value for labels, value in found["maestro_transfer_seconds_total"]}
            self.assertEqual(edges["teacher.hidden -> student.teacher_hidden"] > 0, between)
            self.stop(run)

    def test_please_promtool(self):
        if shutil.which("promtool") is None:
            self.skipTest("promtool is missing (Debian: prometheus)")
        run, at = self.started()
        text = self.until(at, "/metrics", lambda status, text: status == 200 and "maestro_loss" in text)
        checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
        self.assertEqual((checked.returncode, checked.stdout, checked.stderr), (0, "", ""))
        self.stop(run)

    def test_of_the_record_are_its_lines(self):
        run, at = self.started()
        file = self.folder / "out/record/steps.jsonl"
        self.until(at, "/metrics.jsonl?from=9", lambda status, text: text.count("\n") > 3)
        recorded = file.read_text()
        status, headers, text = self.get(at, "/metrics.jsonl")
        self.assertEqual((status, headers["Content-Type"]), (200, "application/jsonl"))
        self.assertTrue(text.startswith(recorded[:recorded.rfind("\n") + 1]))
        status, _, text = self.get(at, "/metrics.jsonl?from=7")
        self.assertEqual(json.loads(text.splitlines()[0])["step"], 7)
        self.assertEqual(self.get(at, f"/metrics.jsonl?from={ENDLESS}")[::2], (200, ""))
        for wrong in ("x", "-1", "1e3", "", "99999999999999999999"):
            status, _, text = self.get(at, f"/metrics.jsonl?from={wrong}")
            self.assertEqual((status, text.count("\n")), (400, 1), wrong)
        self.stop(run)


class Page(HttpTest):
    def table(self, body, name):
        """Returns a table's rows with their cells as text."""
        table = re.search(rf'<table data-table="{name}">(.*?)</table>', body, re.S)
        self.assertTrue(table, body[:3000])
        rows = re.findall(r"<tr>(.*?)</tr>", table[1], re.S)
        return [re.findall(r"<td.*?>(.*?)</td>", row, re.S) for row in rows if "<td" in row]

    def test_moves_while_the_run_does(self):
        run, at = self.started(None, "--processes", 2)
        status, headers, page = self.get(at, "/")
        self.assertEqual((status, headers["Content-Type"]), (200, "text/html; charset=utf-8"))
        self.assertIn('<main id="page">', page)

        def step_of(body):
            return int(re.search(r'<dt>step</dt><dd data-value="(\d+)"', body)[1])

        def steps_of(body):
            return [int(step) for step in re.findall(r">step (\d+)</text>", body)]
        body = self.until(at, "/page-body", lambda status, text: status == 200 and len(steps_of(text)) == 3)
        rows = self.table(body, "Now")
        self.assertEqual([row[0] for row in rows], ["corpus 0", "teacher 0", "student 0", "plain 0"])
        for row in rows:
            self.assertRegex(row[3], r"^(-|\d+ ?%)$")
            self.assertRegex(row[4], "^(waits for|forward|backward|step|checkpoint|no answer)")
        steps = steps_of(body)
        self.assertEqual(steps, list(range(steps[0], steps[0] + 3)))
        self.assertGreater(body.count('class="s'), 8)
        seen = step_of(body)
        self.until(at, "/page-body", lambda status, text: step_of(text) > seen and steps_of(text)[:1] > steps[:1])
        self.stop(run)

    def test_loads_nothing_from_elsewhere(self):  # HS-3
        run, at = self.started()
        page = self.until(at, "/", lambda status, text: "What ran when" in text)
        self.assertEqual(re.findall(r"""(?:src|href|action)\s*=|url\(|@import|https?:""", page), [])
        self.assertEqual(re.findall(r"fetch\((.*?),", page), ['"page-body" + location.search'])
        self.stop(run)

    def test_shows_any_text_as_text(self):
        job = distillation(steps=ENDLESS)
        job["name"] = "<script>alert(1)</script>&\"'"
        run, at = self.started(job)
        page = self.until(at, "/", lambda status, text: "What ran when" in text)
        self.assertEqual(page.count("<script>"), 1)  # only the page's script
        self.assertIn("&lt;script&gt;alert(1)&lt;/script&gt;&amp;", page)
        self.stop(run)

    def test_of_a_run_without_a_record_shows_what_it_does(self):
        passes = {"a": 5}
        workload = {"sections": [{"name": "a", "replicas": 2, "mode": "forward_backward", "max_in_flight": 1}],
                    "edges": [], "samples": [{"id": at, "forward_ms": passes, "backward_ms": passes} for at in range(8)]}
        (self.folder / "w.json").write_text(json.dumps(workload))
        run = Run(self.folder, ["emulate", "w.json", "--steps", "100000", "--http", "0"])
        self.addCleanup(run.end)
        self.assertTrue(run.wait_for_text("  live page: "), run.text)
        at = ("127.0.0.1", int(re.search(r"live page: http://[\d.]+:(\d+)/", run.text["out"])[1]))
        body = self.until(at, "/page-body", lambda status, text: "What ran when" in text)
        self.assertEqual([row[0] for row in self.table(body, "Now") if row[0].startswith("a ")], ["a 0", "a 1"])
        self.assertEqual(self.get(at, "/metrics.jsonl")[0], 404)
        self.stop(run)


class Probes(HttpTest):
    def test_follow_the_run(self):
        run, at = self.started()
        self.assertEqual(self.get(at, "/readyz")[::2], (200, "ready\n"))
        status, _, text = self.get(at, "/healthz")
        self.assertEqual((status, text.split(",")[0]), (200, "healthy: running"))
        self.assertEqual(self.call("pause").status, 0)
        self.until(at, "/healthz", lambda status, text: (status, text[:15]) == (200, "healthy: paused"))
        self.assertEqual(self.call("continue").status, 0)
        self.until(at, "/healthz", lambda status, text: (status, text[:16]) == (200, "healthy: running"))
        self.stop(run)
        with self.assertRaises(OSError):
            self.get(at, "/healthz")

    def test_are_not_ready_before_the_first_pass(self):
        run = self.start(distillation(steps=ENDLESS, validate_every=0), "--http", "0", "--control", "none")
        self.assertTrue(run.wait_for_text("  live page: "), run.text)
        at = ("127.0.0.1", int(re.search(r"live page: http://[\d.]+:(\d+)/", run.text["out"])[1]))
        seen = []
        deadline = time.monotonic() + PATIENCE_S
        while not seen or seen[-1] != 200:
            status, _, text = self.get(at, "/readyz")
            self.assertEqual(text, "ready\n" if status == 200 else "not ready: the first pass has not begun\n")
            seen.append(status)
            self.assertLess(time.monotonic(), deadline)
        self.assertIn(self.get(at, "/healthz")[0], (200,))
        self.stop(run)


class Recovery(HttpTest):
    def value(self, at, name):
        return float(re.search(rf"^{name} (.*)$", self.get(at, "/metrics")[2], re.M)[1])

    def test_keeps_the_address_and_no_counter_falls(self):  # FG-1
        run, at = self.started(distillation(steps=ENDLESS, checkpoint_every=20, recover="restart"), "--processes", 2)
        self.until(at, "/status.json", lambda status, text: json.loads(text)["step"] > 50)
        before = self.value(at, "maestro_samples_total")
        os.kill(run.members()[1], signal.SIGKILL)

        def recovered():
            try:
                return self.value(at, "maestro_recoveries_total") == 1 and self.get(at, "/readyz")[0] == 200
            except (OSError, http.client.HTTPException, TypeError):
                return False  # between the two starts
        self.assertTrue(run.wait_for(recovered), run.text)
        self.assertGreaterEqual(self.value(at, "maestro_samples_total"), before)
        self.assertEqual(run.text["out"].count("live page: "), 1)
        body = self.until(at, "/page-body", lambda status, text: 'data-table="Recoveries"' in text)
        self.assertIn("process 1", body)
        self.stop(run)


class Access(HttpTest):
    def test_of_other_hosts_wants_the_token(self):  # HS-2
        self.assertEqual(self.call("keys", "keys").status, 0)
        token = (self.folder / "keys/token").read_text().strip()
        run, at = self.started(None, "--keys", "keys", at="0.0.0.0:0")
        for path in ("/", "/metrics", "/healthz", "/readyz", "/status.json", "/metrics.jsonl", "/none"):
            for headers in ({}, {"Authorization": "Bearer guess"}, {"Authorization": token}):
                status, given, text = self.get(at, path, headers)
                self.assertEqual((status, given["WWW-Authenticate"], text.count("\n")), (401, "Bearer", 1), path)
            self.assertEqual(self.get(at, path + "?token=" + token[:-1])[0], 401)
        self.assertEqual(self.get(at, "/status.json", {"Authorization": "Bearer " + token})[0], 200)
        self.assertEqual(self.get(at, "/status.json?token=" + token)[0], 200)
        self.stop(run)

    def test_of_this_host_is_for_its_own_name(self):  # HS-2
        run, at = self.started()
        self.assertEqual(self.get(at, "/metrics", {"Host": "evil.example"})[0], 403)
        self.assertEqual(self.get(at, "/metrics", {"Host": "localhost:80"})[0], 200)
        self.stop(run)

    def test_is_refused_before_the_start_where_it_cannot_be_had(self):
        name = self.write_job(language_model())
        self.assert_refused("--http: \"nonsense\"", "train", name, "--http", "nonsense")
        self.assert_refused("needs --keys", "train", name, "--http", "0.0.0.0:0")
        with socket.create_server(("127.0.0.1", 0)) as server:
            for processes in (1, 2):
                self.assert_refused("port is busy", "train", name, "--http", str(server.getsockname()[1]), "--processes",
                                    processes)
        self.assertFalse((self.folder / "out/record").exists())

    def test_is_by_get_and_head_to_known_paths(self):
        run, at = self.started()
        status, _, text = self.get(at, "/nothing/<script>")
        self.assertEqual(status, 404)
        self.assertIn("/metrics.jsonl", text)
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE"):
            status, headers, _ = self.get(at, "/metrics", method=method)
            self.assertEqual((status, headers["Allow"]), (405, "GET, HEAD"), method)
        status, headers, text = self.get(at, "/metrics", method="HEAD")
        self.assertEqual((status, text), (200, ""))
        self.assertGreater(int(headers["Content-Length"]), 100)
        for name, value in (("Content-Security-Policy", "default-src 'none'"), ("X-Content-Type-Options", "nosniff")):
            self.assertIn(value, headers[name])
        kept = http.client.HTTPConnection(*at, timeout=PATIENCE_S)
        for _ in range(20):  # on one connection
            kept.request("GET", "/healthz")
            answer = kept.getresponse()
            self.assertEqual((answer.status, answer.read()[:7]), (200, b"healthy"))
        kept.close()
        self.stop(run)


if __name__ == "__main__":
    unittest.main(verbosity=2)
