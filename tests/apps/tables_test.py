#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tables of hashed n-grams: a decoder learns with one, on every layout, after a kill, and in text that it continues."""

import signal
import unittest

from maestro_program import SystemTest, decoder, language_model
from model_folders import tensors
from recovery_test import EVERY, Recovers
from resume_test import Killed

EDGES = ["corpus.tokens -> memory.tokens", "corpus.tokens -> student.tokens", "corpus.targets -> student.targets",
         "memory.memory -> student.memory"]
TABLE = "ngram_embedding.weight"
DEVICES = ("--cpu-devices", 8)


def tables_job(student=None, memory=None, **train):
    job = language_model(**{"steps": 8, **train}) | {"app": "graph", "edges": EDGES}
    del job["teacher"]
    job["memory"] = {"type": "ngram_memory", "orders": 3, "rows": 501, "dim": 8, "micro_batch": 4, "lr": 0.05,
                     **(memory or {})}
    job["student"] = decoder(**{"type": "decoder_lm", "family": "llama", "memory_layer": 1, **(student or {})})
    return job


def with_plain(job):
    """Adds the same decoder without a memory."""
    job["plain"] = {key: value for key, value in job["student"].items() if key != "memory_layer"}
    job["edges"] = EDGES + ["corpus.tokens -> plain.tokens", "corpus.targets -> plain.targets"]
    return job


