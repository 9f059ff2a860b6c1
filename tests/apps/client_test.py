#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python client, clients/python: it attaches to real runs, follows and steers them, and logs their rows."""

import dataclasses
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import typing
import unittest
import warnings

from maestro_program import CLIENT, ENDLESS, PATIENCE_S, SystemTest, distillation, language_model
from record_test import curves

DEBIAN = "/usr/lib/python3/dist-packages"  # of python3-thrift, whose Python part works with any interpreter
sys.path.insert(0, str(CLIENT))
if importlib.util.find_spec("thrift") is None:
    sys.path.append(DEBIAN)

import maestro_client as client  # noqa: E402
from maestro_client import types  # noqa: E402
from maestro_client._control import ttypes  # noqa: E402


def key_of(row):
    return row.kind, row.section, row.step


class ClientTest(SystemTest):
    def setUp(self):
        super().setUp()
        self.addCleanup(os.environ.__setitem__, "XDG_RUNTIME_DIR", os.environ.get("XDG_RUNTIME_DIR", ""))
        os.environ["XDG_RUNTIME_DIR"] = str(self.folder)  # keeps other runs of this user out
        self.out = self.folder / "out"

    def started(self, job, *options):
        run = self.start(job, *options)
        self.assertTrue(run.wait_for_text("step "), run.text)
        return run

    def attached(self, *where, **how):
        run = client.Run.attach(*where, **how)
        self.addCleanup(run.close)
        return run

    def recorded(self):
        return {key_of(row): row.metrics for entry in client.read_record(self.out) for row in entry.rows()}

    def assert_recorded(self, rows, but=()):
        """Checks that the rows equal the record to the bit, each once, and that a section's steps rise. `but`: metrics
        that change if a step is repeated."""
        found, recorded = ({key: {name: value for name, value in metrics.items() if name not in but}
                            for key, metrics in rows.items()}
                           for rows in ({key_of(row): row.metrics for row in rows}, self.recorded()))
        self.assertEqual(len(found), len(rows))
        self.assertEqual(sorted(found.keys() ^ recorded.keys()), [])
        self.assertEqual([key for key in found if found[key] != recorded[key]], [])
        for kind, section in {(row.kind, row.section) for row in rows}:
            steps = [row.step for row in rows if (row.kind, row.section) == (kind, section)]
            self.assertEqual(steps, sorted(steps))


