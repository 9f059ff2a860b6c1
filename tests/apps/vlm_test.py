#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Vision-language training: the command and its page, data with and without images, stages, policies, refusals."""

import json
import os
import re
import shutil
import struct
import sys
import unittest
import zlib
from pathlib import Path

from maestro_program import ENDLESS, Run, SystemTest, options_of

REPOSITORY = Path(__file__).resolve().parents[2]
EMOJI = REPOSITORY / "tests" / "data" / "emoji" / "llava_mixed.json"
SECTIONS = ("vision", "projector", "llm")
POLICIES = ("arrival", "bulk_synchronous", "wavefront")
STEPS = 5


def png(red, green, blue, side=16):
    """Returns the bytes of a single-coloured image."""
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    rows = (b"\0" + bytes((red, green, blue)) * side) * side
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 0)) + chunk(b"IEND", b"")


def sample(name, question, answer, *pictures):
    entry = {"id": name, "conversations": [{"from": "human", "value": "<image>\n" * len(pictures) + question},
                                           {"from": "gpt", "value": answer}]}
    return entry | ({"image": list(pictures)} if pictures else {})


def vision_language(**train):
    return {
        "name": "test", "app": "vision_language",
        "train": {"steps": STEPS, "global_batch": 8, "validation_samples": 8, "out": "out", **train},
        "data": {"kind": "llava", "path": "mixed.json", "validation_path": "mixed.json", "sequence": 48, "patch": 8,
                 "image_size": 16},
        "vision": {"layers": 1, "width": 16, "heads": 2, "patch": 8, "positions": "2d", "max_grid": 4,
                   "micro_batch_tokens": 8, "max_in_flight": 4, "devices": ["cpu:0"], "lr": 1e-3},
        "projector": {"decoder": "llm", "micro_batch_tokens": 8, "max_in_flight": 4, "devices": ["cpu:0"], "lr": 1e-3},
        "llm": {"layers": 1, "width": 32, "heads": 2, "vocabulary": 257, "positions": 48, "micro_batch": 2,
                "devices": ["cpu:1"], "lr": 1e-3},
    }


SMALL = {"train.global_batch": 8, "train.validation_samples": 20, "vision.layers": 1, "vision.width": 24,
         "llm.layers": 1, "llm.width": 32}


class VisionLanguageTest(SystemTest):
    def setUp(self):
        super().setUp()
        os.environ["MAESTRO_REPOSITORY"] = str(REPOSITORY)  # the command's job file is there
        images = self.folder / "images"
        images.mkdir()
        mixed = []
        for number, (name, colour) in enumerate({"red": (230, 20, 20), "green": (20, 190, 20), "blue": (20, 20, 230),
                                                 "gray": (99, 99, 99)}.items()):
            (images / f"{name}.png").write_bytes(png(*colour))
            for copy in range(6):
                mixed.append(sample(f"{name}{copy}", "Which?", name, f"{name}.png"))
                mixed.append(sample(f"sum{number}{copy}", f"{number} + {copy}?", str(number + copy)))
        mixed.append(sample("two", "Both?", "red, blue", "red.png", "blue.png"))
        self.write_data("mixed.json", mixed)
        self.mixed = mixed

    def write_data(self, name, entries):
        (self.folder / name).write_text(json.dumps(entries))

    def vlm(self, *options, settings=None):
        """Runs `maestro vlm` to its end, with the run's report."""
        run = Run(self.folder, ["vlm", *options, *options_of(settings or {})], self.folder / "runs/vlm/report.json")
        self.addCleanup(run.end)
        return run

    def sections_with_steps(self, finished):
        return {row["section"] for row in finished.report["steps"]}