class Tables(SystemTest):
    def state(self, finished, section):
        folder = self.folder / finished.report["checkpoint"] / section
        return tensors(folder, "model.safetensors") | tensors(folder, "optimizer.safetensors")

    def test_lower_the_loss_of_a_decoder(self):
        job = with_plain(tables_job(steps=60, student={"lr": 3e-3}, memory={"lr": 0.1}))
        curve = self.train(job).curve("loss")
        last = {section: sum(curve[section, step][0] for step in range(51, 61)) / 10 for section in ("student", "plain")}
        self.assertLess(last["student"], last["plain"] - 0.02)

    def test_train_to_the_same_bits_in_any_number_of_processes(self):
        one = self.train(tables_job())
        for processes in (2, 3):
            with self.subTest(processes=processes):
                other = self.train(tables_job(), "--processes", processes)
                self.assertEqual(other.curve(), one.curve())
                for section in ("memory", "student"):
                    self.assertEqual(self.state(other, section), self.state(one, section))

    def test_train_the_same_in_every_layout_of_the_decoder(self):
        one = self.train(tables_job()).curve("grad_norm")
        layouts = {"micro_batch": {"micro_batch": 1}, "replicas": {"replicas": 2}, "context": {"context": 2},
                   "pipeline": {"pipeline": 2}, "recompute": {"recompute": 1}}
        for name, layout in layouts.items():
            with self.subTest(name):
                other = self.train(tables_job(layout), "--cpu-devices", 3).curve("grad_norm")
                self.assert_close(one, other, 1e-3)
        small = self.train(tables_job({"micro_batch": 1}, {"micro_batch": 1})).curve("grad_norm")
        self.assert_close(one, small, 1e-3)

    def losses(self, finished):
        return {key: value for key, value in finished.curve("loss").items() if key[0] == "student"}

    def test_train_as_one_in_several_replicas(self):
        one = self.train(tables_job(memory={"micro_batch": 2}))
        for replicas in (2, 4):
            several = self.train(tables_job(memory={"micro_batch": 2, "replicas": replicas}), *DEVICES)
            self.assert_close(one.curve("grad_norm"), several.curve("grad_norm"), 1e-5)
            self.assert_close(self.losses(one), self.losses(several), 1e-6)

    def test_average_the_steps_of_replicas(self):
        alone = {"micro_batch": 2, "merge": "average"}
        self.assertEqual(self.train(tables_job(memory=alone)).curve(), self.train(tables_job(memory={"micro_batch": 2})).curve())
        several = tables_job(memory={**alone, "replicas": 4})
        self.assertNotEqual(self.losses(self.train(several, *DEVICES)),
                            self.losses(self.train(several, *DEVICES, settings={"memory.merge": "sum"})))

    def test_train_replicas_to_the_same_bits_wherever_they_are(self):
        for merge in ("sum", "average"):
            job = tables_job(memory={"micro_batch": 2, "replicas": 4, "merge": merge})
            here = self.train(job, *DEVICES)
            for processes, settings in ((2, {}), (4, {}), (2, {"transport.provider": "tcp"}),
                                        (2, {"transport.chunk_kib": 4}), (1, {"transport.force_rma": True})):
                with self.subTest(merge=merge, processes=processes, **settings):
                    other = self.train(job, *DEVICES, "--processes", processes, settings=settings)
                    self.assertEqual(other.curve(), here.curve())
                    for section in ("memory", "student"):
                        self.assertEqual(self.state(other, section), self.state(here, section))

    def test_clip_by_the_norm_of_merged_rows(self):
        for clip in ({"train.clip": "global"}, {}):
            job = tables_job(memory={"micro_batch": 2, "clip_norm": 0.01})
            one = self.train(job, settings=clip)
            several = self.train(job, *DEVICES, settings={"memory.replicas": 4, **clip})
            self.assert_close(one.curve("grad_norm"), several.curve("grad_norm"), 1e-4)
            self.assert_close(self.losses(one), self.losses(several), 1e-6)

    def test_go_on_with_another_number_of_replicas(self):
        whole = self.losses(self.train(tables_job(memory={"micro_batch": 2})))
        for first, second in ((1, 4), (4, 1), (2, 4)):
            with self.subTest(first=first, second=second):
                job = tables_job(memory={"micro_batch": 2}, schedule_steps=8, out=f"from_{first}_to_{second}")
                self.train(job, *DEVICES, settings={"memory.replicas": first, "train.steps": 4})
                resumed = self.train(job, *DEVICES, "--resume", job["train"]["out"], settings={"memory.replicas": second})
                self.assertEqual(resumed.report["resumed_from"], 4)
                self.assert_close({key: loss for key, loss in whole.items() if key[1] > 4}, self.losses(resumed), 1e-6)

    def test_train_the_same_on_ranks_that_share_the_table(self):  # TZ-1
        for replicas in (1, 2):
            whole = self.train(tables_job(memory={"replicas": replicas}), *DEVICES)
            for sharding, ranks in (("row", 2), ("row", 3), ("table", 2), ("table", 4), ("column", 2)):
                with self.subTest(replicas=replicas, sharding=sharding, ranks=ranks):
                    job = tables_job(memory={"replicas": replicas, "tensor": ranks, "sharding": sharding})
                    cut = self.train(job, *DEVICES)
                    if sharding == "column":  # squares of a row are added up in parts
                        self.assert_close(whole.curve("grad_norm"), cut.curve("grad_norm"), 1e-4)
                        self.assert_close(self.losses(whole), self.losses(cut), 1e-6)
                    else:
                        self.assertEqual(self.losses(cut), self.losses(whole))
                        self.assertEqual(self.state(cut, "memory"), self.state(whole, "memory"))
                    if replicas == 2:
                        other = self.train(job, *DEVICES, "--processes", 2)
                        self.assertEqual(other.curve(), cut.curve())

    def test_go_on_under_another_sharding(self):
        whole = self.train(tables_job())
        layouts = {"one": {}, "row": {"tensor": 3}, "table": {"tensor": 2, "sharding": "table"},
                   "column": {"tensor": 4, "sharding": "column"}}
        for first, second in (("one", "row"), ("row", "table"), ("table", "one"), ("table", "column"), ("column", "row")):
            with self.subTest(first=first, second=second):
                out = f"{first}_{second}"
                begun = self.train(tables_job(memory=layouts[first], schedule_steps=8, out=out, steps=4), *DEVICES)
                again = tables_job(memory=layouts[second], schedule_steps=8, out=out)
                at_once = self.train(again, *DEVICES, "--resume", out, settings={"train.steps": 4})
                self.assertEqual(at_once.report["steps"], [])
                resumed = self.train(again, *DEVICES, "--resume", out)
                self.assertEqual(resumed.report["resumed_from"], 4)
                expected = {key: loss for key, loss in self.losses(whole).items() if key[1] > 4}
                if "column" in (first, second):
                    self.assert_close(expected, self.losses(resumed), 1e-6)
                else:
                    self.assertEqual(self.losses(resumed), expected)
                    self.assertEqual(self.state(resumed, "memory"), self.state(whole, "memory"))
                self.assertEqual(begun.report["resumed_from"], 0)

    def test_have_a_sum_of_squares_for_each_row_and_no_moments(self):  # TB-1
        state = self.state(self.train(tables_job()), "memory")
        self.assertEqual(set(state), {TABLE, f"row_sums.{TABLE}"})

    def test_move_with_the_norm_of_the_whole_model(self):
        job = tables_job()
        job["train"]["clip"] = "global"
        finished = self.train(job)
        norms = {step: norm for (section, step), (norm,) in finished.curve("grad_norm").items() if section == "memory"}
        self.assertEqual(len(norms), 8)

    def test_serve_a_student_that_learns_from_a_teacher(self):
        job = tables_job()
        job["teacher"] = {"type": "decoder_trunk", "trained": False, "layers": 2, "width": 48, "heads": 2,
                          "positions": 32, "micro_batch": 8, "weights": "random"}
        job["student"]["type"] = "distilled_decoder"
        job["edges"] = EDGES + ["corpus.tokens -> teacher.tokens", "teacher.hidden -> student.teacher_hidden"]
        bundled = {name: dict(value) if isinstance(value, dict) else value for name, value in job.items()
                   if name != "edges"} | {"app": "distillation"}
        del bundled["teacher"]["type"], bundled["student"]["type"], bundled["teacher"]["trained"]
        self.assertEqual(self.train(bundled).curve(), self.train(job).curve())

    def test_begin_from_the_folder_of_another_run(self):
        first = self.train(tables_job())
        folders = {name: self.folder / first.report["checkpoint"] / name for name in ("memory", "student")}
        job = tables_job({"weights": str(folders["student"])}, steps=3)
        job["memory"] |= {"weights": str(folders["memory"]), "trained": False}
        for key in ("orders", "rows", "dim", "lr"):
            del job["memory"][key]
        before = self.state(first, "memory")[TABLE]
        second = self.train(job, settings={"train.out": "second"})
        self.assertEqual({section for section, _ in second.curve()}, {"student"})
        for sharding in ("row", "table", "column"):
            job["memory"] |= {"tensor": 2, "sharding": sharding}
            cut = self.train(job, *DEVICES, settings={"train.out": sharding})
            self.assertEqual(cut.curve(), second.curve())
        self.assertEqual(tensors(folders["memory"], "model.safetensors")[TABLE], before)


