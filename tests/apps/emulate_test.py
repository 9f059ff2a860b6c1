# SPDX-License-Identifier: Apache-2.0
"""A workload file run by real actors on emulated devices."""
import json
import pathlib
import signal
import subprocess
import tempfile
import unittest

from maestro_program import PATIENCE_S, PROGRAM, undisturbed, without_times


def workload(llm=6, vision=2, samples=36, stretch=1):
    return {"sections": [{"name": "vision", "replicas": vision, "mode": "forward_backward", "max_in_flight": 3},
                         {"name": "llm", "replicas": llm, "mode": "forward_backward", "max_in_flight": 1}],
            "edges": [{"from": "vision", "to": "llm", "slots": 2, "transfer_ms": 0}],
            "samples": [{"id": at, "forward_ms": {"llm": 6 * stretch, **({"vision": 4 * stretch} if at % 4 == 0 else {})},
                         "backward_ms": {"llm": 12 * stretch, **({"vision": 8 * stretch} if at % 4 == 0 else {})}}
                        for at in range(samples)]}


class Emulation(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_workload(self, content, *arguments):
        file = self.folder / "workload.json"
        file.write_text(json.dumps(content))
        return subprocess.run([str(PROGRAM), "emulate", str(file), *arguments], capture_output=True, text=True,
                              timeout=PATIENCE_S)

    def answer(self, content, *arguments):
        done = self.run_workload(content, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout.strip().splitlines()[-1])

    @undisturbed
    def test_comes_near_the_plan_under_every_policy(self):
        for policy in ("wavefront", "arrival", "bulk_synchronous"):
            answer = self.answer(workload(stretch=self.stretch), "--policy", policy, "--steps", "4")
            self.assertEqual(answer["steps"], 4)
            self.assertEqual(answer["tokens"], 4 * (36 + 9))
            # Emulated passes never take less time than they should; the excess depends on the machine and the runtime.
            self.assertLessEqual(answer["share_of_plan"], 1.3 if policy == "wavefront" else 3)
            self.assertGreater(answer["share_of_plan"], 0.5)

    def test_is_rehearsed_in_virtual_time(self):
        content = workload(llm=4, vision=1)
        work = sum(sample["forward_ms"]["llm"] + sample["backward_ms"]["llm"] for sample in content["samples"]) / 4
        answer = self.answer(content, "--rehearse", "--steps", "6")
        self.assertEqual(answer["steps"], 4)
        self.assertGreaterEqual(answer["step_ms"], work - 1e-6)
        self.assertLess(answer["step_ms"], 1.15 * work)
        self.assertEqual(answer, self.answer(content, "--rehearse", "--steps", "6"))
        free = self.answer(content, "--rehearse", "--free", "vision")
        self.assertEqual(free["sections"]["vision"]["passes"], 0)
        self.assertLessEqual(free["step_ms"], answer["step_ms"] + 1e-6)
        wider = self.answer(content, "--rehearse", "--set", "llm.replicas=6")
        self.assertLess(wider["step_ms"], answer["step_ms"])
        self.assertGreaterEqual(wider["step_ms"], work * 4 / 6 - 1e-6)
        slower = self.answer(content, "--rehearse", "--constant-ms", "llm=9")  # applies to forward and backward passes
        self.assertGreaterEqual(slower["step_ms"], work + 36 * 18 / 4 - 1e-6)

    def test_interleaved_stages_take_the_time_of_theory(self):
        """Theory (Narayanan et al. 2021): P devices and m micro-batches take 1 + (P - 1) / (K m) with K chunks."""
        for devices, batches, chunks in ((4, 8, 2), (8, 16, 2), (4, 8, 4)):
            stages = devices * chunks
            names = [f"stage{at}" for at in range(stages)]
            content = {"sections": [{"name": name, "replicas": 1, "mode": "forward_backward", "devices": [at % devices],
                                     "max_in_flight": min(64, 2 * stages - at)} for at, name in enumerate(names)],
                       "edges": [{"from": first, "to": then, "slots": 64, "transfer_ms": 0}
                                 for first, then in zip(names, names[1:])],
                       "samples": [{"id": at, "forward_ms": {name: 4 for name in names},
                                    "backward_ms": {name: 8 for name in names}} for at in range(batches)]}
            with self.subTest(devices=devices, micro_batches=batches, chunks=chunks):
                period = self.answer(content, "--rehearse", "--steps", "8")["step_ms"] / (12 * chunks * batches)
                self.assertAlmostEqual(period, 1 + (devices - 1) / (chunks * batches), delta=0.002)

    @undisturbed
    def test_replicas_of_unequal_speeds_share_out_the_samples(self):
        content = workload(llm=2, vision=1, stretch=self.stretch)
        content["sections"][1]["speeds"] = [1, 0.5]
        work = 36 * 18 * self.stretch
        answer = self.answer(content, "--rehearse", "--steps", "6")
        self.assertGreaterEqual(answer["step_ms"], work / 1.5 - 1e-6)
        self.assertLess(answer["step_ms"], 1.1 * work / 1.5)
        ran = self.answer(content, "--steps", "3")
        self.assertGreaterEqual(ran["run_ms"], 0.99 * 3 * work / 1.5)
        self.assertLess(ran["run_ms"], 1.3 * 3 * work / 1.5)
        content["sections"][1]["speeds"] = [1]
        done = self.run_workload(content)
        self.assertEqual(done.returncode, 2)
        self.assertIn("speeds: one speed per replica: 1 for 2 replicas", done.stderr)

    @undisturbed
    def test_modalities_may_have_samples_of_their_own(self):
        content = workload(llm=2, vision=1, stretch=self.stretch)
        content["sections"].append({"name": "audio", "replicas": 1, "mode": "forward_backward", "max_in_flight": 3})
        content["edges"].append({"from": "audio", "to": "llm", "slots": 4})
        for sample in content["samples"]:
            for times, ms in (("forward_ms", 2), ("backward_ms", 4)):
                if sample["id"] % 3 == 0:
                    sample[times]["audio"] = ms * self.stretch
        entered = {tuple(sorted(sample["forward_ms"])) for sample in content["samples"]}
        self.assertEqual(len(entered), 4, "with and without either modality")
        work = sum(sample[key]["llm"] for sample in content["samples"] for key in ("forward_ms", "backward_ms"))
        rehearsed = self.answer(content, "--rehearse", "--steps", "6")
        self.assertGreaterEqual(rehearsed["step_ms"], work / 2 - 1e-6)
        self.assertLess(rehearsed["step_ms"], 1.3 * work / 2)
        ran = self.answer(content, "--steps", "3")
        passes = sum(len(sample["forward_ms"]) for sample in content["samples"])
        self.assertEqual(ran["tokens"], 3 * passes)
        self.assertGreaterEqual(ran["run_ms"], 0.99 * 3 * work / 2)
        self.assertLess(ran["run_ms"], 1.4 * 3 * work / 2)

    def test_unequal_slots_of_edges_are_named(self):
        edges = [{"from": "a", "to": "b", "slots": 2}, {"from": "a", "to": "c", "slots": 5}]
        sections = [{"name": name, "replicas": 1, "mode": "forward_backward"} for name in "abc"]
        samples = [{"id": 0, "forward_ms": dict.fromkeys("abc", 1), "backward_ms": dict.fromkeys("abc", 1)}]
        for more, line in ((5, "have 2 to 5 slots; the emulated job gives each 5"), (2, None)):
            edges[1]["slots"] = more
            done = self.run_workload({"sections": sections, "edges": edges, "samples": samples}, "--rehearse")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(line, done.stderr) if line else self.assertNotIn("slots", done.stderr)

    def test_a_rehearsal_refuses_unknown_names(self):
        for arguments, error in ((["--rehearse", "--free", "visio"], "did you mean vision?"),
                                 (["--rehearse", "--constant-ms", "llm=x"], "write a section and milliseconds"),
                                 (["--rehearse", "--constant-ms", "llm"], "write a section and milliseconds"),
                                 (["--rehearse", "--steps", "3"], "steps or more"),
                                 (["--free", "vision"], "--rehearse"),
                                 (["--rehearse", "--set", "vison.replicas=2"], "vison")):
            done = self.run_workload(workload(), *arguments)
            self.assertEqual((done.returncode, len(done.stderr.strip().splitlines())), (2, 1), done.stderr)
            self.assertIn(error, done.stderr)

    @undisturbed
    def test_the_devices_of_several_processes_work_together(self):
        answer = self.answer(workload(stretch=self.stretch), "--steps", "3", "--processes", "3")
        self.assertEqual(answer["steps"], 3)
        self.assertGreater(answer["share_of_plan"], 0.4)

    @undisturbed
    def test_lanes_with_the_same_device_number_take_turns_on_it(self):
        content = workload(llm=2, vision=3, stretch=self.stretch)
        content["sections"][0]["devices"] = [7, 0, 7]
        content["sections"][1]["devices"] = [0, 7]
        work = sum(sum(sample[key].values()) for sample in content["samples"] for key in ("forward_ms", "backward_ms"))
        steps = 3
        for processes in ("1", "3"):
            answer = self.answer(content, "--steps", str(steps), "--processes", processes)
            self.assertGreaterEqual(answer["run_ms"], 0.99 * steps * work / 2)
            self.assertLess(answer["run_ms"], 1.4 * steps * work / 2)
        del content["sections"][0]["devices"], content["sections"][1]["devices"]
        self.assertLess(self.answer(content, "--steps", str(steps))["run_ms"], 0.99 * steps * work / 2)

    @undisturbed
    def test_a_lane_of_several_devices_occupies_them_together(self):
        content = workload(llm=2, vision=2, stretch=self.stretch)
        content["sections"][0]["devices"] = [0, 1]
        # Vision and the first lane of the language model take turns on devices 0 and 1.
        lanes = {"vision": 36 / 4 * 12 / 2 * self.stretch, "llm": 36 * 18 * self.stretch}
        least = (lanes["vision"] + lanes["llm"]) / 2
        for devices in ([[0, 1], [2, 3]], [[0, 1], [2]]):
            with self.subTest(devices=devices):
                content["sections"][1]["devices"] = devices
                answer = self.answer(content, "--steps", "3")
                self.assertGreaterEqual(answer["run_ms"], 0.99 * 3 * least)
                self.assertLess(answer["run_ms"], 1.4 * 3 * least)

    @undisturbed
    def test_frozen_sections_and_bounds_may_be_missing(self):
        content = workload(stretch=self.stretch)
        content["sections"][0]["mode"] = "forward_only"
        del content["sections"][0]["max_in_flight"], content["edges"][0]["slots"]
        for sample in content["samples"]:
            sample["backward_ms"].pop("vision", None)
        self.assertGreater(self.answer(content, "--steps", "2")["share_of_plan"], 0.4)

    @undisturbed
    def test_a_trace_is_rehearsed_with_changes(self):
        trace = self.folder / "trace.json"
        content = workload(llm=2, vision=1, stretch=self.stretch)
        ran = self.answer(content, "--steps", "8", "--trace", str(trace))

        def what_if(*changes):
            done = subprocess.run([str(PROGRAM), "what-if", str(trace), "--json", *changes], capture_output=True, text=True,
                                  timeout=PATIENCE_S)
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout)

        replay = what_if()["replay"]["step_ms"]
        self.assertLess(abs(replay - ran["run_ms"] / 8), 0.15 * replay)
        wider = what_if("--set", "llm.replicas=4")["changed"]["step_ms"]
        self.assertLess(wider, 0.7 * replay)
        (self.folder / "workload.json").unlink()
        done = subprocess.run([str(PROGRAM), "what-if", str(trace)], capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertEqual((done.returncode, len(done.stderr.strip().splitlines())), (2, 1), done.stderr)
        self.assertIn("workload.json", done.stderr)

    def test_a_section_cannot_have_the_name_of_a_table(self):
        content = workload()
        content["sections"][0]["name"] = content["edges"][0]["from"] = "workload"
        for sample in content["samples"]:
            for times in (sample["forward_ms"], sample["backward_ms"]):
                if "vision" in times:
                    times["workload"] = times.pop("vision")
        done = self.run_workload(content)
        self.assertEqual((done.returncode, len(done.stderr.strip().splitlines())), (2, 1), done.stderr)
        self.assertIn("section 'workload': the emulated job has a table of this name", done.stderr)

    def test_ctrl_c_ends_it_after_the_step(self):
        file = self.folder / "workload.json"
        file.write_text(json.dumps(workload()))
        run = subprocess.Popen([str(PROGRAM), "emulate", str(file), "--steps", "1000"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
        for line in run.stderr:  # the first progress line: the run has started
            if without_times(line).startswith("step"):
                break
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=PATIENCE_S)
        self.assertEqual(run.returncode, 0, err)
        self.assertNotIn("checkpoint", err)
        self.assertLess(json.loads(out.strip().splitlines()[-1])["steps"], 1000)

    def test_an_unknown_policy_is_refused_with_the_nearest_one(self):
        done = self.run_workload(workload(), "--policy", "wavefrnt")
        self.assertEqual(done.returncode, 2)
        self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
        self.assertIn("wavefront", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