class TheCommand(VisionLanguageTest):
    def test_draws_scenes_trains_and_writes_a_card(self):
        run = self.vlm("--set", "train.steps=4", settings=SMALL)
        finished = run.wait()
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertIn("exact match", finished.out)
        self.assertIn("runs/vlm/card.html", finished.out)
        card = (self.folder / "runs/vlm/card.html").read_text()
        self.assertIn("finished after step 4", card)
        self.assertIn("What ran when", card)
        self.check_report(finished.report)
        self.assertEqual(len(re.findall("<article", card)), 14)
        self.assertGreaterEqual(card.count("data:image/png;base64,"), 12)
        for pass_name in ("s0 p-forward", "s0 p-backward", "s1 p-forward", "s2 p-both", "s2 p-step"):
            self.assertIn(f'<rect class="{pass_name}"', card)
        self.assertIsNone(re.search(r"https?:|<script|<link|url\(", card))
        self.check_scenes()

    def check_report(self, report):
        self.assertGreaterEqual(report["validation"]["exact_match"], 0.0)
        self.assertLessEqual(report["validation"]["exact_match"], 1.0)
        self.assertGreater(report["validation"]["ce"], 0.0)
        self.assertEqual([row["step"] for row in report["scheduling"]], [1, 2, 3, 4])
        for row in report["scheduling"]:
            self.assertGreater(row["lower_bound_ms"], 0)
            self.assertGreaterEqual(row["makespan_ms"], row["lower_bound_ms"])
            for section in SECTIONS:
                self.assertGreater(row["utilization"][section], 0.0)
                self.assertLessEqual(row["utilization"][section], 1.0)

    def check_scenes(self):
        folder = self.folder / "runs/vlm/scenes"
        training, validation = (json.loads((folder / f"{name}.json").read_text()) for name in ("train", "validation"))
        self.assertGreater(sum("image" not in entry for entry in validation), 0)
        self.assertGreater(sum("image" in entry for entry in validation), 0)
        self.assertGreater(len(training), len(validation))

    def test_takes_conversations_of_ones_own(self):
        finished = self.vlm("--data", "mixed.json", "--validation", "mixed.json", "--shown", "6", "--seed", "3",
                            "--out", "mine",
                            settings=SMALL | {"train.steps": 2}).wait()
        self.assertEqual(finished.status, 0, finished.describe())
        page = (self.folder / "mine/vlm/card.html").read_text()
        self.assertEqual(page.count("<article"), 7)  # six samples with an image and one without
        self.assertIn("mixed.json", page)
        self.assertIn("seed = 3", page)
        self.assertFalse((self.folder / "mine/vlm/scenes").exists())

    def test_takes_conversations_without_any_picture(self):
        self.write_data("text.json", [entry for entry in self.mixed if "image" not in entry])
        finished = self.vlm("--data", "text.json", "--validation", "text.json", settings=SMALL | {"train.steps": 2}).wait()
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertEqual(self.sections_with_steps(finished), {"llm"})
        page = (self.folder / "runs/vlm/card.html").read_text()
        self.assertEqual(page.count("<img"), 0)
        self.assertEqual(page.count("<article"), 2)

    def test_reads_conversations_by_a_tokenizer(self):
        tokenizer = REPOSITORY / "tests/tokenizer/references/qwen2.json"
        finished = self.vlm("--data", "mixed.json", "--validation", "mixed.json",
                            settings=SMALL | {"train.steps": 2, "data.tokenizer": str(tokenizer)}).wait()
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertTrue((self.folder / "runs/vlm/card.html").exists())
        llm = self.folder / finished.report["checkpoint"] / "llm"
        self.assertEqual(json.loads((llm / "config.json").read_text())["vocab_size"], 702)
        shutil.copy(tokenizer, llm / "tokenizer.json")  # the default if it is next to the weights
        again = self.vlm("--data", "mixed.json", "--validation", "mixed.json", "--out", "again",
                         settings=SMALL | {"train.steps": 2, "llm.weights": str(llm)}).wait()
        self.assertEqual(again.status, 0, again.describe())
        self.assertTrue((self.folder / "again/vlm/card.html").exists())

    def test_leaves_a_tokenizer_beside_weights_of_the_vision_alone(self):
        options = ("--data", "mixed.json", "--validation", "mixed.json")
        made = self.vlm(*options, settings=SMALL | {"train.steps": 1}).wait()
        vision = self.folder / made.report["checkpoint"] / "vision"
        shutil.copy(REPOSITORY / "tests/tokenizer/references/qwen2.json", vision / "tokenizer.json")
        finished = self.vlm(*options, "--out", "again", settings=SMALL | {"train.steps": 1, "vision.weights": str(vision)}).wait()
        self.assertEqual(finished.status, 0, finished.describe())
        report = json.loads((self.folder / "again/vlm/report.json").read_text())
        config = self.folder / report["checkpoint"] / "llm/config.json"
        self.assertEqual(json.loads(config.read_text())["vocab_size"], 257, "bytes and the end of a turn")

    def test_tells_wrong_input_in_one_line_before_anything_starts(self):
        for options, wanted in ((("--data", "none.json"), "none.json"), (("--images", "images"), "--data"),
                                (("--data", "mixed.json", "--set", "train.checkpoint_at_end=false"),
                                 "checkpoint_at_end"),
                                (("--data", "mixed.json", "--set", "vision.layerz=1"), "layers")):
            with self.subTest(options):
                finished = self.vlm(*options).wait()
                self.assertEqual(finished.status, 2, finished.describe())
                self.assertEqual(len(finished.err.splitlines()), 1, finished.describe())
                self.assertIn(wanted, finished.err)

    def test_ends_in_order_at_ctrl_c(self):
        run = self.vlm("--data", "mixed.json", settings=SMALL | {"train.steps": ENDLESS})
        self.assertTrue(run.wait_for_text("step "), run.text)
        run.members()
        run.interrupt()
        finished = run.wait()
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertEqual(finished.error_lines(), [])
        self.assertTrue(finished.report["interrupted"])
        self.assertTrue((self.folder / finished.report["checkpoint"]).is_dir())
        self.assertFalse((self.folder / "runs/vlm/card.html").exists())
        self.assert_nothing_left(run)


