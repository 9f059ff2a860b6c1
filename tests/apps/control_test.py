#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Watches and steers real runs through their control service, with a generated client and the program's commands."""

import json
import os
import signal
import socket
import stat
import subprocess
import threading
import time
import unittest

from control_client import Client, ttypes
from maestro_program import ENDLESS, LOADED, PATIENCE_S, PROGRAM, Run, SystemTest, distillation

State, Replica, Wait = ttypes.State, ttypes.ReplicaState, ttypes.WaitKind

class ControlTest(SystemTest):
    def setUp(self):
        super().setUp()
        self.addCleanup(os.environ.__setitem__, "XDG_RUNTIME_DIR", os.environ.get("XDG_RUNTIME_DIR", ""))
        os.environ["XDG_RUNTIME_DIR"] = str(self.folder)  # keeps other runs of this user out

    def socket_of(self, run):
        return f"unix:{self.folder}/maestro/{run.process.pid}.sock"

    def started(self, job=None, *options, control=None, settings=None):
        """Returns a run under way, and its service's address."""
        extra = ["--control", control] if control else []
        run = self.start(job or distillation(steps=ENDLESS), *options, *extra, settings=settings)
        self.assertTrue(run.wait_for_text("step "), run.text)
        if control is None:
            return run, self.socket_of(run)
        line = next(line for line in run.text["out"].splitlines() if line.startswith("  control at "))
        return run, line.split()[-1]

    def command(self, *words):
        done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=PATIENCE_S)
        return done.returncode, done.stdout, done.stderr

    def until(self, control, condition):
        deadline = time.monotonic() + PATIENCE_S
        while True:
            status = control.status()
            if condition(status):
                return status
            self.assertLess(time.monotonic(), deadline, status)

    def refusal(self, call, *arguments):
        with self.assertRaises(ttypes.Refused) as caught:
            call(*arguments)
        return caught.exception.reason