class Following(ClientTest):
    def test_has_each_row_once_to_the_end_of_the_run(self):
        run = self.started(distillation(steps=1000, validate_every=100), "--pause-after", 500)
        with client.Run.attach() as attached:
            self.assertEqual(attached.record().folder, self.out / "record")
            attached.resume()
            rows = list(attached.metrics(follow=True))
        self.assertEqual(run.wait().status, 0)
        self.assertEqual(max(row.step for row in rows), 1000)
        self.assertIn(("validation", "student", 1000), map(key_of, rows))
        self.assert_recorded(rows)

    def test_without_waiting_returns_the_rows_so_far_behind_a_step(self):
        run = self.started(distillation(steps=ENDLESS))
        attached = self.attached()
        self.assertTrue(run.wait_for(lambda: list(attached.metrics())), run.text)
        first = list(attached.metrics())
        self.assertEqual(min(row.step for row in first), 1)
        attached.pause()
        more = list(attached.metrics(after=first[-1].step))
        self.assertTrue(all(row.step > first[-1].step for row in more))
        self.assertEqual(list(attached.metrics(after=ENDLESS)), [])
        attached.stop()

    def test_goes_on_over_a_recovery(self):
        run = self.start_held(distillation(steps=1500, checkpoint_every=20, recover="restart"), "--processes", 3)
        self.assertTrue(run.wait_for_text("step "), run.text)
        rows, killed = [], False
        attached = self.attached(run.held_at)
        for row in attached.metrics(follow=True):
            rows.append(row)
            if not killed:
                killed = True
                os.kill(run.members()[2], signal.SIGKILL)
                run.release()
        finished = run.wait()
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertEqual(sum(entry.event == "recovered" for entry in client.read_record(self.out)
                             if isinstance(entry, client.RecordEvent)), 1)
        self.assert_recorded(rows, but=("step_ms",))

    def test_goes_on_over_a_kill_and_another_start(self):
        job = distillation(steps=1500, checkpoint_every=20)
        run = self.started(job, "--pause-after", 200)
        rows, again, held = [], None, 750
        for row in self.attached().metrics(follow=True, restart_s=PATIENCE_S):
            rows.append(row)
            if again is None:
                complete = lambda: any(not each.suffix for each in self.out.glob("checkpoints/step-*"))  # noqa: E731
                self.assertTrue(run.wait_for(complete), run.text)
                run.end()
                again = self.start(job, "--resume", "auto", "--pause-after", held)
            elif row.step == held:
                held = None  # a step has several rows
                self.attached().resume()
        finished = again.wait()
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertGreater(finished.report["steps"][0]["step"], 1)
        self.assert_recorded(rows, but=("step_ms",))

    def test_ends_with_the_error_of_a_run_that_failed_and_of_a_run_that_was_killed(self):
        for victim, error, wanted in ((1, client.RunFailed, "lost process 1"), (0, client.RunLost, "was killed")):
            with self.subTest(error):
                run = self.started(distillation(steps=ENDLESS), "--processes", 2)
                attached = self.attached()
                self.assertIsNotNone(attached.record())
                os.kill(run.members()[victim], signal.SIGKILL)
                with self.assertRaises(error) as caught:
                    list(attached.metrics(follow=True))
                self.assertIn(wanted, str(caught.exception))
                self.assertNotIn("\n", str(caught.exception))
                run.end()

    def test_from_another_host_goes_by_keys_and_sees_the_end(self):
        keys = self.folder / "keys"
        self.assertEqual(self.call("keys", keys).status, 0)
        run = self.start(distillation(steps=1500), "--keys", keys, "--control", "0.0.0.0:0", "--pause-after", 1)
        self.assertTrue(run.wait_for_text("step "), run.text)
        line = next(line for line in run.text["out"].splitlines() if line.startswith("  control at "))
        at = f"{socket.gethostname()}:{line.rsplit(':', 1)[1]}"  # does not look like an address of this host
        attached = self.attached(at, keys=keys)
        self.assertIsNone(attached.record())
        attached.resume()
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            rows = list(attached.metrics(follow=True, reconnect_s=1, poll_s=0.05))
        self.assertEqual(run.wait().status, 0)
        self.assertGreater(len(rows), 0)
        if warned:  # this run is faster than its client, which has not seen the last state
            self.assertIn("rows of its last steps may be missing", str(warned[0].message))
            last = max(row.step for row in rows if row.kind == "step")
            rows += [row for entry in client.read_record(self.out) for row in entry.rows() if row.step > last - 4]
            rows = list({key_of(row): row for row in rows}.values())
        self.assert_recorded(rows)
        with self.assertRaises(client.MaestroError) as caught:
            client.Run.attach(at, keys=keys).status()
        self.assertNotIn("\n", str(caught.exception))


class Steering(ClientTest):
    def test_pauses_keeps_resumes_and_stops(self):
        run = self.started(distillation(steps=ENDLESS))
        attached = self.attached()
        self.assertEqual(attached.status().state, client.State.RUNNING)
        paused = attached.pause()
        self.assertEqual(paused.state, client.State.PAUSED)
        made = attached.checkpoint()
        self.assertEqual(made.step, paused.step)
        self.assertTrue((self.folder / made.path / "checkpoint.json").is_file())
        # A status may be the last that the run gave.
        self.assertTrue(run.wait_for(lambda: attached.status().checkpoint == made.path), run.text)
        self.assertEqual(attached.resume().state, client.State.RUNNING)
        self.assertIn("steps = 1000000", attached.plan().effective_job)
        rows, stopped = [], False
        for row in attached.metrics(follow=True):
            rows.append(row)
            if row.step > paused.step and not stopped:
                stopped = True
                self.assertIn(attached.stop().state, (client.State.STOPPING, client.State.FINISHED))
        self.assertEqual(run.wait().status, 0)
        self.assert_recorded(rows)

    def test_errors_are_one_line_and_name_the_remedy(self):
        def error_of(kind, call):
            with self.assertRaises(kind) as caught:
                call()
            self.assertNotIn("\n", str(caught.exception))
            return str(caught.exception)

        attach = client.Run.attach
        self.assertIn("no run of this user", error_of(client.NoRun, attach))
        self.assertIn("give HOST:PORT", error_of(client.MaestroError, lambda: attach("nonsense")))
        self.assertIn("no such socket", error_of(client.NoRun, lambda: attach(f"unix:{self.folder}/none")))
        self.assertIn("no process listens", error_of(client.NoRun, lambda: attach("127.0.0.1:1")))
        first = self.started(language_model(steps=ENDLESS))
        second = self.start(language_model(steps=ENDLESS), "--control", "127.0.0.1:0", settings={"train.out": "second"})
        self.assertTrue(second.wait_for_text("step "), second.text)
        text = error_of(client.SeveralRuns, attach)
        self.assertIn(f"unix:{self.folder}/maestro/{first.process.pid}.sock", text)
        at = next(line for line in second.text["out"].splitlines() if line.startswith("  control at ")).split()[-1]
        self.assertIn(at, text)
        self.attached(at).status()  # with the token that the run has left
        (self.folder / "guess").write_text("guess\n")
        guess = self.attached(at, token_file=self.folder / "guess")
        self.assertIn("wrong token", error_of(client.Refused, guess.status))
        os.kill(first.process.pid, signal.SIGSTOP)
        stopped = self.attached(f"unix:{self.folder}/maestro/{first.process.pid}.sock")
        self.assertIn("no answer within", error_of(client.NoAnswer, stopped.stop))
        os.kill(first.process.pid, signal.SIGCONT)

    def test_the_answers_have_the_fields_of_the_service(self):
        for name, made in vars(types).items():
            generated = getattr(ttypes, name, None)
            if generated is None or not isinstance(made, type) or name == "Row":  # Row also has a kind and a time
                continue
            if dataclasses.is_dataclass(made):
                fields = {spec[2] for spec in generated.thrift_spec if spec}
                self.assertEqual({field.name for field in dataclasses.fields(made)}, fields, name)
            else:
                self.assertEqual({member.name: member.value for member in made}, generated._NAMES_TO_VALUES, name)
        self.assertEqual(typing.get_type_hints(types.Status)["units"], list[types.Unit])