class Rows(VisionLanguageTest):
    def test_as_llava_has_them_are_repaired_and_counted(self):
        human, gpt = ({"from": speaker, "value": "red"} for speaker in ("human", "gpt"))
        rows = {"greets": [gpt, human, gpt], "asks": [human, gpt, human],
                "system": [{"from": "system", "value": "Be brief."}, human, gpt], "bare": [human, gpt]}
        repaired = [{"id": name, "conversations": turns} for name, turns in rows.items()]
        repaired[-1]["image"] = "red.png"
        self.write_data("rows.json", [*self.mixed[:12], *repaired])
        finished = self.train(vision_language(), settings={"data.path": "rows.json", "train.steps": 1})
        for row, note in ((13, "answers before the first question are dropped in 1 row"),
                          (14, "the last question, without an answer, is cut in 1 row"),
                          (15, "the system text is kept in 1 row"),
                          (16, "images come before the first question in 1 row without a place for them")):
            self.assertIn(f"note: {note}, first the row at rows.json: row {row}\n", finished.out)

    def test_are_prepared_once(self):
        settings = {"train.steps": 1}
        self.assertIn("prepared 98 rows in out/data/prepared", self.train(vision_language(), settings=settings).out)
        self.assertNotIn("prepared 98 rows", self.train(vision_language(), "--fresh", settings=settings).out)
        self.assertTrue((self.folder / "out/data/prepared/data.json").exists())
        checked = self.call("check", self.write_job(vision_language()), "--fresh",
                            *options_of(settings | {"data.image_size": 8}))
        self.assertIn("prepared 98 rows in out/data/prepared", checked.out + checked.err)


