#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`maestro plan JOB --cluster C`: golden plans of three jobs on three described clusters, objectives, cells, errors.

`python3 cluster_plan_test.py --write` rewrites golden/cluster_plans.json after an intended change."""

import json
import re
import sys
import tomllib
import unittest
from pathlib import Path

from maestro_program import SystemTest, job_text

GOLDEN = Path(__file__).with_name("golden") / "cluster_plans.json"

H100 = {"memory_gib": 80, "tflops_bf16": 989, "tflops_fp32": 67, "memory_gb_s": 3350,
        "efficiency": [[1e9, 0.35], [1e11, 0.72]], "launch_us": 4}
A100 = {"memory_gib": 40, "tflops_bf16": 312, "tflops_fp32": 19.5, "memory_gb_s": 1555,
        "efficiency": [[1e9, 0.35], [1e11, 0.72]], "launch_us": 4}


def hosts(kind, count, devices, price, inside_gb_s=450, network_gb_s=400):
    return {"kind": kind, "count": count, "devices": devices, "inside_gb_s": inside_gb_s, "inside_us": 10,
            "network_gb_s": network_gb_s, "network_us": 20, "price_per_hour": price}


CLUSTERS = {
    "two": {"name": "two devices", "kinds": {"h100": H100}, "hosts": {"a": hosts("h100", 1, 2, 10)}},
    "four hosts": {"name": "four hosts", "kinds": {"h100": H100}, "hosts": {"a": hosts("h100", 4, 4, 20)}},
    "two kinds": {"name": "two kinds", "kinds": {"h100": H100, "a100": A100},
                  "hosts": {"a": hosts("h100", 2, 4, 20), "b": hosts("a100", 3, 4, 6, 300, 50)},
                  "between": {"gb_s": 25, "us": 50}},
}


def llama(layers, width, **keys):
    return {"family": "llama", "layers": layers, "width": width, "heads": 8, "kv_heads": 4, "vocabulary": 4096,
            "positions": 1024, "precision": "bf16", **keys}


TRAIN = {"steps": 20, "global_batch": 32}
JOBS = {
    "distillation": {"name": "distil", "app": "distillation", "train": TRAIN,
                     "data": {"kind": "synthetic", "vocabulary": 4096, "sequence": 1024},
                     "teacher": llama(8, 2048, weights="random"), "student": llama(4, 1024), "plain": llama(4, 512)},
    "language model": {"name": "lm", "app": "language_model", "train": TRAIN,
                       "data": {"kind": "synthetic", "vocabulary": 4096, "sequence": 1024}, "teacher": llama(8, 2048)},
    "vision language": {"name": "vlm", "app": "vision_language", "train": TRAIN,
                        "data": {"kind": "synthetic_images", "vocabulary": 4096, "sequence": 512, "image_size": 224,
                                 "patch": 14},
                        "vision": {"layers": 6, "width": 1024, "heads": 16, "patch": 14, "positions": "2d",
                                   "max_grid": 16, "micro_batch": 4},
                        "projector": {"decoder": "llm", "micro_batch": 4},
                        "llm": llama(8, 1024)},
}


class ClusterPlan(SystemTest):
    def plan(self, job, cluster, *options):
        finished = self.call("plan", *self.written(job, cluster), *options)
        self.assertEqual(finished.status, 0, finished.describe())
        return finished.out

    def written(self, job, cluster):
        (self.folder / "cluster.toml").write_text(job_text(cluster))
        return self.write_job(job), "--cluster", "cluster.toml"

    def refuse(self, pattern, job, cluster, *options):
        finished = self.call("plan", *self.written(job, cluster), *options)
        self.assertEqual(finished.status, 2, finished.describe())
        self.assertEqual(len(finished.error_lines()), 1, finished.describe())
        self.assertRegex(finished.error_lines()[0], pattern)

    def all_plans(self):
        plans = {}
        for job_name, job in JOBS.items():
            for cluster_name, cluster in CLUSTERS.items():
                answer = json.loads(self.plan(job, cluster, "--json"))
                plans[f"{job_name} on {cluster_name}"] = {
                    "step_ms": round(answer["step_ms"], 3), "least_bound_ms": round(answer["least_bound_ms"], 3),
                    "settings": answer["settings"]}
        return plans

    def write_golden(self):
        GOLDEN.write_text(json.dumps(self.all_plans(), indent=1) + "\n")

    def test_plans_are_those_on_record(self):  # CY-2
        expected = json.loads(GOLDEN.read_text())
        plans = self.all_plans()
        self.assertEqual(list(plans), list(expected))
        for name, plan in plans.items():
            self.assertEqual(plan["settings"], expected[name]["settings"], name)
            for figure in ("step_ms", "least_bound_ms"):
                self.assertAlmostEqual(plan[figure], expected[name][figure], delta=0.002, msg=name)
            self.assertGreaterEqual(plan["step_ms"], plan["least_bound_ms"] * 0.999, name)

    def test_sections_that_do_the_same_work_are_planned_as_if_each_were_priced(self):
        teacher, cluster = llama(8, 2048, weights="random"), CLUSTERS["two kinds"]
        job = {name: JOBS["distillation"][name] for name in ("name", "app", "train", "data")}
        job |= {"student": {**llama(4, 1024), "teacher": ["math", "code"]}, "math": teacher, "code": teacher}
        apart = {**job, "code": {**teacher, "max_in_flight": 2}}  # the default, without effect on forward passes
        plans = [json.loads(self.plan(each, cluster, "--json")) for each in (job, apart)]
        for part in ("step_ms", "least_bound_ms", "settings"):
            self.assertEqual(plans[0][part], plans[1][part])
        given = {**job, **{name: {**teacher, "micro_batch": 1} for name in ("math", "code")}}
        text = self.plan(given, cluster, "--vary", "math.micro_batch")
        self.assertRegex(text, r"(?m)^code .* m1\b")  # a key that the job sets is kept
        self.assertNotRegex(text, r"(?m)^math .* m1\b")

    def test_the_written_job_has_the_devices_and_hosts_of_the_plan(self):
        self.plan(JOBS["distillation"], CLUSTERS["four hosts"], "--out", "plan.toml", "--page", "plan.html",
                  "--timeline", "lanes.json")
        page = (self.folder / "plan.html").read_text()
        for part in ("Time of the sections", "What ran when", "Device memory", "Time and cost", "Layouts"):
            self.assertIn(f"<h2>{part}</h2>", page)
        self.assertNotIn("<script", page)
        lanes = json.loads((self.folder / "lanes.json").read_text())["traceEvents"]
        self.assertTrue(any(event.get("name") == "forward" for event in lanes))
        job = tomllib.loads((self.folder / "plan.toml").read_text())
        for name in ("teacher", "student", "plain"):
            section = job[name]
            ranks = section["tensor"] * section["context"]
            stages = section["replicas"] * section["pipeline"]
            self.assertEqual(len(section["devices"]), ranks * stages)
            self.assertEqual(len(section["processes"]), stages)
            self.assertLess(max(section["processes"]), 4)
            self.assertTrue(all(device in ("cuda:0", "cuda:1", "cuda:2", "cuda:3") for device in section["devices"]))

    def test_a_new_plan_stays_where_the_earlier_one_has_it(self):  # RZ-2
        job, cluster = JOBS["distillation"], CLUSTERS["four hosts"]
        self.plan(job, cluster, "--out", "old.toml")
        again = self.plan(job, cluster, "--out", "same.toml", "--from", "old.toml")
        self.assertRegex(again, r"moved +0\.0 of [\d.]+ GiB since old\.toml")
        old, same = (tomllib.loads((self.folder / name).read_text()) for name in ("old.toml", "same.toml"))
        for section in ("teacher", "student", "plain"):
            self.assertEqual(sorted(zip(old[section]["processes"], old[section]["devices"])),
                             sorted(zip(same[section]["processes"], same[section]["devices"])))
        fewer = {**cluster, "hosts": {"a": {**cluster["hosts"]["a"], "count": 2}}}
        text = self.plan(job, fewer, "--out", "fewer.toml", "--from", "old.toml")
        self.assertRegex(text, r"the processes run on its hosts \d(,\d)?\n")
        new = tomllib.loads((self.folder / "fewer.toml").read_text())
        for section in ("teacher", "student", "plain"):
            self.assertLess(max(new[section]["processes"]), 2)
        self.refuse(r"job.toml:\d+: \w+.devices: `devices` or `processes` is missing", job, cluster, "--from", "job.toml", "--out", "x.toml")
        self.refuse("several pools", job, CLUSTERS["two kinds"], "--from", "old.toml", "--out", "x.toml")

    def test_a_planned_job_is_planned_again_for_another_cluster(self):
        first = self.plan(JOBS["language model"], CLUSTERS["four hosts"], "--out", "old.toml")
        self.assertIn("written", first)
        (self.folder / "cluster.toml").write_text(job_text(CLUSTERS["two"]))
        again = self.call("plan", "old.toml", "--cluster", "cluster.toml", "--vary", "all", "--out", "new.toml")
        self.assertEqual(again.status, 0, again.describe())
        new = tomllib.loads((self.folder / "new.toml").read_text())["teacher"]
        self.assertEqual(set(new["processes"]), {0})
        self.assertLessEqual(set(new["devices"]), {"cuda:0", "cuda:1"})

    def test_replicas_on_two_kinds_have_a_speed_each(self):
        answer = json.loads(self.plan(JOBS["distillation"], CLUSTERS["two kinds"], "--json"))
        parts = answer["sections"]["teacher"]["parts"]
        self.assertEqual([part["pool"] for part in parts], ["a", "b"])
        fast, slow = (part["replicas"] for part in parts)
        self.assertLess(answer["step_ms"], answer["front"][0]["bound_ms"])  # one kind per section
        text = self.plan(JOBS["distillation"], CLUSTERS["two kinds"], "--out", "mixed.toml", "--page", "plan.html")
        self.assertRegex(text, rf"\nteacher +{fast} a \+ {slow} b +")
        self.assertRegex(text, rf"teacher\.speed=\[{fast} x \d\.\d{{3}}, {slow} x 0\.\d{{3}}\]")
        self.assertIn(f"{fast} a + {slow} b", (self.folder / "plan.html").read_text())
        teacher = tomllib.loads((self.folder / "mixed.toml").read_text())["teacher"]
        self.assertEqual((len(teacher["speed"]), len(teacher["devices"]), teacher["replicas"]), (fast + slow,) * 3)
        self.assertEqual([process < 2 for process in teacher["processes"]], [True] * fast + [False] * slow)
        emulated = [part for name in ("teacher", "student", "plain")
                    for part in ("--set", f'{name}.devices=["emulated"]', "--set", f"{name}.processes=[]")]
        checked = self.call("check", "mixed.toml", *emulated)
        self.assertEqual(checked.status, 0, checked.describe())  # LS-1
        checked = self.call("check", "mixed.toml", *emulated, "--set", "teacher.replicas=3")
        self.assertEqual(checked.status, 2, checked.describe())
        self.assertRegex(checked.error_lines()[0], rf"teacher\.speed: names {fast + slow} speeds for replicas = 3")
        (self.folder / "cluster.toml").write_text(job_text(CLUSTERS["two"]))
        again = self.call("plan", "mixed.toml", "--cluster", "cluster.toml", "--vary", "all", "--out", "new.toml")
        self.assertEqual(again.status, 0, again.describe())
        new = tomllib.loads((self.folder / "new.toml").read_text())["teacher"]
        self.assertIsInstance(new["speed"], (int, float))

    def test_memory_is_saved_by_recompute_if_nothing_fits_without(self):
        job = {**JOBS["language model"], "data": {"kind": "synthetic", "vocabulary": 4096, "sequence": 16384},
               "teacher": llama(8, 2048, positions=16384)}
        keeps = {**job, "teacher": {**job["teacher"], "recompute": "none"}}

        def cluster(gib):
            return {**CLUSTERS["two"], "kinds": {"h100": {**H100, "memory_gib": gib}}}

        def least_gib(given):
            finished = self.call("plan", *self.written(given, cluster(1)))
            self.assertEqual(finished.status, 2, finished.describe())
            line, = finished.error_lines()
            return float(re.search(r"the smallest needs: teacher ([0-9.]+) GiB on each of 2 devices", line)[1]), line

        least, line = least_gib(job)
        self.assertIn('even with teacher.recompute="layers"; less memory: moments = "bf16"', line)
        without, line = least_gib(keeps)
        self.assertNotIn("even with", line)
        self.assertGreater(without, least + 1)
        between = cluster((least + without) / 2 / 0.92)
        self.plan(job, between, "--out", "planned.toml")
        self.assertEqual(tomllib.loads((self.folder / "planned.toml").read_text())["teacher"]["recompute"], "layers")
        self.refuse("the smallest needs: teacher", keeps, between)
        roomy = cluster(without / 0.92 + 1)
        self.plan(job, roomy, "--out", "roomy.toml")
        self.assertNotIn("recompute", tomllib.loads((self.folder / "roomy.toml").read_text())["teacher"])

    def test_money_buys_time_along_the_front(self):  # AL-3
        job, cluster = JOBS["distillation"], CLUSTERS["two kinds"]
        fastest = json.loads(self.plan(job, cluster, "--json"))
        front = fastest["front"]
        self.assertGreater(len(front), 1)
        for before, point in zip(front, front[1:]):
            self.assertGreater(point["bound_ms"], before["bound_ms"])
            self.assertLess(point["price_per_million_samples"], before["price_per_million_samples"])
        cheapest = json.loads(self.plan(job, cluster, "--json", "--objective", "money"))
        self.assertLess(cheapest["price_per_hour"] * cheapest["step_ms"],
                        fastest["price_per_hour"] * fastest["step_ms"])
        budget = fastest["price_per_hour"] - 1
        bounded = json.loads(self.plan(job, cluster, "--json", "--budget", budget))
        self.assertLessEqual(bounded["price_per_hour"], budget)
        self.assertGreaterEqual(bounded["least_bound_ms"], fastest["least_bound_ms"])
        text = self.plan(job, cluster)
        self.assertRegex(text, r"price +[\d.]+ an hour for \d+ a")
        self.assertRegex(text, r"front +bound ms +an hour +a million samples +hosts")

    def test_cells_are_the_curve_of_each_kind(self):
        self.plan(JOBS["language model"], CLUSTERS["two kinds"], "--curve", "cells.json")
        cells = json.loads((self.folder / "cells.json").read_text())
        self.assertEqual((cells["format"], cells["job"], cells["global_batch"]), ("maestro-cells-1", "lm", 32))
        for kind in ("h100", "a100"):
            curve = [cell for cell in cells["cells"] if cell["kind"] == kind]
            self.assertGreater(len(curve), 1)
            for before, cell in zip(curve, curve[1:]):
                self.assertGreater(cell["devices"], before["devices"])
                self.assertLess(cell["step_ms"], before["step_ms"])
            for cell in curve:
                self.assertTrue(0 < cell["busy"] <= 1)
                self.assertIn("teacher", cell["layout"])

    def test_wrong_input_is_told_in_one_line(self):
        job, cluster = JOBS["language model"], CLUSTERS["two kinds"]
        free = {**cluster, "hosts": {"a": {key: value for key, value in cluster["hosts"]["a"].items()
                                           if key != "price_per_hour"}, "b": cluster["hosts"]["b"]}}
        self.refuse("needs price_per_hour of all hosts", job, free, "--objective", "money")
        self.refuse("or the budget is too low", job, cluster, "--budget", 1)
        self.refuse("objective", job, cluster, "--objective", "money", "--extra", "teacher")
        self.refuse("cluster.toml:.*kinds.v100: no hosts", job,
                    {**cluster, "kinds": {**cluster["kinds"], "v100": A100}})
        self.refuse("cluster.toml:.*hosts.a.kind", job,
                    {**cluster, "hosts": {**cluster["hosts"], "a": hosts("h200", 1, 4, 1)}})


if __name__ == "__main__":
    if "--write" in sys.argv:
        unittest.TextTestRunner().run(ClusterPlan("write_golden"))
    else:
        unittest.main()