class Records(ClientTest):
    def setUp(self):
        super().setUp()
        self.train(language_model(validate_every=5))
        self.steps = self.out / "record/steps.jsonl"

    def steps_of(self, entries):
        return [entry.step for entry in entries if isinstance(entry, client.RecordStep)]

    def test_are_read_in_order_up_to_a_line_that_is_cut_off(self):
        entries = list(client.read_record(self.out))
        self.assertEqual(self.steps_of(entries), list(range(1, 13)))
        self.assertEqual([entry.time for entry in entries], sorted(entry.time for entry in entries))
        self.assertEqual(self.steps_of(client.read_record(self.out / "record")), list(range(1, 13)))
        self.assertEqual(list(client.follow_record(self.out)), entries)
        content = self.steps.read_bytes()
        for cut in (1, 50):
            self.steps.write_bytes(content[:-cut])
            self.assertEqual(self.steps_of(client.read_record(self.out)), list(range(1, 12)))

    def test_are_followed_over_steps_that_are_done_again(self):
        content = self.steps.read_bytes()
        lines = content.splitlines(keepends=True)
        reader = client.RecordReader(self.out)
        with open(self.steps, "r+b") as file:  # as a run resumed after step 4 does
            file.truncate(len(b"".join(lines[:8])) + 20)
            self.assertEqual(self.steps_of(reader.poll()), list(range(1, 9)))
            file.truncate(len(b"".join(lines[:4])))
            file.seek(0, os.SEEK_END)
            file.write(b"".join(line.replace(b'"time":"20', b'"time":"21') for line in lines[4:10]))
            file.flush()
            self.assertEqual(self.steps_of(reader.poll()), [9, 10])
            file.write(lines[10][:-5])
            file.flush()
            self.assertEqual(reader.poll(), [])
            file.write(lines[10][-5:])
            file.flush()
            self.assertEqual(self.steps_of(reader.poll()), [11])

    def test_that_are_damaged_or_missing_are_named(self):
        lines = self.steps.read_bytes().splitlines(keepends=True)
        self.steps.write_bytes(b"".join(lines[:2] + [b"{]\n"] + lines[2:]))
        with self.assertRaisesRegex(client.RecordError, r"steps\.jsonl:3: "):
            list(client.read_record(self.out))
        with self.assertRaisesRegex(client.RecordError, "has no record of a run"):
            client.read_record(self.folder / "nowhere").__next__()


FAKES = {"wandb": """
import json, os
def note(*entry):
    with open(os.environ["CALLS"], "a") as file:
        file.write(json.dumps(entry) + "\\n")
class Run:
    def __getattr__(self, name):
        return lambda *given, **named: note(name, given, named)
def init(**named):
    note("init", (), named)
    return Run()
""", "mlflow": """
import json, os
class Made:
    experiment_id = "7"
def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    def call(*given, **named):
        with open(os.environ["CALLS"], "a") as file:
            file.write(json.dumps((name, given, named)) + "\\n")
        return Made() if name == "set_experiment" else []
    return call
"""}


