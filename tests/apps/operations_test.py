#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The files of share/maestro: alerts and dashboard are checked, and files for schedulers run real jobs."""

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest
import urllib.request
from pathlib import Path

import slurm_cluster
from maestro_program import ENDLESS, PATIENCE_S, PROGRAM, SystemTest, distillation, free_port, job_text

DEBIAN = "/usr/lib/python3/dist-packages"
if importlib.util.find_spec("yaml") is None:
    sys.path.append(DEBIAN)
try:
    import yaml
except ImportError:
    yaml = None

SHARE = Path(__file__).resolve().parents[2] / "share/maestro"
METRICS = {f"maestro_{name}" for name in (
    "step last_step_timestamp_seconds loss grad_norm learning_rate samples_total tokens_total step_seconds_bucket "
    "step_seconds_sum step_seconds_count step_time_over_bound busy_ratio device_busy_ratio busy_seconds_total "
    "step_end_seconds_total "
    "wait_seconds_total rma_bytes_total transfer_bytes_total transfer_seconds_total memory_bytes checkpoint_last_step bad_samples_total "
    "recoveries_total run_state build_info").split()}
NAME = re.compile(r"\bmaestro_\w+")


class Watching(unittest.TestCase):
    def promtool(self, *words):
        if shutil.which("promtool") is None:
            self.skipTest("promtool is not installed (apt-get install --no-install-recommends prometheus)")
        done = subprocess.run(["promtool", *map(str, words)], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_promtool_accepts_the_rules(self):
        self.assertIn("6 rules found", self.promtool("check", "rules", SHARE / "alert-rules.yml"))

    def test_each_alert_fires_for_its_cause_alone(self):
        self.promtool("test", "rules", SHARE / "tests/alert-rules-test.yml")
        rules = (SHARE / "alert-rules.yml").read_text()
        tested = (SHARE / "tests/alert-rules-test.yml").read_text()
        for alert in re.findall(r"alert: (\w+)", rules):
            self.assertIn(f"alertname: {alert}\n", tested)  # with the expected alert, on a separate line

    def test_rules_and_dashboard_name_metrics_that_there_are(self):
        dashboard = json.loads((SHARE / "grafana-dashboard.json").read_text())
        expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
        shown = set(NAME.findall(" ".join(expressions)))
        self.assertEqual(shown, METRICS)
        self.assertEqual(len({panel["id"] for panel in dashboard["panels"]}), len(dashboard["panels"]))
        rules = (SHARE / "alert-rules.yml").read_text()
        self.assertLessEqual(set(NAME.findall(rules)), METRICS)

    def test_promtool_accepts_the_expressions_of_the_dashboard(self):
        dashboard = json.loads((SHARE / "grafana-dashboard.json").read_text())
        expressions = [target["expr"].replace("$__rate_interval", "1m") for panel in dashboard["panels"]
                       for target in panel["targets"]]
        rules = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(expressions)]
        self.promtool("--version")
        done = subprocess.run(["promtool", "check", "rules", "/dev/stdin"], text=True, capture_output=True, timeout=PATIENCE_S,
                              input=json.dumps({"groups": [{"name": "panels", "rules": rules}]}), check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class Serving(SystemTest):
    def test_a_run_has_these_metrics_and_the_probe_finds_it_well(self):
        self.assertEqual(self.call("keys", "keys").status, 0)
        run = self.start(distillation(steps=ENDLESS), "--http", "0.0.0.0:0", "--keys", "keys")
        steps = self.folder / "out/record/steps.jsonl"
        self.assertTrue(run.wait_for(lambda: steps.exists() and steps.stat().st_size > 0), run.text)
        port = re.search(r"http\S*:(\d+)", run.text["out"] + run.text["err"])[1]
        token = (self.folder / "keys/token").read_text().strip()
        request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Authorization": f"Bearer {token}"})
        lines = []

        def all_there():  # some figures need several steps
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                lines[:] = answer.read().decode().splitlines()
            return {re.match(r"\w+", line)[0] for line in lines if not line.startswith("#")} >= METRICS
        self.assertTrue(run.wait_for(all_there), lines)
        self.assertEqual({re.match(r"\w+", line)[0] for line in lines if not line.startswith("#")}, METRICS)
        self.assertTrue(any(re.match(r'maestro_run_state\{.*state="running".*\} 1$', line) for line in lines), lines)

        def probed(path, *token_file, rank="0"):
            return subprocess.run([SHARE / "probe.sh", path, port, *token_file], env={**os.environ, "RANK": rank}, timeout=PATIENCE_S,
                                  stderr=subprocess.DEVNULL, check=False).returncode

        key = self.folder / "keys/token"
        self.assertEqual((probed("/healthz", key), probed("/readyz", key)), (0, 0))
        self.assertNotEqual(probed("/healthz"), 0)  # without the token
        self.assertNotEqual(probed("/nowhere", key), 0)
        run.end()
        self.assertNotEqual(probed("/healthz", key), 0)
        self.assertEqual(probed("/healthz", key, rank="1"), 0)


class Schedulers(SystemTest):
    def steps(self):
        """Returns the recorded steps. The last line may be incomplete while a run writes it."""
        file = self.folder / "out/record/steps.jsonl"
        text = file.read_text() if file.exists() else ""
        return [json.loads(line)["step"] for line in text[:text.rfind("\n") + 1].splitlines()]

    def test_a_stopped_run_ends_with_75_and_goes_on_to_its_end(self):
        script = (SHARE / "run-to-the-end.sh", "out")
        held = ("--pause-after", 1000)
        run = self.start(distillation(steps=2000), "--resume", "auto", *held, launcher=script)
        self.assertTrue(run.wait_for(lambda: len(self.steps()) > 3), run.text)
        os.kill(run.process.pid, signal.SIGTERM)  # to the container's first process, as Kubernetes does
        stopped = run.wait()
        self.assertEqual(stopped.status, 75, stopped.describe())
        last = self.steps()[-1]
        self.assertLess(last, 2000)
        done = self.start(distillation(steps=2000), "--resume", "auto", launcher=script).wait()
        self.assertEqual(done.status, 0, done.describe())
        self.assertEqual(self.steps(), list(range(1, 2001)))
        wrong = self.start(distillation(steps=2000, stepz=1), "--resume", "auto", launcher=script).wait()
        self.assertEqual(wrong.status, 2, wrong.describe())

    @unittest.skipIf(yaml is None, "PyYAML is not installed (apt-get install python3-yaml)")
    def test_the_containers_of_the_manifest_are_one_job(self):
        manifest = yaml.safe_load((SHARE / "kubernetes.yml").read_text())
        group = manifest["spec"]["replicatedJobs"][0]
        spec = group["template"]["spec"]
        pod = spec["template"]["spec"]
        container, = pod["containers"]
        variables = {entry["name"]: entry.get("value") for entry in container["env"]}
        self.assertEqual(variables["MASTER_ADDR"], f"{manifest['metadata']['name']}-{group['name']}-0-0."
                                                   f"{manifest['metadata']['name']}")
        self.assertEqual((spec["completionMode"], spec["completions"], spec["parallelism"]),
                         ("Indexed", int(variables["WORLD_SIZE"]), int(variables["WORLD_SIZE"])))
        self.assertEqual({mount["name"] for mount in container["volumeMounts"]} - {volume["name"] for volume in pod["volumes"]},
                         set())
        self.assertEqual(self.call("keys", "keys").status, 0)
        # Here both pods are on this host: rank 0 has another address, and files are at other places.
        words = [word.replace("/usr/share/maestro", str(SHARE)) for word in container["command"]]
        words[words.index("maestro")] = PROGRAM
        words[words.index("--keys") + 1] = "keys"
        words[words.index("--listen") + 1] = "lo"
        at = words.index("--http")
        words[at + 1] = "0"
        (self.folder / "job.toml").write_text(job_text(distillation()))
        variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        processes = [subprocess.Popen(words, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                      env={**os.environ, **variables, "RANK": str(rank)}) for rank in range(2)]
        for process in processes:
            self.addCleanup(process.kill)
        ended = [(process.communicate(timeout=PATIENCE_S)[0], process.returncode) for process in processes]
        self.assertEqual([status for _, status in ended], [0, 0], ended)
        lines = (self.folder / "distill/record/steps.jsonl").read_text().splitlines()
        self.assertEqual(len(lines), 12)
        self.assertIn("2 processes", ended[0][0])

    def test_systemd_accepts_the_unit(self):
        if shutil.which("systemd-analyze") is None:
            self.skipTest("systemd-analyze is not installed (apt-get install systemd)")
        unit = self.folder / "maestro@name.service"  # an instance: a template lacks a name to insert
        unit.write_text((SHARE / "maestro@.service").read_text())
        done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_slurm_queues_a_stopped_run_again_which_goes_on(self):
        if slurm_cluster.why_not():
            self.skipTest(slurm_cluster.why_not())
        cluster = slurm_cluster.SlurmCluster(nodes=1, credentials_s=20)
        self.addCleanup(cluster.stop)
        (self.folder / "job.toml").write_text(job_text(distillation(steps=4000)))
        held = self.folder / "held"  # the first start pauses half way
        held.write_text(f'#!/bin/sh\n[ -e out/record ] || set -- "$@" --pause-after 2000\nexec {PROGRAM} "$@"\n')
        held.chmod(0o755)
        environment = f"--export=ALL,MAESTRO={held}"
        made = cluster.call("sbatch", "--parsable", "--nodes=1", "--ntasks-per-node=2", environment, f"--chdir={self.folder}",
                            "--output=batch.out", str(SHARE / "slurm.sh"), "job.toml", "out")
        self.assertEqual(made.returncode, 0, made.stderr)
        job = made.stdout.strip()
        self.until(lambda: self.steps() and self.steps()[-1] > 10, cluster)
        cluster.call("scancel", "--signal=TERM", job)  # to the step, as --signal and a preemption do
        self.until(lambda: "queued again" in (self.folder / "batch.out").read_text(), cluster)
        stopped = self.steps()[-1]
        self.assertLess(stopped, 4000)
        self.until(lambda: "JobState=COMPLETED" in cluster.call("scontrol", "show", "job", job).stdout, cluster)
        self.assertEqual(self.steps(), list(range(1, 4001)))
        events = [json.loads(line) for line in (self.folder / "out/record/events.jsonl").read_text().splitlines()]
        self.assertEqual([event["first_step"] for event in events if event["event"] == "began"], [1, stopped + 1])

    def until(self, condition, cluster):
        deadline = time.monotonic() + 2 * PATIENCE_S
        while not condition():
            output = self.folder / "batch.out"
            self.assertLess(time.monotonic(), deadline, (output.read_text() if output.exists() else "") + cluster.logs())
            time.sleep(0.2)  # no event reports it


if __name__ == "__main__":
    unittest.main(verbosity=2)