class Pictures(VisionLanguageTest):
    def test_in_no_sample_leave_vision_alone(self):
        self.write_data("text.json", [entry for entry in self.mixed if "image" not in entry])
        finished = self.train(vision_language(), settings={"data.path": "text.json", "data.validation_path": "text.json"})
        self.assertEqual(self.sections_with_steps(finished), {"llm"})
        self.assertEqual(finished.report["last_step"], STEPS)

    def test_in_no_training_sample_but_in_validation_are_read(self):
        self.write_data("text.json", [entry for entry in self.mixed if "image" not in entry])
        self.write_data("pictures.json", [entry for entry in self.mixed if "image" in entry])
        settings = {"data.path": "text.json", "data.validation_path": "pictures.json"}
        finished = self.train(vision_language(), settings=settings)
        self.assertEqual(self.sections_with_steps(finished), {"llm"})
        self.assertGreater(finished.report["validation"]["ce"], 0.0)

    def test_in_some_steps_only_give_vision_rows_for_those(self):
        one = [sample("red", "Which?", "red", "red.png")]
        text = [entry for entry in self.mixed if "image" not in entry]
        self.write_data("rare.json", one + text[:23])  # three steps of eight samples; only one sample has an image
        settings = {"data.path": "rare.json", "train.steps": 3}
        finished = self.train(vision_language(), settings=settings)
        steps = {name: [row["step"] for row in finished.report["steps"] if row["section"] == name] for name in SECTIONS}
        self.assertEqual(steps["llm"], [1, 2, 3])
        self.assertEqual(len(steps["vision"]), 1)
        self.assertEqual(steps["projector"], steps["vision"])

    def test_of_the_emoji_data_set_train(self):
        job = vision_language()
        del job["data"]["validation_path"]  # then validation uses a part of the file itself
        settings = {"data.path": str(EMOJI), "data.sequence": 256, "llm.positions": 256, "data.image_size": 16,
                    "train.steps": 3}
        finished = self.train(job, settings=settings)
        self.assertEqual(self.sections_with_steps(finished), set(SECTIONS))

    def broken(self, keep):
        """Writes the data with one more image, of which only the first `keep` bytes exist. Returns settings."""
        (self.folder / "images/torn.png").write_bytes(png(1, 2, 3)[:keep])
        self.write_data("torn.json", [sample("torn-one", "Which?", "red", "torn.png"), *self.mixed[:15]])
        return {"data.path": "torn.json", "train.steps": 2}

    def test_that_are_broken_end_the_run_with_their_names(self):
        for keep in (20, 200):  # in the header, which is read at the start; in the pixels, which are read later
            with self.subTest(keep=keep):
                settings = self.broken(keep) | {"train.global_batch": 16}  # its first batch has all samples
                finished = self.start(vision_language(), settings=settings).wait()
                self.assertNotEqual(finished.status, 0)
                self.assertIn("torn.png", finished.err)
                if keep == 20:
                    self.assertIn("torn.json: row 1", finished.err)
                checked = self.call("check", self.write_job(vision_language()), "--fresh", *options_of(settings))
                self.assertEqual(checked.status, 2, checked.describe())
                self.assertEqual(checked.error_lines(), finished.error_lines())

    def test_that_are_broken_may_be_left_out_and_are_counted(self):
        settings = self.broken(20) | {"data.max_bad_samples": 5, "train.global_batch": 5, "train.steps": 3}
        finished = self.train(vision_language(), settings=settings)
        self.assertIn("1 bad rows left out", finished.report["plan"]["corpus"])
        settings = self.broken(200) | {"data.max_bad_samples": 5}
        finished = self.train(vision_language(), settings=settings)
        self.assertEqual(len(finished.report["samples"]["left_out"]), 1)
        self.assertIn("torn.png", finished.report["samples"]["left_out"][0])

    def test_that_are_all_broken_end_the_run_though_all_may_be_left_out(self):
        settings = self.broken(200) | {"data.max_bad_samples": 1000, "train.global_batch": 2}
        self.write_data("torn.json", [sample(f"torn{number}", "Which?", "red", "torn.png") for number in range(4)])
        finished = self.start(vision_language(), settings=settings).wait()
        self.assertEqual(finished.status, 1, finished.describe())
        self.assertEqual(len(finished.error_lines()), 1, finished.describe())
        self.assertIn("every training sample so far was left out", finished.err)
        checked = self.call("check", self.write_job(vision_language()), "--fresh",
                            *options_of(settings | {"train.global_batch": 8}))
        self.assertIn("every training sample so far was left out", checked.err, checked.describe())
        self.assertIn("torn.png", finished.err)
        self.assertEqual(list((self.folder / "out").glob("checkpoints/step-*")), [])

    def test_must_be_as_many_as_placeholders(self):
        entry = sample("uneven", "Which?", "red", "red.png", "blue.png")
        entry["image"] = "red.png"
        self.write_data("uneven.json", [entry, *self.mixed])
        finished = self.start(vision_language(), settings={"data.path": "uneven.json"}).wait()
        self.assertEqual(finished.status, 2, finished.describe())
        self.assertEqual(len(finished.err.splitlines()), 1, finished.describe())
        self.assertIn("uneven.json", finished.err)
        self.assertIn("uneven.json: row 1", finished.err)


class PositionTables(VisionLanguageTest):
    """Learned position embeddings, with the images' size or the size of given weights."""

    def learned(self, **data):
        job = vision_language()
        del job["vision"]["max_grid"]
        job["vision"]["positions"] = "learned"
        job["data"] |= data
        return job

    def config(self, run, section="vision"):
        return json.loads((self.folder / run.report["checkpoint"] / section / "config.json").read_text())

    def test_have_the_size_of_one_picture_and_load_as_a_siglips(self):
        finished = self.train(self.learned(), settings={"train.steps": 1})  # a sample with two images
        self.assertEqual(self.config(finished)["model_type"], "siglip_vision_model")
        self.assertEqual(self.config(finished)["image_size"], 16)
        self.assertEqual(self.config(finished, "projector")["model_type"], "maestro_projector")

    def test_that_siglip_does_not_have_are_written_under_a_name_of_their_own_and_read_again(self):
        first = self.train(vision_language(), settings={"train.steps": 1})
        self.assertEqual(self.config(first)["model_type"], "maestro_vision")
        weights = {f"{name}.weights": str(self.folder / first.report["checkpoint"] / name) for name in SECTIONS}
        again = self.train(vision_language(), settings=weights | {"train.steps": 1, "train.out": "again"})
        self.assertEqual(self.config(again), self.config(first))

    def test_of_weights_take_no_larger_picture_and_note_a_smaller_one(self):
        first = self.train(self.learned(), settings={"train.steps": 1})
        weights = {"vision.weights": str(self.folder / first.report["checkpoint"] / "vision"), "data.sequence": 96,
                   "llm.positions": 96}
        name = self.write_job(self.learned())
        for command in ("check", "train"):
            larger = self.call(command, name, *options_of(weights | {"data.image_size": 32, "train.out": "larger"}))
            self.assertEqual(larger.status, 2, larger.describe())
            self.assertEqual(len(larger.err.splitlines()), 1, larger.describe())
            self.assertIn("vision: the data's images have up to 4 x 4 patches, more than the position table's 2 x 2; "
                          "set data.image_size = 16 at most", larger.err)
            small = {"data.image_size": 8, "train.steps": 1, "train.out": "smaller"}
            smaller = self.call(command, name, *options_of(weights | small))
            self.assertEqual(smaller.status, 0, smaller.describe())
            self.assertIn("note: vision: images have up to 1 x 1 patches and take the first of the 2 x 2 entries of "
                          "the stored position table; data.image_size = 16 fills it", smaller.out + smaller.err)
            fitting = self.call(command, name, *options_of(weights | {"train.steps": 1, "train.out": "fitting"}))
            self.assertEqual(fitting.status, 0, fitting.describe())
            self.assertNotIn("note: vision", fitting.out + fitting.err)