class Watching(ControlTest):
    def test_status_says_what_the_run_and_every_replica_do(self):
        run, address = self.started(None, "--processes", 2)
        with Client(address) as control:
            status = self.until(control, lambda status: status.step >= 3)
            self.assertEqual((status.state, status.job, status.steps), (State.RUNNING, "test", ENDLESS))
            self.assertGreater(status.samples_per_s, 0)
            self.assertGreater(status.loss, 0)
            self.assertAlmostEqual(status.epoch, status.step * 8 / 1125, delta=1e-9)
            self.assertGreaterEqual(status.units[0].step, status.step)
            sections = {section.name: section for section in status.sections}
            self.assertEqual(set(sections), {"corpus", "teacher", "student", "plain"})
            self.assertTrue(sections["student"].trained)
            self.assertFalse(sections["teacher"].trained)
            self.assertGreaterEqual(sections["student"].metrics.keys(), {"loss", "grad_norm", "lr", "step_ms"})
            self.assertTrue(0 < sections["student"].busy <= 1)
            self.assertTrue(all(0 < device.busy <= 1 for device in status.devices) and status.devices, status.devices)
            self.assertGreater(status.step_ms, 0)
            self.assertGreater(status.step_time_over_bound, 0)
            pids = run.members()
            for replica in status.replicas:
                self.assertEqual(replica.pid, pids[replica.process])
                self.assertTrue(replica.devices)
            self.assertEqual(len(status.replicas), 4)

    def test_status_names_whom_an_idle_replica_waits_for(self):
        job = distillation(steps=ENDLESS)
        job["teacher"]["layers"] = 12  # so that the student has to wait for it
        _, address = self.started(job)
        waits = {}
        with Client(address) as control:
            def student_waits_for_teacher(status):
                for replica in status.replicas:
                    if replica.state == Replica.IDLE:
                        waits[(replica.section, replica.wait.kind)] = replica.wait
                        self.assertTrue(replica.wait.text)
                    if replica.state == Replica.BUSY:
                        self.assertIn(replica.doing, ("forward", "backward", "forward_backward", "step", "checkpoint"))
                return any(section == "student" and wait.section == "teacher"
                           for (section, _), wait in waits.items())
            self.until(control, student_waits_for_teacher)
            wait = waits[("student", Wait.INPUT)]
            self.assertEqual((wait.replicas, wait.processes), ([0], [0]))
            self.assertGreater(wait.step, 0)
            self.assertTrue(0 <= wait.sample < 1125)
            self.assertIn("teacher_hidden from section 'teacher' replica 0, sample", wait.text)

    def test_a_replica_that_does_not_answer_is_shown_so_and_holds_nobody_up(self):  # CT-1, CT-2
        run, address = self.started(distillation(steps=ENDLESS, peer_timeout_s=60), "--processes", 2)
        with Client(address) as control:
            self.until(control, lambda status: status.step >= 3)
            other = run.members()[1]
            os.kill(other, signal.SIGSTOP)
            self.addCleanup(os.kill, other, signal.SIGCONT)

            def silent(status):
                return {replica.process for replica in status.replicas if replica.state == Replica.NO_ANSWER}
            # On a loaded machine a replica of the other process may answer late too, but it does answer.
            self.until(control, lambda status: silent(status) == {1})
            begin = time.monotonic()
            self.assertEqual(control.status().state, State.RUNNING)
            self.assertLess(time.monotonic() - begin, 1.0 * LOADED)
            os.kill(other, signal.SIGCONT)
            self.until(control, lambda status: not silent(status))

    def test_plan_shows_sections_places_edges_and_the_effective_job(self):
        job = distillation(steps=ENDLESS)
        job["plain"] |= {"replicas": 2, "tensor": 2}
        _, address = self.started(job, "--processes", 2, "--cpu-devices", 8)
        with Client(address) as control:
            self.until(control, lambda status: status.step >= 1)
            plan = control.plan()
        plain = next(section for section in plan.sections if section.name == "plain")
        self.assertEqual((plain.mode, plain.trained, plain.tensor, plain.context, plain.stages),
                         ("forward_backward", True, 2, 1, 1))
        self.assertEqual([len(replica.devices) for replica in plain.replicas], [2, 2])
        edges = {(edge.from_section, edge.to_section, edge.to_port): edge for edge in plan.edges}
        self.assertEqual(edges[("teacher", "student", "teacher_hidden")].columns, 48)
        self.assertGreaterEqual(plan.planned_ms, plan.lower_bound_ms * 0.999)
        self.assertGreater(plan.lower_bound_ms, 0)
        self.assertIn("steps = 1000000", plan.effective_job)
        self.assertEqual(plan.policy, "wavefront")

    def test_metrics_are_the_rows_of_the_report(self):
        run, address = self.started(distillation(steps=ENDLESS, validate_every=20))
        rows, validations = [], []
        with Client(address) as control:
            first = control.metrics(0, 0, 3)
            self.assertLessEqual(len(first.steps), 3)
            at = (0, 0)
            while len(rows) < 100 or not validations:
                page = control.metrics(*at, 10)
                rows += page.steps
                validations += page.validations
                at = page.next_step_row, page.next_validation_row
            self.assertIn("1 to 10000", self.refusal(control.metrics, 0, 0, 0))
            self.assertEqual(len(control.metrics(-5, -1, 10).steps), 5)
            control.stop()
        report = run.wait().report
        told = [(row.section, row.step, row.metrics["loss"]) for row in rows]
        written = [(row["section"], row["step"], row["loss"]) for row in report["steps"]]
        self.assertEqual(told, written[:len(told)])
        self.assertTrue(validations)
        self.assertTrue(all("loss" in row.metrics for row in validations))

    def test_commands_show_the_same_to_people_and_programs(self):
        _, address = self.started()
        with Client(address) as control:
            self.until(control, lambda status: status.step >= 2)
        status, text, _ = self.command("status")
        self.assertEqual(status, 0)
        for wanted in ("job test: running, step ", "student", "announced: step ", "pid "):
            self.assertIn(wanted, text)
        status, text, _ = self.command("status", "--json", "--at", address)
        shown = json.loads(text)
        self.assertEqual((status, shown["state"], len(shown["replicas"])), (0, "running", 4))
        status, text, _ = self.command("show-plan")
        self.assertEqual(status, 0)
        self.assertIn("teacher.hidden", text)
        self.assertIn("edges", json.loads(self.command("show-plan", "--json")[1]))


