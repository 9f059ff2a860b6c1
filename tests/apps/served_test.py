#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Served sections: another process computes them, frozen or trained, with the same losses as the module inside the
program. The server's death, silence or absence is handled like a lost replica, or ends the run with a line."""

import functools
import os
import signal
import subprocess
import sys
import unittest
from pathlib import Path

from maestro_program import CLIENT, ENDLESS, PATIENCE_S, SystemTest, decoder, free_port

MODULES = Path(__file__).with_name("served_modules.py")
TORCH_MODULES = Path(__file__).with_name("served_torch_modules.py")
EXAMPLES = MODULES.parents[2] / "clients/python/examples"
TORCH_PYTHON = os.environ.get("MAESTRO_TORCH_PYTHON", sys.executable)
NEEDED = "torch, thrift, safetensors"  # by the examples
EXACT = 1e-6  # tolerance for losses: the server adds in double precision
SHAPE = {"layers": 1, "width": 16, "heads": 2, "positions": 16, "tied": False}
HEAD = {"type": "language_model_head", **SHAPE, "micro_batch": 2}
STEP_3 = "checkpoints/step-00000003"


def language_model(head, **train):
    """Returns a job with a trunk inside and a head of any kind."""
    return {"name": "served", "app": "graph",
            "edges": ["corpus.tokens -> trunk.tokens", "trunk.hidden -> head.hidden", "corpus.targets -> head.targets"],
            "train": {"steps": 6, "global_batch": 4, "validation_samples": 2, "out": "out", "recover": "off",
                      "checkpoint_every": 3, "keep_checkpoints": 9, **train},
            "data": {"path": "corpus.txt", "sequence": 16},
            "trunk": {"type": "decoder_trunk", **SHAPE, "micro_batch": 2}, "head": head}


def distillation(teacher, **train):
    """Returns a job with a student that learns from logits; its teacher keeps no state."""
    job = language_model(None, **train)
    job["edges"] = ["corpus.tokens -> teacher.tokens", "corpus.tokens -> student.tokens",
                    "corpus.targets -> student.targets", "teacher.logits -> student.teacher_logits"]
    del job["trunk"], job["head"]
    job["teacher"] = {"type": "served", "trained": False, "micro_batch": 2, **teacher}
    job["student"] = {"type": "distilled_decoder", "boundary": "logits",
                      **decoder(layers=1, width=16, positions=16, micro_batch=2)}
    return job


class Server:
    """A program in a separate process; `{}` in an argument stands for the address."""

    def __init__(self, test, program, name, *arguments, python=sys.executable):
        self.address = f"unix:{test.folder / name}"
        self.command = [python, "-B", str(program), *(str(each).replace("{}", self.address) for each in arguments)]
        self.test, self.process = test, None
        self.begin()

    def begin(self):
        environment = {**os.environ, "PYTHONPATH": str(CLIENT)}
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True, env=environment)
        self.test.addCleanup(self.end, self.process)
        self.test.assertIn("serving", self.process.stdout.readline())

    def end(self, process=None):
        process = process or self.process
        process.kill()
        process.wait(PATIENCE_S)
        process.stdout.close()


class ServedTest(SystemTest):
    def head_server(self, name="head.sock", weights=f"out/{STEP_3}/head/model.safetensors"):
        return Server(self, MODULES, name, "{}", "head", self.folder / weights)

    def assert_losses(self, wanted, found):
        self.assertEqual(wanted.keys(), found.keys())
        for key, (loss,) in wanted.items():
            if loss is not None:
                self.assertAlmostEqual(loss, found[key][0], delta=EXACT, msg=str(key))

    def bereft(self, server, job, *options):
        """Returns a run whose server is killed after the run's first checkpoint."""
        first = self.folder / job["train"]["out"] / STEP_3 / "checkpoint.json"
        self.assertFalse(first.exists())
        run = self.start_held(job, *options)
        self.assertTrue(run.wait_for(first.exists), run.text)
        server.end()
        run.release(unless="; starting again ")  # a paused run does not need its server
        return run

    def error_line(self, finished, *wanted):
        self.assertEqual(finished.status, 1, finished.describe())
        self.assertEqual(len(finished.error_lines()), 1, finished.describe())
        for text in wanted:
            self.assertIn(text, finished.error_lines()[0])


