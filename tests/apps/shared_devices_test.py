#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sections on each other's devices: devices = ["SECTION"], turns in the order of the plan, and equal losses."""

import json
import random
import re
import unittest

from http_runs import HttpTest
from maestro_program import undisturbed

LEARNS = {"lr": 1e-3}


def job_of(**sections):
    model = {"layers": 4, "width": 32, "heads": 4, "positions": 24, "vocabulary": 64}
    return {"name": "shared", "app": "distillation",
            "train": {"steps": 4, "global_batch": 8, "validation_samples": 4, "checkpoint_at_end": False, "out": "out"},
            "data": {"kind": "synthetic", "sequence": 24, "vocabulary": 64},
            "teacher": {**model, "weights": "random", "micro_batch": 1, **sections.get("teacher", {})},
            "student": {**model, "pipeline": 2, "micro_batch": 1, **LEARNS, **sections.get("student", {})}}


def multiplexed(stages, share, samples=24, scale=1.0):
    """Returns a workload of unlike samples: an encoder on every stage's device."""
    draw = random.Random(3)
    names = [f"llm{stage}" for stage in range(stages)]
    drawn = []
    for number in range(samples):
        forward = {name: 3 * scale * draw.uniform(0.95, 1.05) for name in names}
        if draw.random() < share:
            forward["vision"] = 5 * scale * min(5, draw.lognormvariate(0, 0.7))
        drawn.append({"id": number, "forward_ms": forward, "backward_ms": {key: 2 * ms for key, ms in forward.items()}})
    return {"sections": [{"name": "vision", "replicas": stages, "mode": "forward_backward", "max_in_flight": 4,
                          "devices": list(range(stages))}] +
                        [{"name": name, "replicas": 1, "mode": "forward_backward", "devices": [at],
                          "max_in_flight": 2 * stages - at} for at, name in enumerate(names)],
            "edges": [{"from": "vision", "to": "llm0", "slots": 2 * stages}] +
                     [{"from": before, "to": after} for before, after in zip(names, names[1:])],
            "samples": drawn}


