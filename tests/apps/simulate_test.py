#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`maestro simulate`: a JSON object with a legal timeline, equal in every run; refusals take one line."""

import json
import random
import unittest

from maestro_program import SystemTest


def two_sections(samples=40, seed=5):
    chosen = random.Random(seed)
    rows = []
    for sample in range(samples):
        llm = round(chosen.lognormvariate(2, 0.6), 3)
        forward = {"llm": llm}
        if chosen.random() < 0.6:
            forward["vision"] = round(chosen.lognormvariate(1, 0.8), 3)
        rows.append({"id": sample, "forward_ms": forward, "backward_ms": {name: 2 * ms for name, ms in forward.items()}})
    return {"sections": [{"name": "llm", "replicas": 4, "mode": "forward_backward", "max_in_flight": 1},
                         {"name": "vision", "replicas": 2, "mode": "forward_backward", "max_in_flight": 4}],
            "edges": [{"from": "vision", "to": "llm", "slots": 2, "transfer_ms": 0.2}],
            "samples": rows}


def most_at_once(holds):
    """Returns the largest number of overlapping [begin, end) intervals; intervals that only touch do not overlap."""
    changes = sorted([(begin, 1) for begin, end in holds] + [(end, -1) for begin, end in holds],
                     key=lambda change: (round(change[0], 6), change[1]))
    held = most = 0
    for _, change in changes:
        held += change
        most = max(most, held)
    return most