class Steering(ControlTest):
    def test_a_checkpoint_is_there_when_the_call_returns_and_a_run_resumes_from_it(self):
        run, address = self.started()
        with Client(address) as control:
            self.until(control, lambda status: status.step >= 3)
            made = control.checkpoint()
            path = self.folder / made.path
            self.assertTrue((path / "checkpoint.json").exists(), list(path.iterdir()))
            self.assertIn(f"step-{made.step:08d}", made.path)
            # A status may be the last that the coordinator gave (CT-2).
            self.until(control, lambda status: status.checkpoint == made.path)
        run.end()
        again = self.start(distillation(steps=made.step + 3), "--resume", path).wait()
        self.assertEqual(again.status, 0, again.describe())
        self.assertEqual(min(row["step"] for row in again.report["steps"]), made.step + 1)

    def test_a_paused_run_stands_still_keeps_a_checkpoint_and_learns_the_same_after_it(self):
        job = distillation(steps=ENDLESS)
        for section in ("student", "plain"):
            job[section]["schedule"] = "constant"  # so that a run of other length has the same learning rates
        run, address = self.started(job)
        with Client(address) as control:
            paused = control.pause()
            self.assertEqual(paused.state, State.PAUSED)
            status = self.until(control, lambda status: status.state == State.PAUSED)
            self.assertEqual((status.step, status.units), (paused.step, []))
            made = control.checkpoint()
            self.assertEqual(made.step, paused.step)
            self.assertEqual(control.checkpoint().path, made.path)
            # A replica that answers later than CT-2 allows is once shown without an answer.
            still = self.until(control, lambda status: all(r.state == Replica.IDLE for r in status.replicas))
            self.assertEqual({replica.wait.kind for replica in still.replicas}, {Wait.WORK})
            self.assertEqual(control.status().step, paused.step)
            self.assertEqual(control.pause().state, State.PAUSED)
            self.assertEqual(control.resume().state, State.RUNNING)
            self.assertEqual(control.resume().state, State.RUNNING)
            self.until(control, lambda status: status.step >= paused.step + 10)
            control.stop()
        finished = run.wait()
        self.assertEqual(finished.status, 0, finished.describe())
        whole = self.train(job, settings={"train.out": "whole", "train.steps": finished.report["last_step"]})
        self.assertEqual(finished.curve(), whole.curve())

    def test_a_run_pauses_after_the_step_that_its_start_names(self):  # RS-5
        run, address = self.started(None, "--pause-after", 20)
        self.assertTrue(run.wait_for_text("paused after step 20; `maestro continue` continues the run"), run.text)
        with Client(address) as control:
            self.until(control, lambda status: (status.state, status.step) == (State.PAUSED, 20))
            self.assertEqual(control.resume().state, State.RUNNING)
            self.until(control, lambda status: status.step > 20)
            control.stop()
        last = run.wait().report["last_step"]
        job = distillation(steps=last + 2)
        resumed = self.start_held(job, "--resume", "out", after=3)  # a step that is already done
        self.assertTrue(resumed.wait_for_text(f"paused after step {last};"), resumed.text)
        self.assertEqual(resumed.wait().report["last_step"], last + 2)
        name = self.write_job(job)
        for options, wanted in (((last + 2,), f"the run ends after step {last + 2} (train.steps)"),
                                ((0, "--control", "none"), "a run with --control none cannot be resumed"),
                                (("-1",), "from 0 on")):
            self.assert_refused(wanted, "train", name, "--fresh", "--pause-after", *options)

    def stopped(self, pause, ways):
        run, address = self.started()
        with Client(address) as control:
            if pause:
                self.assertEqual(control.pause().state, State.PAUSED)
            for way in ways:
                if way == "call":
                    self.assertIn(control.stop().state, (State.STOPPING, State.FINISHED))
                elif way == "command":
                    self.assertEqual(self.command("stop", "--at", address)[0], 0)
                else:
                    run.interrupt()
        finished = run.wait()
        self.assertEqual(finished.status, 0, finished.describe())
        last = max(row["step"] for row in finished.report["steps"])
        self.assertTrue((self.folder / "out" / "checkpoints" / f"step-{last:08d}").exists())
        self.assert_nothing_left(run)
        self.assertEqual(list((self.folder / "maestro").iterdir()), [])

    def test_stop_ends_a_run_in_order_as_one_ctrl_c_does(self):
        self.stopped(False, ["call"])
        self.stopped(False, ["command"])

    def test_a_paused_run_is_ended_in_order_by_stop_and_by_ctrl_c(self):
        self.stopped(True, ["call"])
        self.stopped(True, ["ctrl-c"])

    def test_an_emulated_run_keeps_no_checkpoint_and_says_so(self):
        passes = {"a": 5}
        workload = {"sections": [{"name": "a", "replicas": 2, "mode": "forward_backward", "max_in_flight": 1}],
                    "edges": [], "samples": [{"id": at, "forward_ms": passes, "backward_ms": passes} for at in range(8)]}
        (self.folder / "w.json").write_text(json.dumps(workload))
        run = Run(self.folder, ["emulate", "w.json", "--steps", "100000", "--control", "unix:e.sock"])
        self.addCleanup(run.end)
        self.assertTrue(run.wait_for_text("step "), run.text)  # the socket's file exists before it listens
        with Client(f"unix:{self.folder}/e.sock") as control:
            self.until(control, lambda status: status.step >= 1)
            self.assertIn("emulated", self.refusal(control.checkpoint))
            control.stop()
        self.assertEqual(run.wait().status, 0)