class TablesAfterAKill(Killed):
    STEPS = 120
    EVERY = 10
    KILLS = 1

    def test_go_on_bitwise_in_one_process(self):
        self.check(tables_job(), 1)

    def test_go_on_bitwise_in_two_processes(self):
        self.check(tables_job(), 2)


class ReplicasAfterAKill(Killed):
    STEPS = 120
    EVERY = 10
    KILLS = 1
    OPTIONS = DEVICES

    def test_go_on_bitwise_in_two_processes(self):
        self.check(tables_job(memory={"micro_batch": 2, "replicas": 4}), 2)


class ALostReplica(Recovers):
    def test_is_started_again(self):
        job = tables_job(memory={"micro_batch": 2, "replicas": 4}, steps=160, checkpoint_every=EVERY, recover="restart")
        self.lose(job, DEVICES, [(1, signal.SIGKILL, EVERY)])


class Texts(SystemTest):
    PROMPTS = ("--prompt", "The old ", "--prompt", "A", "--max-tokens", 12, "--json", "--log-probabilities")

    def test_are_continued_with_the_memory_and_only_with_it(self):
        trained = self.train(with_plain(tables_job(steps=30, student={"lr": 3e-3}, memory={"lr": 0.1})))
        models = self.folder / "out" / "models"
        decoder_folder, memory = models / "student", models / "memory"
        self.assertTrue((decoder_folder / "memory.safetensors").exists())
        names = tensors(decoder_folder, "model.safetensors")
        self.assertFalse([name for name in names if name.startswith("memory.")], "another program loads the rest")
        answer = self.call("generate", decoder_folder, "--memory", memory, *self.PROMPTS)
        self.assertEqual(answer.status, 0, answer.describe())
        self.assertEqual(len(answer.out.splitlines()), 2)
        # The folders of a checkpoint serve as well, and one slot has the bits of several.
        checkpoint = self.folder / trained.report["checkpoint"]
        again = self.call("generate", checkpoint / "student", "--memory", checkpoint / "memory", *self.PROMPTS,
                          "--slots", 1, "--tokenizer", "bytes")
        self.assertEqual(again.out, answer.out)
        self.assert_refused("the decoder reads a memory of 32 columns; give its folder (generate --memory DIR)",
                            "generate", decoder_folder, *self.PROMPTS)
        self.assert_refused("the decoder reads no memory; leave --memory out", "generate", models / "plain", "--memory",
                            memory, *self.PROMPTS)
        self.assert_refused("model_type is not \"ngram_memory\"; name the folder of a memory", "generate",
                            decoder_folder, "--memory", models / "plain", *self.PROMPTS)