class Trained(ServedTest):
    def test_has_the_losses_of_the_same_module_inside_and_resumes_bitwise(self):  # VS-1
        inside = self.train(language_model(HEAD))
        self.assertLess(inside.curve("loss")["head", 6], inside.curve("loss")["head", 1])
        server = self.head_server()
        job = language_model({"type": "served", "address": server.address, "micro_batch": 2})
        # From the checkpoint of the module inside: it has the parameters and moments.
        served = self.train(job, "--resume", f"out/{STEP_3}")
        self.assert_losses(inside.curve("loss", after=3), served.curve("loss"))
        self.assertAlmostEqual(inside.report["validation"]["sections"]["head"]["loss"],
                               served.report["validation"]["sections"]["head"]["loss"], delta=EXACT)
        job["train"]["out"] = "whole"
        whole = self.train(job)
        resumed = self.train(job, "--resume", f"whole/{STEP_3}")
        self.assertEqual(resumed.curve(), whole.curve(after=3))

    def test_adds_gradients_up_over_replicas_with_servers_of_their_own(self):
        for zero in (False, True):
            with self.subTest(zero=zero):
                inside = self.train(language_model(HEAD | {"replicas": 2, "zero": zero}))
                servers = [self.head_server(f"{name}{zero}.sock") for name in ("a", "b")]
                head = {"type": "served", "address": [each.address for each in servers], "micro_batch": 2, "replicas": 2,
                        "zero": zero}
                served = self.train(language_model(head), "--resume", f"out/{STEP_3}", "--processes", 2)
                self.assert_losses(inside.curve("loss", after=3), served.curve("loss"))

    def test_goes_back_to_the_newest_checkpoint_when_its_server_is_killed(self):
        self.train(language_model(HEAD))
        server = self.head_server()
        head = {"type": "served", "address": server.address, "micro_batch": 2}
        job = language_model(head, steps=20, out="whole", recover="restart")
        whole = self.train(job)
        for options in ((), ("--processes", 2)):
            with self.subTest(options=options):
                job["train"]["out"] = f"lost{len(options)}"
                run = self.bereft(server, job, *options)
                self.assertTrue(run.wait_for_text("; starting again "), run.text)
                server.begin()
                finished = run.wait()
                self.assertEqual(finished.status, 0, finished.describe())
                self.assertEqual(finished.curve("loss"), whole.curve("loss"))
                self.assertEqual(len(finished.report["recoveries"]), 1, finished.describe())
                self.assertIn("section 'head' replica 0, step", finished.err)

    def test_ends_the_run_with_a_line_when_its_server_is_killed_and_nothing_recovers(self):
        self.train(language_model(HEAD))
        server = self.head_server()
        head = {"type": "served", "address": server.address, "micro_batch": 2}
        run = self.bereft(server, language_model(head, steps=ENDLESS, out="lost"))
        self.error_line(run.wait(), "section 'head' replica 0, step ", f"the served module at {server.address}: it ended")
        self.assert_nothing_left(run)
        server.begin()
        newest = max((self.folder / "lost/checkpoints").glob("step-" + 8 * "[0-9]"))
        after = int(newest.name.removeprefix("step-"))
        resumed = self.train(language_model(head, steps=after + 2, out="lost"), "--resume", newest)
        self.assertEqual([step for name, step in resumed.curve() if name == "head"], [after + 1, after + 2])