class Loggers(ClientTest):
    def log(self, *words, fakes=()):
        modules = self.folder / "modules"
        modules.mkdir(exist_ok=True)
        for name in fakes:
            (modules / f"{name}.py").write_text(FAKES[name])
        paths = [str(modules), *sys.path]
        return subprocess.run([sys.executable, "-m", "maestro_client.log", *map(str, words)], capture_output=True,
                              text=True, timeout=PATIENCE_S, check=False,
                              env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "CALLS": str(self.folder / "calls")})

    def calls(self):
        return [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]

    @unittest.skipIf(importlib.util.find_spec("tensorboard") is None, "tensorboard is not installed for this Python")
    def test_tensorboard_has_the_curves_of_a_run_under_way(self):
        run = self.start_held(distillation(steps=1500, validate_every=50))
        begun = threading.Thread(target=lambda: run.wait_for(lambda: list(self.folder.glob("curves/*"))) and run.release())
        begun.start()
        done = self.log(run.held_at, "--tensorboard", self.folder / "curves")
        begun.join()
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
        self.assertEqual(run.wait().status, 0)
        (drawn,), _ = curves(self.folder / "curves")
        wanted = {}
        for (kind, section, step), metrics in self.recorded().items():
            before = "" if kind == "step" else f"{kind}/"
            wanted |= {(f"{before}{section}/{name}", step): value for name, value in metrics.items()}
        self.assertEqual(drawn.keys(), wanted.keys())
        for at, value in wanted.items():
            self.assertAlmostEqual(drawn[at] / value, 1, delta=1e-6)

    def test_weights_and_biases_has_an_axis_of_steps_per_section(self):
        self.train(distillation(validate_every=6))
        done = self.log(self.out, "--wandb", "project", "--after", 2, fakes=("wandb",))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        first, *calls, last = self.calls()
        run_id = json.loads((self.out / "run.json").read_text())["run_id"]
        self.assertEqual((first[0], first[2]["project"], first[2]["name"], first[2]["id"], first[2]["resume"]),
                         ("init", "project", "test", run_id, "allow"))
        self.assertEqual(first[2]["config"]["train.steps"], 12)
        self.assertEqual(last, ["finish", [], {"exit_code": 0}])
        self.assertIn(["define_metric", ["student/*"], {"step_metric": "student/step"}], calls)
        logged = [given[0] for name, given, _ in calls if name == "log"]
        wanted = {key: metrics for key, metrics in self.recorded().items() if key[2] > 2}
        self.assertEqual(len(logged), len(wanted))
        for (kind, section, step), metrics in wanted.items():
            tag = section if kind == "step" else f"validation/{section}"
            self.assertIn({f"{tag}/step": step, **{f"{tag}/{name}": value for name, value in metrics.items()}}, logged)

    def test_mlflow_has_settings_rows_and_the_failure_of_a_run(self):
        run = self.started(distillation(steps=ENDLESS), "--processes", 2)
        os.kill(run.members()[1], signal.SIGKILL)
        run.wait()
        done = self.log(self.out, "--mlflow", "experiment", fakes=("mlflow",))
        self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)
        self.assertIn("lost process 1", done.stderr)
        calls = self.calls()
        names = [name for name, _, _ in calls]
        self.assertEqual(names[:4], ["set_experiment", "search_runs", "start_run", "log_params"])
        self.assertEqual(calls[2][2]["run_name"], "test")
        self.assertEqual(calls[3][1][0]["train.steps"], str(ENDLESS))
        self.assertEqual(calls[-1], ["end_run", [], {"status": "FAILED"}])
        logged = {(step["step"], name): value for call, given, step in calls if call == "log_metrics"
                  for name, value in given[0].items()}
        self.assertEqual(logged, {(step, f"{section}/{name}"): value for (_, section, step), metrics in
                                  self.recorded().items() for name, value in metrics.items()})

    def test_a_package_that_is_missing_is_named(self):
        self.train(language_model())
        for package in ("wandb", "mlflow"):
            if importlib.util.find_spec(package) is None:
                done = self.log(self.out, f"--{package}", "name")
                self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)
                self.assertIn(f"pip install {package}", done.stderr)
        self.assertEqual(self.log(self.out).returncode, 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
