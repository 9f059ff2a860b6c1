#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`maestro profile` and `maestro plan` place sections on GPUs, and the written job trains on them."""

import json
import re
import tomllib

from fake_cuda import DEVICES, FP32_TOLERANCE, LEARNS, OnDevices, gpt2, job_of, llama, setUpModule, several_devices
from layouts_test import figures_of


class APlanForGpus(OnDevices):
    def job(self, **student):
        sections = {"teacher": llama(weights="random"), "student": gpt2(**LEARNS, **student)}
        for section in sections.values():
            del section["micro_batch"], section["replicas"]
        return job_of("distillation", **sections)

    def plan(self, *arguments, status=0):
        finished = self.call("plan", *arguments)
        self.assertEqual(finished.status, status, finished.describe())
        return finished.err if status else finished.out

    @several_devices
    def test_trains_as_the_job_does_on_a_processor(self):
        job = self.job()
        path = self.write_job(job)
        measured = self.call("profile", path, "--devices", 2, "--measure-ms", 0, "--vary", "devices")
        self.assertEqual(measured.status, 0, measured.describe())
        profile = json.loads((self.folder / "profile.json").read_text())
        self.assertEqual(profile["devices"], 2)
        self.assertNotEqual(profile["device"], "cpu")
        called = {call["op"] for call in profile["calls"]}
        self.assertLessEqual({"linear", "adamw", "reduce_scatter", "all_gather"}, called)
        given = ("--devices", 2, "--profile", "profile.json", "--measure-ms", 0)
        self.plan(path, *given)  # may measure shares, depending on this host's load
        text = self.plan(path, *given, "--out", "plan.toml", "--page", "plan.html")
        self.assertRegex(text, r"^cuda on 2 GPUs \(.+\): \d+ layouts of sections")
        self.assertRegex(text, r"m\d+ cuda:[01]")
        self.assertEqual(text, self.plan(path, *given, "--out", "plan.toml", "--page", "plan.html"), "equal profiles, equal plans")
        self.assertIn("cuda:", (self.folder / "plan.html").read_text())
        planned = tomllib.loads((self.folder / "plan.toml").read_text())
        for section in ("teacher", "student"):
            self.assertTrue(all(re.fullmatch("cuda:[01]", each) for each in planned[section]["devices"]), planned)
        self.assert_close(figures_of(self.train(job)), figures_of(self.train(planned)), FP32_TOLERANCE)

    def test_takes_every_price_from_the_profile_of_the_same_job(self):
        job = self.job(precision="bf16")
        for section in ("teacher", "student"):
            job[section].update(share=0.5, devices=DEVICES[:1])
        path = self.write_job(job)
        measured = self.call("profile", path, "--devices", 1, "--measure-ms", 0)
        self.assertEqual(measured.status, 0, measured.describe())
        self.assertIn("measuring student", measured.out)
        calls = json.loads((self.folder / "profile.json").read_text())["calls"]
        shares = [call["parts_us"] for call in calls if call["op"] == "linear"]
        self.assertTrue(shares and all(len(each) == 3 for each in shares), shares)
        planned = self.call("plan", path, "--devices", 1, "--profile", "profile.json", "--measure-ms", 0)
        self.assertEqual(planned.status, 0, planned.describe())
        self.assertNotIn("measuring", planned.out)
        self.assertIn("Times: 100.0% measured", planned.out)

    def test_needs_the_gpus_and_the_profile_that_it_is_made_for(self):
        path = self.write_job(self.job())
        gpus = "1 GPU" if len(DEVICES) == 1 else f"{len(DEVICES)} GPUs"
        self.assertRegex(self.plan(path, "--devices", 9, status=2), f"--devices 9: there (is|are) {gpus}$")
        measured = self.call("profile", path, "--cpu-devices", 2, "--measure-ms", 0)
        self.assertEqual(measured.status, 0, measured.describe())
        self.assertIn(f"profile.json: measured on cpu, and plan is for {gpus}",
                      self.plan(path, "--devices", len(DEVICES), "--profile", "profile.json", status=2))
        placed = self.job()
        placed["student"]["devices"] = ["cpu:0"]
        self.assertIn(f"student.devices: \"cpu:0\": this plan is for {gpus}", self.plan(self.write_job(placed), "--devices", len(DEVICES), status=2))
        self.assertIn("on 2 CPU devices", self.plan(path, "--cpu-devices", 2, "--measure-ms", 0))


if __name__ == "__main__":
    import unittest

    unittest.main()