class Frozen(ServedTest):
    def test_passes_gradients_on_as_the_same_module_inside(self):
        self.train(language_model(HEAD, out="made"))
        weights = f"made/{STEP_3}/head"
        inside = self.train(language_model(HEAD | {"trained": False, "weights": weights}))
        server = self.head_server(weights=f"{weights}/model.safetensors")
        head = {"type": "served", "trained": False, "address": server.address, "micro_batch": 2}
        served = self.train(language_model(head))
        self.assert_losses(inside.curve("loss"), served.curve("loss"))
        self.assertLess(served.curve("loss")["head", 6], served.curve("loss")["head", 1])

    def test_teacher_is_replaced_when_its_server_is_killed(self):  # VS-2
        server = Server(self, MODULES, "teacher.sock", "{}", "logits", "slow_s=0.005")
        teacher = {"address": server.address, "replicas": 2}
        whole = self.train(distillation(teacher, steps=20))
        run = self.bereft(server, distillation(teacher, steps=20, out="lost"))
        server.begin()
        finished = run.wait()
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertEqual(finished.curve("loss", "kl"), whole.curve("loss", "kl"))

    def test_teacher_moves_with_its_placement_when_its_process_is_killed(self):
        server = Server(self, MODULES, "teacher.sock", "{}", "logits", "slow_s=0.005")
        teacher = {"address": server.address, "replicas": 2, "processes": [0, 1]}
        whole = self.train(distillation(teacher, steps=20), "--processes", 2)
        job = distillation(teacher, steps=20, out="lost", recover="restart")
        # Over shm a write that the lost process has not read takes the run back.
        run = self.start_held(job, "--processes", 2, settings={"transport.provider": "tcp"})
        self.assertTrue(run.wait_for((self.folder / "lost" / STEP_3 / "checkpoint.json").exists), run.text)
        os.kill(run.members()[1], signal.SIGKILL)
        finished = run.wait()
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertIn("went on in place", finished.out)
        self.assertEqual(finished.curve("loss", "kl"), whole.curve("loss", "kl"))

    def test_teacher_that_does_not_come_back_ends_the_run_with_a_line(self):
        server = Server(self, MODULES, "teacher.sock", "{}", "logits")
        run = self.start(distillation({"address": server.address, "reconnect_s": 0.2}, steps=ENDLESS))
        self.assertTrue(run.wait_for_text("step "), run.text)
        server.end()
        self.error_line(run.wait(), "section 'teacher' replica 0, step ", server.address, "(tried for 1 s)")
        self.assert_nothing_left(run)

    def test_teacher_may_begin_after_the_run(self):
        before = self.train(distillation({"address": Server(self, MODULES, "before.sock", "{}", "logits").address}))
        address = f"unix:{self.folder}/after.sock"
        run = self.start(distillation({"address": address, "connect_s": PATIENCE_S}))
        self.assertTrue(run.wait_for_text(f"section 'teacher' waits for its server at {address}, up to {int(PATIENCE_S)} s "
                                          "(teacher.connect_s)\n"), run.text)
        Server(self, MODULES, "after.sock", "{}", "logits")
        finished = run.wait()
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertEqual(finished.curve("kl"), before.curve("kl"))

    def test_teacher_that_does_not_begin_ends_the_start_with_a_line_and_check_does_not_wait(self):
        job = distillation({"address": f"unix:{self.folder}/none.sock", "connect_s": 1.5})
        finished = self.start(job).wait()
        self.assertEqual(finished.status, 2, finished.describe())
        self.assertEqual(len(finished.error_lines()), 1, finished.describe())
        self.assertIn("teacher.address: ", finished.error_lines()[0])
        self.assertIn("(tried for 2 s)", finished.error_lines()[0])
        self.assertIn("section 'teacher' waits for its server at ", finished.out)
        checked = self.call("check", self.write_job(job))
        self.assertEqual((checked.status, checked.out), (2, ""))
        self.assertNotIn("tried for", checked.err)

    def test_teacher_that_does_not_answer_ends_the_run_within_its_limit(self):  # VN-1
        server = Server(self, MODULES, "teacher.sock", "{}", "logits")
        run = self.start(distillation({"address": server.address, "timeout_s": 3}, steps=ENDLESS))
        self.assertTrue(run.wait_for_text("step "), run.text)
        server.process.send_signal(signal.SIGSTOP)
        self.error_line(run.wait(), "section 'teacher' replica 0, step ", server.address, "no answer within 3 s")
        self.assert_nothing_left(run)

    def test_teacher_is_reached_over_tls(self):
        self.assertEqual(self.call("keys", "keys").status, 0)
        plain = Server(self, MODULES, "teacher.sock", "{}", "logits")
        port = free_port()
        Server(self, MODULES, "", f"127.0.0.1:{port}", "logits", f"keys={self.folder}/keys")
        secured = {"address": f"127.0.0.1:{port}", "keys": "keys"}
        self.assertEqual(self.train(distillation(secured)).curve("kl"),
                         self.train(distillation({"address": plain.address})).curve("kl"))
        self.call("keys", "others")
        self.assert_refused("teacher.address: the served module at 127.0.0.1", "check",
                            self.write_job(distillation(secured | {"keys": "others"})))

    def test_error_of_a_module_ends_the_run_with_its_text(self):
        server = Server(self, MODULES, "teacher.sock", "{}", "logits", "fails_at=5")
        run = self.start(distillation({"address": server.address}))
        self.error_line(run.wait(), "section 'teacher' replica 0, step 3: ", server.address,
                        "it refuses: ValueError: pass 5 fails on two lines")

    def test_section_is_resumed_with_the_values_that_it_had(self):
        first = Server(self, MODULES, "teacher.sock", "{}", "logits")
        job = distillation({"address": first.address})
        self.train(job)
        first.end()
        Server(self, MODULES, "teacher.sock", "{}", "logits", "fingerprint=2")
        self.assert_refused("records of section 'teacher' differ", "train", self.write_job(job), "--resume", f"out/{STEP_3}")