class SharedDevices(HttpTest):
    def answer(self, *arguments):
        finished = self.call(*arguments)
        self.assertEqual(finished.status, 0, finished.describe())
        return json.loads(finished.out.splitlines()[-1])

    def devices(self, finished):
        lanes = {}
        for lane in finished.report["plan"]["lanes"]:
            lanes.setdefault(lane["section"], []).append((lane["process"], *lane["devices"]))
        return lanes

    def test_a_section_takes_all_devices_of_another_with_as_many_replicas(self):
        shared = {"teacher": {"devices": ["student"]}}
        automatic = self.train(job_of(**shared), "--cpu-devices", 2)
        lanes = self.devices(automatic)
        self.assertEqual(lanes["teacher"], [(0, "cpu:0"), (0, "cpu:1")])
        self.assertEqual(lanes["student.stage0"] + lanes["student.stage1"], lanes["teacher"])
        named = self.train(job_of(**shared, student={"devices": ["cpu:1", "cpu:0"]}), "--cpu-devices", 2)
        self.assertEqual(self.devices(named)["teacher"], [(0, "cpu:1"), (0, "cpu:0")])
        spread = self.train(job_of(**shared, student={"processes": [2, 1]}), "--cpu-devices", 2, "--processes", 3)
        lanes = self.devices(spread)
        self.assertEqual(lanes["teacher"], lanes["student.stage0"] + lanes["student.stage1"])
        self.assertEqual([process for process, _ in lanes["teacher"]], [2, 1])
        for finished in (named, spread):
            self.assertEqual(finished.curve(), automatic.curve())
        both = self.train(job_of(teacher={"devices": ["student"], "tensor": 2}), "--cpu-devices", 2)
        self.assertEqual(self.devices(both)["teacher"], [(0, "cpu:0", "cpu:1")])

    def test_losses_are_the_same_whatever_the_policy_and_the_turns(self):
        apart = job_of(teacher={"replicas": 2, "devices": ["cpu:2", "cpu:3"]}, student={"devices": ["cpu:0", "cpu:1"]})
        shared = job_of(teacher={"devices": ["student"]}, student={"devices": ["cpu:0", "cpu:1"]})
        for policy in ("wavefront", "arrival", "bulk_synchronous"):
            curves = [self.train(job, "--cpu-devices", 4, settings={"schedule.policy": policy}).curve("loss")
                      for job in (apart, shared)]
            for key, losses in curves[0].items():
                for one, other in zip(losses, curves[1][key], strict=True):
                    self.assertAlmostEqual(one, other, delta=1e-6, msg=f"{policy} {key}")

    def test_chunks_of_a_pipeline_train_the_same_model(self):
        apart = {"teacher": {"devices": ["cpu:1"]}}
        alone = self.train(job_of(**apart, student={"pipeline": 1, "devices": ["cpu:0"]}), "--cpu-devices", 2,
                           settings={"train.checkpoint_at_end": True, "train.out": "alone"})
        chunked = job_of(**apart, student={"devices": ["cpu:0", "cpu:1"], "chunks": 2})
        keeps = {"train.checkpoint_at_end": True, "train.out": "chunked"}
        runs = [self.train(chunked, "--cpu-devices", 2, *processes, settings=keeps)
                for processes in ((), ("--processes", 2))]
        self.assertEqual(runs[0].curve(), runs[1].curve())
        lanes = self.devices(runs[0])
        self.assertEqual([lanes[f"student.stage{stage}"] for stage in range(4)],
                         [[(0, "cpu:0")], [(0, "cpu:1")], [(0, "cpu:0")], [(0, "cpu:1")]])
        for key, losses in alone.curve("loss", "grad_norm").items():
            for one, other in zip(losses, runs[0].curve("loss", "grad_norm")[key], strict=True):
                self.assertAlmostEqual(one, other, delta=1e-5 * max(1, abs(one)), msg=str(key))
        # A run continues from the other's checkpoint under its own layout.
        longer = {**keeps, "train.steps": 6}
        resumed = self.train(chunked, "--cpu-devices", 2, "--resume", "alone/checkpoints/step-00000004",
                             settings={**longer, "train.out": "resumed"})
        went_on = self.train(job_of(**apart, student={"pipeline": 1, "devices": ["cpu:0"]}), "--cpu-devices", 2,
                             "--resume", "chunked/checkpoints/step-00000004", settings={**longer, "train.out": "went_on"})
        for key, losses in went_on.curve("loss").items():
            for one, other in zip(losses, resumed.curve("loss")[key], strict=True):
                self.assertAlmostEqual(one, other, delta=1e-5, msg=str(key))

    def test_stages_keep_slack_in_flight_where_memory_is_known_to_suffice(self):
        job = job_of(teacher={"layers": 1}, student={"width": 64})
        job["data"]["sequence"] = job["teacher"]["positions"] = job["student"]["positions"] = 512

        def stage0(*settings):
            """Returns (micro-batches in flight, MB) of the first stage, and the output."""
            options = [part for setting in settings for part in ("--set", setting)]
            finished = self.call("check", self.write_job(job), "--cpu-devices", 3, *options)
            self.assertEqual(finished.status, 0, finished.describe())
            line = re.search(r"student\.stage0: .*\((\d+) in flight\).*; (\d+) MB", finished.out)
            return (int(line[1]), int(line[2])), finished.out

        (slack, large), _ = stage0()
        self.assertEqual(slack, 4, "2 P - s")
        (given, small), _ = stage0("student.max_in_flight=2")
        self.assertEqual(given, 2)
        self.assertGreater(large, small + 10)
        between = int((large + small) / 2 * 1e6 / 2**20)
        (kept, _), text = stage0(f"student.memory_mib={between}")
        self.assertEqual(kept, 2)
        self.assertIn("memory_mib is too small for twice as many", text)
        (kept, _), text = stage0(f"student.memory_mib={2 * large}")
        self.assertEqual(kept, 4)
        self.assertNotIn("too small", text)

    @undisturbed
    def test_chunks_shorten_the_bubble_of_a_pipeline(self):
        """Theory (Narayanan et al. 2021): P stages and m micro-batches take m + (P - 1) / K units with K chunks."""
        stages, batches = 4, 4
        took = {}
        for chunks in (1, 2):
            job = job_of(student={"layers": 8, "width": 64, "pipeline": stages, "chunks": chunks,
                                  "devices": [f"emulated:{at}" for at in range(stages)]},
                         teacher={"devices": ["emulated:9"], "layers": 1, "width": 8, "heads": 1})
            job["train"].update(global_batch=batches, steps=12, validation_samples=1)
            job["emulation"] = {"gflops": 0.3 / self.stretch}
            rows = self.train(job).report["scheduling"]
            ends = [row["begin_ms"] + row["makespan_ms"] for row in rows]
            took[chunks] = (ends[-1] - ends[3]) / (len(ends) - 4)
        wanted = (batches + (stages - 1) / 2) / (batches + stages - 1)
        self.assertLess(took[2] / took[1], 1.1 * wanted, f"{took} ms a step, {wanted:.3f} in theory")

    def test_what_cannot_be_shared_is_refused_by_name(self):
        on = {"devices": ["student"]}
        for sections, error in (
                ({"teacher": {"devices": ["studnt"]}}, 'did you mean "student"?'),
                ({"teacher": {"devices": ["teacher"]}}, "is neither a device nor another section"),
                ({"teacher": on, "student": {"devices": ["teacher"]}}, '"student" uses the devices of teacher'),
                ({"teacher": {**on, "replicas": 3}}, '"student" has 2 devices, for 2 replicas of teacher'),
                ({"teacher": {**on, "tensor": 4}}, '"student" has 2 devices, and a replica of teacher takes 4'),
                ({"teacher": {**on, "processes": [0, 0]}}, "leave processes out"),
                ({"student": {"chunks": 3}}, "it has 4 layers; nearest that fits: chunks = 2"),
                ({"student": {"pipeline": 1, "chunks": 2}}, "nothing to interleave"),
                ({"student": {"pipeline": 16, "chunks": 8}}, "pipeline x chunks = 128 stages; at most 64"),
                ({"teacher": {"devices": ["student", "cpu:0"]}}, '"student" is not a device')):
            self.assert_refused(error, "check", self.write_job(job_of(**sections)), "--cpu-devices", "2")

    def test_a_rehearsal_takes_as_long_as_its_plan_where_sections_share_devices(self):
        path = self.folder / "workload.json"
        for stages, share in ((4, 0.5), (4, 0.9), (8, 0.9)):
            path.write_text(json.dumps(multiplexed(stages, share, samples=16 * stages)))
            planned = self.answer("simulate", path.name)["makespan_ms"]
            played = self.answer("emulate", path.name, "--rehearse", "--steps", 8)["step_ms"]
            self.assertLess(played, 1.06 * planned, f"{stages} stages, {share} with images")
            noisy = [self.answer("emulate", path.name, "--rehearse", "--steps", 8, "--noise", 0.2, "--seed", seed)["step_ms"]
                     for seed in (1, 1, 2)]
            self.assertEqual(noisy[0], noisy[1], "a draw is repeatable")
            self.assertNotEqual(noisy[1], noisy[2])
            self.assertLess(noisy[0], 1.3 * planned)

    @undisturbed
    def test_a_run_takes_as_long_as_its_plan_where_sections_share_devices(self):
        path = self.folder / "workload.json"
        path.write_text(json.dumps(multiplexed(4, 0.5, samples=32, scale=2 * self.stretch)))
        planned = self.answer("simulate", path.name)["makespan_ms"]
        ran = self.answer("emulate", path.name, "--steps", "4")["run_ms"]
        self.assertLess(ran, 1.15 * 4 * planned)


if __name__ == "__main__":
    unittest.main()