class Stages(VisionLanguageTest):
    def weights(self, run, section):
        return self.folder / run.report["checkpoint"] / section

    def test_leave_frozen_sections_as_they_were(self):
        start = self.train(vision_language(), settings={"train.steps": 1, "train.out": "start"})
        for frozen in SECTIONS:
            with self.subTest(frozen):
                given = {f"{name}.weights": str(self.weights(start, name)) for name in SECTIONS}
                stage = self.train(vision_language(), settings=given | {f"{frozen}.trained": False, "train.out": frozen})
                self.assertFalse(self.weights(stage, frozen).exists())
                # Validating the frozen section's first weights with the others' last gives the stage's result.
                again = {f"{name}.weights": str(self.weights(stage, name)) for name in SECTIONS if name != frozen}
                settings = given | again | {f"{name}.lr": 0.0 for name in SECTIONS} | {"train.steps": 1}
                measured = self.train(vision_language(), settings=settings)
                self.assertEqual(measured.report["validation"]["ce"], stage.report["validation"]["ce"])
                self.assertNotEqual(stage.report["validation"]["ce"], start.report["validation"]["ce"])

    def test_need_one_trained_section(self):
        settings = {f"{name}.trained": False for name in SECTIONS}
        finished = self.start(vision_language(), settings=settings).wait()
        self.assertEqual(finished.status, 2, finished.describe())
        self.assertEqual(len(finished.err.splitlines()), 1, finished.describe())
        self.assertIn("trained = true", finished.err)


class Schedules(VisionLanguageTest):
    TOLERANCE = 1e-5  # sums over replicas are rounded in another order
    TWO = {f"{name}.replicas": 2 for name in SECTIONS} | {f"{name}.devices": ["cpu:0", "cpu:1"] for name in SECTIONS}

    def curve(self, *options, **settings):
        changes = {key.replace("__", "."): value for key, value in settings.items()}
        return self.train(vision_language(), *options, settings=changes).curve()

    def test_learn_the_same_under_every_policy_with_one_replica_or_two(self):
        expected = self.curve(schedule__policy="arrival")
        self.assertEqual({section for section, _ in expected}, set(SECTIONS))
        for policy in POLICIES:
            for replicas in ({}, self.TWO):
                with self.subTest(policy=policy, replicas=replicas):
                    found = self.train(vision_language(), settings=replicas | {"schedule.policy": policy}).curve()
                    self.check_close(expected, found)

    def check_close(self, expected, found):
        self.assertEqual(expected.keys(), found.keys())
        for key, values in expected.items():
            for wanted, value in zip(values, found[key], strict=True):
                if wanted is None:  # only llm has a loss
                    self.assertIsNone(value)
                else:
                    self.assertLessEqual(abs(wanted - value), self.TOLERANCE * abs(wanted), f"{key}")

    def test_are_bitwise_the_same_from_run_to_run(self):
        first = self.train(vision_language(), settings=self.TWO).curve()
        self.assertEqual(self.train(vision_language(), settings=self.TWO).curve(), first)

    def test_give_the_same_losses_in_three_processes(self):
        self.check_close(self.curve(), self.curve("--processes", 3))


if __name__ == "__main__":
    if len(os.sched_getaffinity(0)) < 2:
        sys.exit("these tests place sections on two cores, and only one may be used here")
    unittest.main()