class Addresses(ControlTest):
    def test_the_local_socket_is_its_users_alone(self):  # CT-3
        run, address = self.started()
        path = address[len("unix:"):]
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
        self.assertEqual(stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode), 0o700)

    def test_a_run_is_found_without_its_address_only_when_it_is_the_only_one(self):
        status, _, err = self.command("status")
        self.assertEqual((status, err.count("\n")), (1, 1), err)
        self.assertIn("no run of this user", err)
        first, one = self.started()
        self.assertEqual(self.command("status")[0], 0)
        self.started(settings={"train.out": "second"})
        status, _, err = self.command("status")
        self.assertEqual((status, err.count("\n")), (2, 3), err)
        for out in ("out", "second"):
            self.assertIn(f"\n  {self.folder}/{out}  job 'test', running, step ", err)
        first.end()  # killed: its socket remains
        self.assertTrue(os.path.exists(one[len("unix:"):]))
        self.assertEqual(self.command("status")[0], 0)
        self.assertFalse(os.path.exists(one[len("unix:"):]))

    def test_wrong_addresses_are_told_in_one_line(self):
        run, address = self.started(control="127.0.0.1:0")
        for at, status, wanted in ((f"unix:{self.folder}/none", 1, "no such socket"), ("nonsense", 2, "HOST:PORT"),
                                   ("127.0.0.1:1", 1, "no process listens"), ("name.invalid:1", 1, "cannot be resolved")):
            with self.subTest(at):
                done = self.command("status", "--at", at)
                self.assertEqual((done[0], done[2].count("\n")), (status, 1), done)
                self.assertIn(wanted, done[2])
        apart = {"train.out": "apart"}
        busy = self.start(distillation(), "--control", address, settings=apart).wait()
        self.assertEqual((busy.status, len(busy.error_lines())), (2, 1), busy.describe())
        self.assertIn("port is busy", busy.err)
        several = self.start(distillation(), "--processes", 2, "--control", address, settings=apart).wait()
        self.assertEqual(several.status, 2, several.describe())
        self.assertEqual(len(several.error_lines()), 1, several.describe())
        self.assertIn("port is busy", several.err)
        outside = self.start(distillation(), "--control", "0.0.0.0:0", settings=apart).wait()
        self.assertEqual(outside.status, 2, outside.describe())
        self.assertIn("--keys", outside.err)

    def test_idle_connections_lock_nobody_out(self):
        for control in (None, "127.0.0.1:0"):
            with self.subTest(control):
                run, address = self.started(control=control)
                held = []
                for _ in range(40):
                    if address.startswith("unix:"):
                        held.append(socket.socket(socket.AF_UNIX))
                        held[-1].connect(address[len("unix:"):])
                    else:
                        held.append(socket.create_connection(tuple(address.rsplit(":", 1)), timeout=5))
                for command in ("status", "checkpoint", "stop"):
                    status, _, err = self.command(command, "--at", address)
                    self.assertEqual((status, err), (0, ""))
                self.assertEqual(run.wait().status, 0)
                for peer in held:
                    peer.close()

    def test_commands_to_a_stopped_run_fail_within_seconds_and_do_nothing_later(self):
        run, address = self.started()
        os.kill(run.process.pid, signal.SIGSTOP)
        for command in ("stop", "pause", "status"):
            begin = time.monotonic()
            status, _, err = self.command(command, "--at", address)
            self.assertLess(time.monotonic() - begin, 10 * LOADED)
            self.assertEqual((status, err.count("\n")), (1, 1), err)
            self.assertIn("no answer within", err)
        os.kill(run.process.pid, signal.SIGCONT)
        with Client(address) as control:
            step = control.status().step
            self.assertEqual(self.until(control, lambda status: status.step > step).state, State.RUNNING)

    def test_a_service_that_is_not_maestro_is_told_in_one_line(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            def answer():
                peer, _ = server.accept()
                with peer:
                    peer.recv(1)
                    peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            thread = threading.Thread(target=answer)
            thread.start()
            done = self.command("status", "--at", f"127.0.0.1:{server.getsockname()[1]}")
            thread.join()
        self.assertEqual((done[0] != 0, done[2].count("\n")), (True, 1), done)

    def test_tcp_on_this_host_wants_the_token_and_names_who_has_none(self):  # CT-3
        run, address = self.started(control="127.0.0.1:0")
        token = (self.folder / "maestro" / f"{address}.token").read_text().strip()
        with Client(address, token) as control:
            self.assertEqual(control.status().state, State.RUNNING)
        with Client(address, "guess") as control:
            for call in (control.status, control.plan, control.checkpoint, control.pause, control.resume, control.stop):
                self.assertEqual(self.refusal(call), "wrong token")
        self.assertTrue(run.wait_for_text("wrong token"), run.text)
        self.assertRegex(run.text["out"], r"control: 127\.0\.0\.1:\d+ was refused: wrong token")
        self.assertEqual(self.command("status", "--at", address)[0], 0)
        self.assertEqual(self.command("stop")[0], 0)
        self.assertEqual(run.wait().status, 0)
        self.assertEqual(list((self.folder / "maestro").iterdir()), [])

    def test_none_switches_the_service_off(self):
        run = self.start(distillation(steps=ENDLESS), "--control", "none")
        self.assertTrue(run.wait_for_text("step "), run.text)
        self.assertFalse((self.folder / "maestro").exists())

    def test_a_run_whose_default_socket_cannot_be_made_goes_on_with_a_note(self):
        (self.folder / "maestro").mkdir(mode=0o755)
        (self.folder / "maestro").chmod(0o755)
        finished = self.start(distillation(steps=3)).wait()
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertIn("this run lacks a control service", finished.out)

    def test_other_hosts_need_a_certificate_and_the_token(self):
        for name in ("job", "other"):
            self.assertEqual(self.command("keys", str(self.folder / name))[0], 0)
        keys = self.folder / "job"
        token = next(path for path in keys.iterdir() if "token" in path.name).read_text().strip()
        run, address = self.started(None, "--keys", keys, control="0.0.0.0:0")
        at = "127.0.0.1:" + address.rsplit(":", 1)[1]
        with Client(at, token, keys) as control:
            self.assertEqual(control.status().state, State.RUNNING)
        with Client(at, "guess", keys) as control:
            self.assertEqual(self.refusal(control.status), "wrong token")
        with self.assertRaises(Exception):
            with Client(at, token, self.folder / "other") as control:
                control.status()
        with self.assertRaises(Exception):
            with Client(at, token) as control:
                control.status()
        self.assertTrue(run.wait_for_text("certificate"), run.text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
