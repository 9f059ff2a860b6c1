#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`maestro fleet`: several jobs on a described cluster, by cells from files, and a single line for wrong input."""

import json
import unittest

from maestro_program import SystemTest

CLUSTER = """name = "sixteen"
[kinds.h100]
memory_gib = 80
tflops_bf16 = 989
tflops_fp32 = 67
memory_gb_s = 3350
[hosts.a]
count = 2
devices = 8
inside_gb_s = 450
network_gb_s = 400
price_per_hour = 40
"""


def cell(devices, step_ms, busy=0.9):
    return {"kind": "h100", "devices": devices, "step_ms": step_ms, "busy": busy, "bytes": 2e10,
            "price_per_million_samples": None, "layout": {"student": f"{devices} x m1"}, "settings": [f"student.replicas={devices}"]}


def job(name, devices, steps, share=1):
    return (f'[[job]]\nname = "{name}"\ncells = "cells/{name}.json"\nshare = {share}\nsteps = {list(steps)}\nkind = "h100"\n'
            f"devices = {devices}\n")


class Fleet(SystemTest):
    def write(self, jobs=1, between=0, move=30, kinds=None, cells=None):
        (self.folder / "cells").mkdir(exist_ok=True)
        (self.folder / "cluster.toml").write_text(CLUSTER)
        cells = cells or {"small": [cell(4, 2000), cell(8, 1200, 0.75), cell(16, 800, 0.55)]}
        for name, points in cells.items():
            text = {"format": "maestro-cells-1", "job": name, "cluster": "sixteen", "global_batch": 32, "cells": points}
            (self.folder / "cells" / f"{name}.json").write_text(json.dumps(text))
        head = f"seed = 5\njobs = {jobs}\nmean_between_s = {between}\nmove_s = {move}\n"
        (self.folder / "jobs.toml").write_text(head + (kinds or job("small", 4, (100, 100))))

    def simulate(self, *options):
        finished = self.call("fleet", "jobs.toml", "cluster.toml", *options)
        self.assertEqual((finished.status, finished.err), (0, ""), finished.describe())
        return finished.out

    def figures(self, *options):
        return json.loads(self.simulate("--json", *options))

    def refuse(self, *wanted, options=()):
        finished = self.call("fleet", "jobs.toml", "cluster.toml", *options)
        self.assertEqual((finished.status, finished.out), (2, ""), finished.describe())
        self.assertEqual(len(finished.err.splitlines()), 1, finished.describe())
        for text in wanted:
            self.assertIn(text, finished.err)

    def test_a_job_takes_the_time_of_its_cell(self):
        self.write()
        fixed, cells = self.figures("--policy", "fixed"), self.figures("--policy", "cells")
        self.assertAlmostEqual(fixed["all"]["mean_completion_s"], 200)
        self.assertAlmostEqual(cells["all"]["mean_completion_s"], 80)
        self.assertAlmostEqual(fixed["pools"][0]["device_hours"], 4 * 200 / 3600)
        self.assertAlmostEqual(fixed["pools"][0]["price"], 40 / 8 * 4 * 200 / 3600)
        self.assertIs(fixed["simulation"], True)

    def test_many_jobs_all_end_and_fixed_layouts_wait_longer(self):
        large = [cell(8, 4000), cell(16, 2200, 0.8)]
        self.write(jobs=80, between=150, cells={"small": [cell(4, 2000), cell(8, 1200, 0.75)], "large": large},
                   kinds=job("small", 4, (50, 400), 3) + job("large", 16, (50, 300)))
        results = {words: self.figures(*words) for words in
                   (("--policy", "fixed"), ("--policy", "fixed", "--pack"), ("--policy", "cells"), ("--policy", "cells", "--pack"))}
        arrivals = None
        for words, result in results.items():
            with self.subTest(words):
                self.assertEqual(len(result["completed"]), 80)
                self.assertEqual(result["all"]["jobs"], sum(kind["jobs"] for kind in result["kinds"].values()))
                least = {"small": 1.2, "large": 2.2}
                for one in result["completed"]:
                    self.assertGreaterEqual(one["start_s"], one["arrival_s"])
                    self.assertGreaterEqual(one["end_s"] - one["start_s"], least[one["job"]] * one["steps"] * (1 - 1e-9))
                arrivals = arrivals or [(one["job"], one["steps"], one["arrival_s"]) for one in result["completed"]]
                self.assertEqual(arrivals, [(one["job"], one["steps"], one["arrival_s"]) for one in result["completed"]])
                used = result["pools"][0]["device_hours"] * 3600
                self.assertLessEqual(used, 16 * result["makespan_s"] * (1 + 1e-9))
                self.assertAlmostEqual(result["pools"][0]["in_use"], used / (16 * result["makespan_s"]))
        mean = {words: result["all"]["mean_completion_s"] for words, result in results.items()}
        self.assertLess(mean["--policy", "cells"], mean["--policy", "fixed"])
        self.assertEqual(results["--policy", "fixed"]["all"]["moves"], 0)
        self.assertGreater(results["--policy", "fixed", "--pack"]["all"]["shared"], 0)

    def test_equal_inputs_give_equal_output_and_the_seed_other_jobs(self):
        self.write(jobs=30, between=60, kinds=job("small", 4, (50, 400)))
        self.assertEqual(self.simulate("--pack"), self.simulate("--pack"))
        self.assertEqual(self.simulate(), self.simulate("--seed", "5"))
        self.assertNotEqual(self.simulate(), self.simulate("--seed", "6"))

    def test_the_table_states_that_it_is_a_simulation_and_its_assumptions(self):
        self.write(jobs=3)
        text = self.simulate("--policy", "fixed")
        self.assertIn("A simulation: no job is run", text)
        self.assertEqual(text.count("assumed  "), 3)
        self.assertRegex(text, r"(?m)^small +3 ")

    def test_wrong_input_is_answered_in_one_line(self):
        self.write(kinds=job("small", 5, (100, 100)))
        self.refuse("jobs.toml:11: job[0].devices: cells/small.json lacks a cell of 5 devices of h100; "
                    "the nearest has 4")
        self.write(kinds=job("small", 4, (100, 100)).replace("h100", "h10"))
        self.refuse("job[0].kind", "did you mean 'h100'?")
        self.write(kinds=job("small", 4, (100, 100)).replace("share", "shaer"))
        self.refuse("jobs.toml:8: job[0].shaer: unknown key; did you mean 'share'?")
        self.write(kinds=job("other", 4, (100, 100)))
        self.refuse("cells/other.json")
        self.write(cells={"small": [cell(4, 2000), cell(8, 0)]})
        self.refuse("small.json: cells[1].step_ms: expected a number")
        self.write(cells={"small": [cell(4, 2000), cell(32, 300)]}, kinds=job("small", 32, (1, 1)))
        self.refuse("job small: 32 devices of h100, but sixteen has 16")
        self.write()
        self.refuse("--policy", options=("--policy", "fast"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