class Refusals(SystemTest):
    def refused(self, wanted, student=None, memory=None, edges=None, **more):
        job = tables_job(student, memory) | more
        if edges is not None:
            job["edges"] = edges
        self.write_job(job)
        self.assert_refused(wanted, "check", "job.toml")

    def test_name_the_key_and_the_nearest_that_fits(self):
        self.refused("memory.order: unknown key; did you mean 'orders'?", memory={"order": 3})
        self.refused("memory.orders: must be from 2 to 16, got 1", memory={"orders": 1})
        self.refused("memory.rule: \"adamw\" is not one of row_adagrad", memory={"rule": "adamw"})
        self.refused("memory.weight_decay: is without effect: rows are stepped by row_adagrad; leave it out",
                     memory={"weight_decay": 0.1})
        self.refused("memory.vocabulary: 100 is smaller than the corpus' 256 tokens; set it to 256 or more",
                     memory={"vocabulary": 100})
        self.refused("memory.rows: 1000000000 for each of 4 hashes is too many", memory={"rows": 1_000_000_000})
        self.refused("student.memory_layer: 2 is not a layer: the decoder has 2 layers; the nearest is 1", {"memory_layer": 2})
        self.refused("needs a section 'memry' of type \"ngram_memory\"; the nearest is 'memory'", {"memory": "memry"})

    def test_name_layouts_that_a_table_lacks(self):
        self.refused("memory.zero: is without effect: gradients of rows are sent in f32", memory={"zero": True})
        self.refused("memory.gradient_wire: is without effect: gradients of rows are sent in f32",
                     memory={"replicas": 2, "micro_batch": 2, "gradient_wire": "bf16"})
        self.refused("memory.merge: \"mean\" is not one of sum, average", memory={"merge": "mean"})
        self.refused("memory.context = 2: a table is cut over tensor ranks; leave context at 1", memory={"context": 2})
        self.refused("memory.tensor = 3: cannot divide the 4 hashes; the nearest is 2",
                     memory={"tensor": 3, "sharding": "table"})
        self.refused("memory.tensor = 3: cannot divide the 8 columns of a row; the nearest is 2",
                     memory={"tensor": 3, "sharding": "column"})
        self.refused("memory.sharding: \"rows\" is not one of row, table, column", memory={"sharding": "rows"})
        self.refused("student.tensor = 2: a decoder with memory_layer works on whole rows; leave tensor at 1",
                     {"tensor": 2})
        self.refused("student.lora: adapters of a decoder with memory_layer are not supported",
                     {"lora": {"rank": 2}, "weights": "random"})

    def test_name_ports_that_are_not_connected(self):
        self.refused("input student.memory (fp32, 32 columns) is not connected", edges=EDGES[:3])
        job = tables_job()
        del job["student"]["memory_layer"]
        self.write_job(job)
        self.assert_refused("student", "check", "job.toml")


if __name__ == "__main__":
    unittest.main()
