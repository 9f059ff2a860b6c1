#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs with [[stages]]: like runs one after another, stopped, killed and resumed in each stage, in several processes."""

import json
import os
import shutil
import signal
import unittest

from maestro_program import SystemTest, free_port
from resume_test import steps_of_checkpoints
from vlm_test import png, sample, vision_language

FIRST, SECOND = 3, 4
STEPS = FIRST + SECOND


def staged(first=FIRST, second=SECOND, rate=2e-3, **train):
    """Returns a job that trains its projector, then projector and language model."""
    job = vision_language(validation_samples=4, **train)
    del job["train"]["steps"]
    job["vision"] |= {"weights": "random", "trained": False}
    job["projector"] |= {"weights": "random", "warmup_steps": 2}
    job["llm"] |= {"weights": "random", "warmup_steps": 2}
    job["stages"] = [{"steps": first, "train": ["projector"], "lr": {"projector": rate}},
                     {"steps": second, "train": ["projector", "llm"]}]
    return job


class Stages(SystemTest):
    def setUp(self):
        super().setUp()
        (self.folder / "images").mkdir()
        for name, colour in (("red", (200, 0, 0)), ("blue", (0, 0, 200))):
            (self.folder / "images" / f"{name}.png").write_bytes(png(*colour))
        self.write_rows([sample(f"{at}", f"Which colour, {at}?", "red" if at % 2 else "blue", f"{'red' if at % 2 else 'blue'}.png")
                         for at in range(24)])

    def write_rows(self, rows):
        (self.folder / "mixed.json").write_text(json.dumps(rows))

    def files(self, out, step=STEPS, sections=("projector", "llm"), names=("model.safetensors", "optimizer.safetensors")):
        folder = self.folder / out / f"checkpoints/step-{step:08d}"
        return {(section, name): (folder / section / name).read_bytes() for section in sections for name in names}

    def manifest(self, out, step):
        return json.loads((self.folder / out / f"checkpoints/step-{step:08d}/checkpoint.json").read_text())

    def events(self, out):
        return [json.loads(line) for line in (self.folder / out / "record/events.jsonl").read_text().splitlines()]

    def test_equal_two_runs_with_weights_handed_over(self):  # ST-J1
        # Equal samples, as the second run begins again with the first.
        self.write_rows([sample(str(at), "Which colour?", "red", "red.png") for at in range(24)])
        both = self.train(staged(), settings={"train.out": "both"})
        alone = staged()
        del alone["stages"]
        first = {**alone, "projector": {**alone["projector"], "lr": 2e-3}, "llm": {**alone["llm"], "trained": False}}
        one = self.train(first, settings={"train.out": "one", "train.steps": FIRST})
        handed = self.folder / f"one/checkpoints/step-{FIRST:08d}/projector"
        second = {**alone, "projector": {**alone["projector"], "weights": str(handed)}}
        two = self.train(second, settings={"train.out": "two", "train.steps": SECOND})
        expected = {key: value for key, value in one.curve("loss", "grad_norm", "lr").items()}
        expected |= {(section, FIRST + step): value for (section, step), value in two.curve("loss", "grad_norm", "lr").items()}
        self.assertEqual(both.curve("loss", "grad_norm", "lr"), expected)
        self.assertEqual(self.files("both"), self.files("two", SECOND))
        self.assertEqual(self.files("both", FIRST, ("projector",)), self.files("one", FIRST, ("projector",)))

    def test_go_on_with_the_next_samples_and_one_record(self):
        both = self.train(staged(), settings={"train.out": "both"})
        handed = self.folder / f"both/checkpoints/step-{FIRST:08d}/projector"
        kept = self.folder / "projector"
        shutil.copytree(handed, kept)
        job = staged(rate=0.0)  # a first stage that learns nothing, then the same samples
        job["projector"]["weights"] = str(kept)
        again = self.train(job, settings={"train.out": "again"})
        self.assertEqual(again.curve(after=FIRST), both.curve(after=FIRST))
        self.assertEqual(self.files("again"), self.files("both"))
        self.assertEqual([self.manifest("both", step)["stage"] for step in (FIRST, STEPS)], [1, 2])
        self.assertEqual(self.manifest("both", STEPS)["data_position"], 8 * STEPS)
        events = self.events("both")
        self.assertEqual([event["event"] for event in events if event["event"] in ("began", "stage_finished", "finished")],
                         ["began", "stage_finished", "began", "finished"])
        self.assertEqual([event["first_step"] for event in events if event["event"] == "began"], [1, FIRST + 1])
        self.assertEqual(both.report["last_step"], STEPS)
        self.assertIn(f"stage 2 of 2: steps {FIRST + 1} to {STEPS}, trains projector, llm", both.out + both.err)
        self.assertTrue((self.folder / "both/models").is_dir())

    def test_pass_together_in_several_processes(self):
        alone = self.train(staged(), settings={"train.out": "alone"})
        for processes in (2, 3):
            several = self.train(staged(), "--processes", processes, settings={"train.out": f"of{processes}"})
            self.assertEqual(several.curve(), alone.curve())
            self.assertEqual(self.files(f"of{processes}"), self.files("alone"))

    def test_pass_together_in_processes_that_rank_0_has_not_started(self):
        alone = self.train(staged(), settings={"train.out": "alone"})
        port = free_port()
        runs = [self.start(staged(), settings={"train.out": "joined"}, variables={
            "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}) for rank in range(2)]
        finished = [run.wait() for run in runs]
        self.assertEqual([one.status for one in finished], [0, 0], [one.describe() for one in finished])
        self.assertEqual(finished[0].curve(), alone.curve())
        self.assertEqual(self.files("joined"), self.files("alone"))

    def test_go_on_after_a_stop_in_each_stage(self):
        whole = self.train(staged(), settings={"train.out": "whole"})
        for stop in (1, FIRST, FIRST + 2):
            out = {"train.out": f"stopped{stop}"}
            held = self.start_held(staged(), settings=out, after=stop)
            held.wait_for_text(f"paused after step {stop}")
            held.interrupt()
            finished = held.wait()
            self.assertEqual(finished.status, 0, finished.describe())
            resumed = self.train(staged(), "--resume", f"stopped{stop}", settings=out)
            self.assertEqual(resumed.curve(), whole.curve(after=resumed.report["resumed_from"]))
            self.assertEqual(self.files(f"stopped{stop}"), self.files("whole"))

    def test_go_on_after_a_kill_in_each_stage(self):
        settings = {"train.checkpoint_every": 2}
        long = {"first": 40, "second": 60}
        whole = self.train(staged(**long), settings={**settings, "train.out": "whole"})
        for moment in (10, 60):
            run = self.start_held(staged(**long), "--processes", 2, after=moment + 5,
                                  settings={**settings, "train.out": f"killed{moment}"})
            reached = lambda: max(steps_of_checkpoints(self.folder / f"killed{moment}"), default=0) >= moment  # noqa: B023, E731
            self.assertTrue(run.wait_for(reached), run.text)
            run.end()
            resumed = self.train(staged(**long), "--processes", 2, "--resume", f"killed{moment}",
                                 settings={**settings, "train.out": f"killed{moment}"})
            self.assertEqual(resumed.curve(), whole.curve(after=resumed.report["resumed_from"]))

    def test_go_on_after_the_loss_of_a_process_in_each_stage(self):
        long = {"first": 40, "second": 60}
        whole = self.train(staged(**long), settings={"train.out": "whole"})
        for moment in (10, 60):
            out = {"train.checkpoint_every": 5, "train.out": f"lost{moment}"}
            run = self.start_held(staged(**long), "--processes", 2, settings=out, after=moment)
            self.assertTrue(run.wait_for_text(f"paused after step {moment}"), run.text)
            os.kill(run.members()[1], signal.SIGKILL)
            self.assertTrue(run.wait_for_text("starting again"), run.text)
            finished = run.wait()
            self.assertEqual(finished.status, 0, finished.describe())
            self.assertEqual(finished.report["last_step"], 100)
            self.assertEqual(finished.curve(), whole.curve())

    def test_that_do_not_fit_are_refused_before_the_run(self):
        def check(wanted, **changes):
            job = staged()
            for table, keys in changes.items():
                if table == "second":
                    job["stages"][1] |= keys
                else:
                    job[table] |= keys
            self.assert_refused(wanted, "check", self.write_job(job))

        check('"lmm" is not a section; the nearest is "llm"', second={"train": ["projector", "lmm"]})
        check('lacks "projector", which the stage before trains', second={"train": ["llm"]})
        check("is 9, but the [[stages]] have 7 steps", train={"steps": 9})
        check("does not apply to a job with [[stages]]", train={"epochs": 1.0})
        check("stages[1].warmup", second={"warmup": 3})
        checked = self.call("check", self.write_job(staged()))
        self.assertEqual(checked.status, 0, checked.describe())
        self.assertIn(f"stage 1 of 2: steps 1 to {FIRST}, trains projector (lr 0.002)", checked.out + checked.err)
        self.train(staged(), settings={"train.out": "out"})
        changed = staged(first=FIRST - 1)
        finished = self.start(changed, "--resume", f"out/checkpoints/step-{FIRST:08d}").wait()
        self.assertEqual(finished.status, 2, finished.describe())
        self.assertIn(f"is of step {FIRST} in stage 1 of its run, which is in stage 2 here", finished.err)


if __name__ == "__main__":
    unittest.main()
