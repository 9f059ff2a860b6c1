#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A run's trace: a track per replica, slices for all its work, arrows from producers to consumers."""

import json
import unittest
from collections import defaultdict

from maestro_program import SystemTest, distillation

STEPS = 6


def split_model(**train):
    whole = {"layers": 2, "width": 32, "heads": 2, "positions": 32, "tied": False, "micro_batch": 4, "lr": 1e-3}
    return {
        "name": "split",
        "app": "split_language_model",
        "train": {"steps": STEPS, "global_batch": 8, "validation_samples": 8, "out": "out", **train},
        "data": {"path": "corpus.txt", "sequence": 32},
        "trunk": dict(whole),
        "head": dict(whole),
    }


class Trace:
    def __init__(self, path):
        self.events = json.loads(path.read_text())["traceEvents"]
        named = (e for e in self.events if e["ph"] == "M" and e["name"] == "thread_name")
        self.tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in named}
        self.slices = defaultdict(list)  # by track name
        for event in self.events:
            if event["ph"] == "X":
                self.slices[self.tracks[event["pid"], event["tid"]]].append(event)

    def names(self, track):
        return {event["name"] for event in self.slices[track]}

    def enclosing(self, end):
        """Returns the slice that an arrow's end binds to: (track name, slice name)."""
        track = self.tracks[end["pid"], end["tid"]]
        for event in self.slices[track]:
            # Microseconds with a decimal fraction: the last digits are not exact in binary.
            if event["ts"] - 1e-4 <= end["ts"] <= event["ts"] + event["dur"] + 1e-4:
                return track, event["name"]
        return track, None

    def arrows(self):
        """Returns [(name, from slice, to slice)], and the numbers without exactly two ends."""
        ends = defaultdict(lambda: {"s": [], "f": []})
        for event in self.events:
            if event["ph"] in "sf":
                ends[event["id"]][event["ph"]].append(event)
        loose = [number for number, both in ends.items() if len(both["s"]) != 1 or len(both["f"]) != 1]
        return [(both["s"][0], both["f"][0]) for number, both in ends.items() if number not in loose], loose


class TraceOfARun(SystemTest):
    def record(self, job, processes, **settings):
        changes = {key.replace("__", "."): value for key, value in settings.items()}
        self.train(job, "--processes", processes, "--trace", "trace.json", settings=changes)
        self.assertEqual(list(self.folder.glob("trace.json.part*")), [])
        return Trace(self.folder / "trace.json")

    def check_slices(self, trace, processes):
        self.assertEqual({pid for pid, _ in trace.tracks}, set(range(processes)))
        for track in ("corpus/0", "teacher/0", "student/0", "plain/0"):
            self.assertEqual(sum(name == track for name in trace.tracks.values()), 1, track)
        self.assertIn("read", trace.names("corpus/0"))
        self.assertLessEqual({"forward", "evaluate"}, trace.names("teacher/0"))
        self.assertLessEqual({"forward + backward", "step", "wait", "snapshot"}, trace.names("student/0"))
        passes = [event for event in trace.slices["student/0"] if event["name"] == "forward + backward"]
        self.assertEqual(len(passes), 2 * STEPS)  # 8 samples a step in micro-batches of 4
        self.assertEqual(sorted({event["args"]["step"] for event in passes}), list(range(1, STEPS + 1)))
        self.assertTrue(all(event["dur"] >= 0 for events in trace.slices.values() for event in events))

    def check_arrows(self, trace, expected):
        arrows, loose = trace.arrows()
        self.assertEqual(loose, [])
        found = set()
        for start, end in arrows:
            self.assertEqual(start["name"], end["name"])
            self.assertLessEqual(start["ts"], end["ts"] + 1e-4)
            found.add((start["name"], *trace.enclosing(start), *trace.enclosing(end)))
        self.assertLessEqual(expected, found)
        self.assertFalse([arrow for arrow in found if None in arrow], found)
        return arrows

    def check_transfers(self, trace, track, name):
        moved = sorted((e for e in trace.slices[track] if e["name"] == name), key=lambda event: event["ts"])
        self.assertTrue(moved, trace.slices.keys())
        for before, after in zip(moved, moved[1:]):
            self.assertLessEqual(before["ts"] + before["dur"], after["ts"] + 1e-3)

    FORWARD = {
        ("tokens", "corpus/0", "read", "teacher/0", "forward"),
        ("tokens", "corpus/0", "read", "student/0", "forward + backward"),
        ("targets", "corpus/0", "read", "plain/0", "forward + backward"),
        ("hidden", "teacher/0", "forward", "student/0", "forward + backward"),
    }

    def test_of_one_process_has_every_lane_and_an_arrow_per_handed_over_piece(self):
        trace = self.record(distillation(steps=STEPS), 1)
        self.check_slices(trace, 1)
        self.check_arrows(trace, self.FORWARD)
        self.check_transfers(trace, "teacher/0 transfers", "hand over")

    def test_of_three_processes_is_one_file_with_arrows_between_them(self):
        trace = self.record(distillation(steps=STEPS), 3)
        self.check_slices(trace, 3)
        arrows = self.check_arrows(trace, self.FORWARD)
        self.assertTrue(any(start["pid"] != end["pid"] for start, end in arrows))
        self.check_transfers(trace, "teacher/0 transfers", "write")

    def test_shows_gradients_on_their_way_back(self):
        trace = self.record(split_model(), 2, transport__provider="shm")
        self.check_arrows(trace, {
            ("hidden", "trunk/0", "forward", "head/0", "forward + backward"),
            ("hidden", "head/0", "forward + backward", "trunk/0", "backward"),
        })


if __name__ == "__main__":
    unittest.main(verbosity=2)