@functools.cache
def why_no_torch():
    """Returns why the examples cannot run; empty if TORCH_PYTHON has their packages."""
    done = subprocess.run([TORCH_PYTHON, "-c", f"import {NEEDED}"], capture_output=True, text=True)
    return "" if done.returncode == 0 else f"{TORCH_PYTHON} lacks {NEEDED}: {done.stderr.splitlines()[-1]}"


class Torch(ServedTest):
    """Examples from clients/python."""

    def setUp(self):
        if why_no_torch():
            self.skipTest(why_no_torch())
        super().setUp()

    def linear(self, *options):
        return Server(self, EXAMPLES / "serve_linear.py", "torch.sock", "--address", "{}", "--width", 16, *options,
                      python=TORCH_PYTHON)

    def test_linear_layer_is_trained_as_inside_and_resumes_bitwise(self):
        inside = self.train(language_model(HEAD | {"replicas": 2}))
        head = {"type": "served", "address": self.linear().address, "micro_batch": 2, "replicas": 2}
        served = self.train(language_model(head), "--resume", f"out/{STEP_3}")
        self.assert_losses(inside.curve("loss", after=3), served.curve("loss"))
        whole = self.train(language_model(head, out="whole"))
        self.assertLess(whole.curve("loss")["head", 6], whole.curve("loss")["head", 1])
        resumed = self.train(language_model(head, out="whole"), "--resume", f"whole/{STEP_3}")
        self.assertEqual(resumed.curve(), whole.curve(after=3))

    def test_linear_layer_passes_gradients_on_frozen(self):
        self.train(language_model(HEAD, out="made"))
        weights = f"made/{STEP_3}/head"
        inside = self.train(language_model(HEAD | {"trained": False, "weights": weights}))
        server = self.linear("--weights", self.folder / weights / "model.safetensors")
        served = self.train(language_model({"type": "served", "trained": False, "address": server.address, "micro_batch": 2}))
        self.assert_losses(inside.curve("loss"), served.curve("loss"))

    def test_teacher_sends_its_logits(self):
        plain = Server(self, MODULES, "plain.sock", "{}", "logits")
        wanted = self.train(distillation({"address": plain.address}))
        torch = Server(self, TORCH_MODULES, "torch.sock", "{}", python=TORCH_PYTHON)
        found = self.train(distillation({"address": torch.address}))
        self.assert_losses(wanted.curve("kl"), found.curve("kl"))


class Checks(ServedTest):
    def test_refuse_a_section_in_a_line(self):
        server = Server(self, MODULES, "teacher.sock", "{}", "logits")
        reasons = (({"address": f"unix:{self.folder}/no.sock"}, "no.sock"),
                   ({"address": ""}, "teacher.address is not given"),
                   ({"address": "10.0.0.1:99"}, "is not on this host, and is reached only with TLS"),
                   ({"address": "nonsense"}, "teacher.address: "),
                   ({"weights": "random"}, "teacher.weights: "),
                   ({"tensor": 2}, "teacher.tensor = 2"),
                   ({"pipeline": 2}, "teacher.pipeline = 2"),
                   ({"precision": "bf16"}, "teacher.precision: "),
                   ({"recompute": 1}, "teacher.recompute"),
                   ({"devices": ["cuda:0"]}, "teacher.devices: "),
                   ({"trained": True}, "the served module has no parameters to train"))
        for keys, line in reasons:
            with self.subTest(keys):
                job = distillation({"address": server.address, **keys})
                self.assert_refused(line, "check", self.write_job(job))

    def test_need_no_server_to_list_the_type(self):
        self.assertIn("timeout_s", self.call("sections", "served").out)

    def test_accept_a_section_with_a_server(self):
        server = Server(self, MODULES, "teacher.sock", "{}", "logits")
        finished = self.call("check", self.write_job(distillation({"address": server.address})), "--graph")
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertIn("fp32 x 256", finished.out)


if __name__ == "__main__":
    unittest.main()