class Simulate(SystemTest):
    def simulate(self, workload, *options):
        (self.folder / "workload.json").write_text(json.dumps(workload))
        finished = self.call("simulate", "workload.json", *options)
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertEqual(finished.err, "")
        return json.loads(finished.out)

    def refuse(self, arguments, *wanted):
        finished = self.call("simulate", *arguments)
        self.assertEqual(finished.status, 2, finished.describe())
        self.assertEqual(len(finished.err.splitlines()), 1, finished.describe())
        self.assertEqual(finished.out, "")
        for text in wanted:
            self.assertIn(text, finished.err)

    def assert_legal(self, workload, timeline):
        """Checks the rules of docs/workloads.md without the program's checker."""
        passes = {}
        for event in timeline:
            key = (event["sample"], event["section"], event["pass"])
            self.assertNotIn(key, passes)
            passes[key] = event
        edge, = workload["edges"]
        lanes, slots, in_flight = {}, {}, {}
        for sample in workload["samples"]:
            for section in sample["forward_ms"]:
                forward, backward = (passes.pop((sample["id"], section, which)) for which in ("forward", "backward"))
                self.assertAlmostEqual(forward["end_ms"] - forward["start_ms"], sample["forward_ms"][section], 6)
                self.assertAlmostEqual(backward["end_ms"] - backward["start_ms"], sample["backward_ms"][section], 6)
                self.assertEqual(forward["replica"], backward["replica"])
                self.assertGreaterEqual(backward["start_ms"], forward["end_ms"] - 1e-6)
                lane = (section, forward["replica"])
                lanes.setdefault(lane, []).extend((e["start_ms"], e["end_ms"]) for e in (forward, backward))
                in_flight.setdefault(lane, []).append((forward["start_ms"], backward["end_ms"]))
                sample[section] = forward, backward
            if "vision" in sample:
                made, taken = sample["vision"][0]["end_ms"], sample["llm"][0]["start_ms"]
                self.assertGreaterEqual(taken, made + edge["transfer_ms"] - 1e-6)
                self.assertGreaterEqual(sample["vision"][1]["start_ms"],
                                        sample["llm"][1]["end_ms"] + edge["transfer_ms"] - 1e-6)
                slots.setdefault(sample["llm"][0]["replica"], []).append((made, taken))
        self.assertEqual(passes, {})
        replicas = {section["name"]: section for section in workload["sections"]}
        for (section, replica), busy in lanes.items():
            self.assertIn(replica, range(replicas[section]["replicas"]))
            self.assertEqual(most_at_once(busy), 1)
            self.assertLessEqual(most_at_once(in_flight[section, replica]), replicas[section]["max_in_flight"])
        for held in slots.values():
            self.assertLessEqual(most_at_once(held), edge["slots"])

    def test_every_policy_answers_a_legal_timeline(self):
        for policy in ("arrival", "bulk_synchronous", "wavefront"):
            with self.subTest(policy):
                workload = two_sections()
                result = self.simulate(workload, "--policy", policy)
                self.assertEqual(list(result), ["policy", "makespan_ms", "lower_bound_ms", "ratio", "planning_ms",
                                                "utilization", "timeline"])
                self.assertEqual(result["policy"], policy)
                self.assert_legal(workload, result["timeline"])
                self.assertAlmostEqual(result["makespan_ms"], max(event["end_ms"] for event in result["timeline"]), 6)
                self.assertGreaterEqual(result["ratio"], 1 - 1e-9)
                self.assertAlmostEqual(result["ratio"], result["makespan_ms"] / result["lower_bound_ms"], 9)
                busy = sum(event["end_ms"] - event["start_ms"] for event in result["timeline"]
                           if event["section"] == "llm")
                self.assertAlmostEqual(result["utilization"]["llm"], busy / 4 / result["makespan_ms"], 6)

    def test_wavefront_is_the_default_and_the_shortest(self):
        results = {policy: self.simulate(two_sections(), "--policy", policy)["makespan_ms"]
                   for policy in ("arrival", "bulk_synchronous", "wavefront")}
        default = self.simulate(two_sections())
        self.assertEqual(default["policy"], "wavefront")
        self.assertEqual(default["makespan_ms"], results["wavefront"])
        self.assertLessEqual(results["wavefront"], results["arrival"])
        self.assertLess(results["wavefront"], results["bulk_synchronous"])

    def test_two_runs_give_the_same_plan(self):
        first, second = (self.simulate(two_sections(), "--seed", "3") for _ in range(2))
        self.assertEqual(first["timeline"], second["timeline"])

    def test_a_budget_of_time_gives_a_legal_plan_too(self):
        workload = two_sections()
        self.assert_legal(workload, self.simulate(workload, "--budget-ms", "20")["timeline"])

    def test_the_timeline_file_holds_the_same_passes_for_perfetto(self):
        result = self.simulate(two_sections(), "--timeline", "out/trace.json")
        events = json.loads((self.folder / "out" / "trace.json").read_text())["traceEvents"]
        processes = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
        slices = {(event["name"], processes[event["pid"]], event["tid"], round(event["ts"] / 1000, 6))
                  for event in events if event["ph"] == "X"}
        wanted = {(f"{event['pass']} {event['sample']}", event["section"], event["replica"],
                   round(event["start_ms"], 6)) for event in result["timeline"]}
        self.assertEqual(slices, wanted)

    def test_wrong_input_is_one_line(self):
        workload = two_sections()
        workload["samples"][3]["forward_ms"]["vison"] = 1
        (self.folder / "bad.json").write_text(json.dumps(workload))
        self.refuse(["bad.json"], "bad.json: samples[3].forward_ms.vison", "did you mean 'vision'?")
        (self.folder / "cut.json").write_text('{"sections": [')
        self.refuse(["cut.json"], "cut.json is not valid JSON")
        self.refuse(["nowhere.json"], "nowhere.json", "No such file")
        (self.folder / "good.json").write_text(json.dumps(two_sections()))
        self.refuse(["good.json", "--policy", "wavefrnt"], "wavefrnt", 'did you mean "wavefront"?')
        self.refuse(["good.json", "--seed", "-1"], "--seed")
        self.refuse(["good.json", "--budget-ms", "0"], "--budget-ms")
        self.refuse(["good.json", "--budgetms", "9"], "did you mean '--budget-ms'?")
        self.refuse(["good.json", "--timeline", "good.json/trace.json"], "good.json/trace.json")


if __name__ == "__main__":
    unittest.main()
