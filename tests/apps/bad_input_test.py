#!/usr/bin/env python3
"""Wrong input: one clear line on standard error, a non-zero status, and nothing has started. `check` finds the same."""

import os
import shutil
import socket
import unittest

from maestro_program import SystemTest, distillation, language_model, options_of

CORES = len(os.sched_getaffinity(0))


class Refusals(SystemTest):
    def refuse(self, arguments, *wanted):
        finished = self.call(*arguments)
        self.assertNotEqual(finished.status, 0, finished.describe())
        lines = finished.err.splitlines()
        self.assertEqual(len(lines), 1, finished.describe())
        self.assertTrue(lines[0].startswith("error: "), finished.describe())
        self.assertEqual(finished.out, "", "nothing may have started")
        for text in wanted:
            self.assertIn(text, lines[0])

    def refuse_job(self, job, *wanted, settings=None, options=()):
        """The same line from `train` and from `check`."""
        name = self.write_job(job)
        for command in ("train", "check"):
            with self.subTest(command):
                self.refuse([command, name, *options, *options_of(settings or {})], *wanted)


class WrongInput(Refusals):
    def test_a_misspelt_key_is_told_with_its_place_and_the_nearest_one(self):
        job = language_model()
        job["train"]["step"] = 3
        self.refuse_job(job, "job.toml:", "step", "did you mean 'steps'?")
        self.refuse_job(language_model(), "did you mean 'micro_batch'?", settings={"teacher.micro_bach": 2})

    def test_an_unknown_table_is_refused(self):
        job = language_model()
        job["techer"] = {"layers": 1}
        self.refuse_job(job, "techer", "did you mean 'teacher'?")

    def test_a_value_of_a_wrong_type_is_told_with_the_type_wanted(self):
        self.refuse_job(language_model(), "train.steps", "integer", settings={"train.steps": "many"})
        self.refuse_job(language_model(), "force_rma", settings={"transport.force_rma": 1})

    def test_a_value_out_of_range_is_refused(self):
        self.refuse_job(language_model(), "global_batch", settings={"train.global_batch": 0})
        self.refuse_job(language_model(), "heads", settings={"teacher.heads": 5})

    def test_text_that_is_no_toml_is_told_with_its_line(self):
        (self.folder / "job.toml").write_text('name = "x"\napp = language_model\n')
        self.refuse(["train", "job.toml"], "job.toml:2")

    def test_a_missing_job_file_is_refused(self):
        for command in ("train", "check"):
            self.refuse([command, "nowhere.toml"], "nowhere.toml", "No such file")

    def test_a_corpus_that_is_missing_empty_or_binary_is_refused(self):
        (self.folder / "empty.txt").touch()
        (self.folder / "binary.txt").write_bytes(bytes(range(256)) * 64)
        (self.folder / "hollow").mkdir()
        for path, wanted in (("gone.txt", "does not exist"), ("empty.txt", "is empty"), ("binary.txt", "not a text"),
                             ("hollow", "hollow")):
            with self.subTest(path):
                self.refuse_job(language_model(), path, wanted, settings={"data.path": path})

    def test_more_devices_than_there_are_are_refused(self):
        self.refuse_job(language_model(), "cpu:999", f"{CORES} cores", settings={"teacher.devices": ["cpu:999"]})
        many = {"teacher.replicas": CORES + 1, "train.global_batch": 4 * (CORES + 1)}
        self.refuse_job(language_model(), "teacher.replicas", settings=many)

    def test_a_batch_too_small_for_the_replicas_is_refused(self):
        settings = {"teacher.replicas": 3, "train.global_batch": 8}
        self.refuse_job(language_model(), "micro_batch", "3 replicas", settings=settings)

    def test_vocabularies_that_differ_by_more_than_padding_are_refused(self):
        self.refuse_job(distillation(), "vocabulary", "250", settings={"student.vocabulary": 250})
        self.refuse_job(distillation(), "vocabulary", "200", settings={"teacher.vocabulary": 200})

    def test_an_unknown_app_provider_or_section_type_is_refused(self):
        self.refuse_job(language_model(), "did you mean 'language_model'?", settings={"app": "langauge_model"})
        self.refuse_job(language_model(), "transport.provider", "smoke", settings={"transport.provider": "smoke"})
        self.refuse_job(language_model(), "did you mean 'decoder_lm'?", settings={"teacher.type": "decoder_ml"})

    def test_a_provider_that_this_machine_lacks_is_refused_with_those_it_has(self):
        settings = {"transport.provider": "efa"}
        self.refuse_job(distillation(), "efa", "available", "tcp", settings=settings, options=("--processes", 2))

    def test_an_unwritable_output_folder_is_refused(self):
        self.refuse_job(language_model(), "train.out", settings={"train.out": "corpus.txt/out"})

    def test_an_unwritable_report_or_trace_is_refused_before_training(self):
        name = self.write_job(language_model())
        self.refuse(["train", name, "--report", "corpus.txt/r.json"], "--report", "corpus.txt")
        self.refuse(["train", name, "--trace", "corpus.txt/t.json"], "--trace", "corpus.txt")
        self.refuse(["train", name, "--report", "."], "--report", "folder")
        self.assertFalse((self.folder / "out").exists())

    def test_a_busy_port_is_refused(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            options = ("--processes", 2)
            self.refuse_job(distillation(), "transport.port", str(port), settings={"transport.port": port},
                            options=options)

    def test_a_wrong_command_line_is_told_in_one_line(self):
        self.refuse(["trian", "job.toml"], "unknown command 'trian'", "did you mean 'train'?")
        self.refuse([], "train", "check", "distill")
        self.refuse(["train", "job.toml", "--reprot", "r.json"], "--reprot", "did you mean '--report'?")
        self.refuse(["train"], "job")
        self.refuse(["train", "job.toml", "--processes", "0"], "--processes")


class WrongState(Refusals):
    """Input that an earlier run made."""

    def setUp(self):
        super().setUp()
        self.train(language_model(steps=2))
        self.checkpoint = self.folder / "out" / "checkpoints" / "step-00000002"

    def test_another_seed_or_batch_than_the_checkpoints_is_refused(self):
        options = ("--resume", "out")
        self.refuse_job(language_model(), "train.seed", "1", settings={"train.seed": 2}, options=options)
        self.refuse_job(language_model(), "train.global_batch", "use 8", settings={"train.global_batch": 16},
                        options=options)

    def test_a_checkpoint_of_another_model_is_refused(self):
        self.refuse_job(language_model(), "teacher", settings={"teacher.layers": 3}, options=("--resume", "out"))
        self.refuse_job(distillation(), "student", options=("--resume", "out"))

    def test_nothing_to_resume_from_is_refused(self):
        self.refuse_job(language_model(), "nowhere", options=("--resume", "nowhere"))

    def test_a_truncated_or_altered_checkpoint_is_refused(self):
        for file in ("teacher/model.safetensors", "teacher/optimizer.safetensors", "checkpoint.json"):
            for damage in (self.truncate, self.alter):
                with self.subTest(file, damage=damage.__name__):
                    damaged = self.folder / "damaged"
                    shutil.copytree(self.checkpoint, damaged)
                    self.addCleanup(shutil.rmtree, damaged, ignore_errors=True)
                    damage(damaged / file)
                    self.refuse_job(language_model(), "damaged", options=("--resume", "damaged"))
                    shutil.rmtree(damaged)

    def test_truncated_weights_are_refused(self):
        weights = self.folder / "weights"
        shutil.copytree(self.checkpoint / "teacher", weights)
        self.truncate(weights / "model.safetensors")
        self.refuse_job(language_model(), "weights", settings={"teacher.weights": "weights"})

    def test_weights_of_another_model_are_refused(self):
        changes = {"teacher.weights": str(self.checkpoint / "teacher"), "teacher.layers": 3}
        self.refuse_job(language_model(), "n_layer is 2", settings=changes)

    @staticmethod
    def truncate(path):
        path.write_bytes(path.read_bytes()[:-9])

    @staticmethod
    def alter(path):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(bytes(content))


if __name__ == "__main__":
    unittest.main(verbosity=2)
