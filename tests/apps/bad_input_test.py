#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Wrong input: a clear line on standard error, a non-zero status, and nothing is started. `check` reports the same."""

import os
import random
import re
import shutil
import socket
import subprocess
import unittest
from pathlib import Path

from maestro_program import PROGRAM, Run, SystemTest, distillation, language_model, options_of

GPT2 = """{"model_type": "gpt2", "n_layer": 2, "n_embd": 32, "n_head": 2, "n_positions": 32, "vocab_size": 256,
"initializer_range": 0.02, "layer_norm_epsilon": 1e-5}"""
WORKLOAD = """{"sections": [{"name": "vision", "replicas": 2, "mode": "forward_only", "devices": [0, 1]},
{"name": "llm", "replicas": 1, "mode": "forward_backward", "max_in_flight": 2}],
"edges": [{"from": "vision", "to": "llm", "slots": 2, "transfer_ms": 0.5}],
"samples": [{"id": 7, "forward_ms": {"vision": 10.0, "llm": 8.0}, "backward_ms": {"llm": 16.0}}]}"""
CORES = len(os.sched_getaffinity(0))


def mutated(rng, data):
    """Returns `data` cut, with a flipped bit, with another number, or with deep nesting in place of a number."""
    at = rng.randrange(len(data))
    number = rng.choice(list(re.finditer(rb"\d+", data)))
    value = rng.choice((b"-1", b"1e999", b"9" * 400, b'"\\u001b[2J"', b"[" * 100_000))
    return rng.choice((data[:at], data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1:],
                       data[:number.start()] + value + data[number.end():]))


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
        """Expects the same line from `train` and from `check`."""
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

    def test_a_number_of_an_option_is_refused_with_its_bounds(self):
        beyond = str(2**64)  # CLI11 reads it as the largest number, and 010 as eight
        for text in ("nope", "0", "-1", "1.5", "010", beyond):
            self.refuse(["distill", f"--steps={text}"], f"--steps: '{text}' is not a whole number from 1 on")
        self.refuse(["keys", "folder", "--days=36501"], "--days: '36501' is not a whole number from 1 to 36500")
        for text in ("nope", "0", "1.5", "nan", "1e-9x"):
            bounds = f"--top-p: '{text}' is not a number from 1e-09 to 1"
            self.refuse(["teach", "job", "--out=out", f"--top-p={text}"], bounds)

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

    def test_a_path_to_a_pipe_a_device_or_a_folder_is_refused_at_once(self):
        os.mkfifo(self.folder / "pipe")
        (self.folder / "images").mkdir()
        for odd, kind in (("pipe", "FIFO"), ("/dev/zero", "device"), ("images", "folder")):
            with self.subTest(odd):
                self.refuse(["check", odd], odd, kind)
                self.refuse(["simulate", odd], odd, kind)
                llava = {"app": "vision_language", "data.kind": "llava", "data.path": odd}
                self.refuse_job({"name": "test"}, odd, kind, settings=llava)
                for name in ("config.json", "model.safetensors"):
                    weights = self.folder / f"weights-{kind}-{name}"
                    weights.mkdir()
                    (weights / "config.json").write_text(GPT2)
                    (weights / name).unlink(missing_ok=True)
                    (weights / name).symlink_to(self.folder / odd)
                    self.refuse_job(language_model(), f"{weights.name}/{name}", kind,
                                    settings={"teacher.weights": weights.name})
        for odd in ("pipe", "/dev/zero"):
            self.refuse_job(language_model(), odd, "neither a file nor a folder", settings={"data.path": odd})

    def test_counts_and_times_beyond_any_run_are_refused_before_anything_is_planned(self):
        for setting, value in (("train.global_batch", 1 << 32), ("train.steps", 1 << 62), ("data.sequence", 1 << 40),
                               ("transport.timeout_s", 1e300), ("transport.start_timeout_s", 1e300),
                               ("train.peer_timeout_s", 1e300), ("schedule.budget_ms", 1e300)):
            with self.subTest(setting):
                self.refuse_job(language_model(), setting, "must be", settings={setting: value})

    def test_values_are_shown_in_one_short_line(self):
        for value in ("a\nb", "a\x1b[2Jb", "x" * 3000):
            for setting in ("data.path", "teacher.weights", "transport.provider", "train.clip"):
                with self.subTest(setting):
                    name = self.write_job(language_model())
                    finished = self.call("check", name, *options_of({setting: value}))
                    self.assertEqual(finished.status, 2, finished.describe())
                    self.assertRegex(finished.err, r"\Aerror: [^\x00-\x1f]{1,2000}\n\Z")

    def test_a_corpus_larger_than_memory_is_told_as_that(self):
        with open(self.folder / "huge.txt", "wb") as file:
            file.truncate(8 << 30)  # a sparse file: takes no space
        job = language_model()
        job["data"]["path"] = "huge.txt"
        limited = ["sh", "-c", "ulimit -v 3000000 && exec \"$@\"", "sh"]
        if subprocess.run([*limited, PROGRAM, "--version"], capture_output=True).returncode != 0:
            self.skipTest("this build needs more addresses (a sanitizer)")
        run = Run(self.folder, ["check", self.write_job(job)], launcher=limited)
        self.addCleanup(run.end)
        finished = run.wait()
        self.assertEqual(finished.status, 2, finished.describe())
        self.assertEqual(finished.err, "error: [data] path: cannot read huge.txt: not enough memory\n")

    def start_with_shared_memory(self, size, **settings):
        """Starts a run in a mount namespace with a /dev/shm of this size."""
        mounted = ["unshare", "-m", "sh", "-c", f"mount -t tmpfs -o size={size} none /dev/shm && exec \"$@\"", "sh"]
        if not shutil.which("unshare") or subprocess.run([*mounted, "true"], capture_output=True).returncode != 0:
            self.skipTest("no private mount namespace here")
        return self.start(distillation(), "--processes", 2, settings=settings, launcher=mounted)

    def test_processes_use_shared_memory_all_or_none(self):  # JS-6
        of_one = os.cpu_count() * 16 + 1  # MiB; libfabric offers shm only to the first process
        finished = self.start_with_shared_memory(f"{of_one}m").wait()
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertIn(f"note: /dev/shm has {of_one} MiB free, the shm provider needs {of_one + 15} MiB for 2 processes, "
                      "so they use the network", finished.out)
        self.assertIn("2 processes, transport: tcp", finished.out)

    def test_a_full_shared_memory_folder_is_told_as_that(self):
        finished = self.start_with_shared_memory("64k", **{"transport.provider": "shm"}).wait()
        self.assertEqual(finished.status, 2, finished.describe())
        self.assertRegex(finished.err, r"\Aerror: transport.provider: /dev/shm has 0 MiB free, the shm provider needs "
                                       r"[0-9]+ MiB; mount it larger, or set transport.provider = tcp\n\Z")

    def test_a_text_under_the_name_of_records_is_refused_by_what_its_name_says(self):
        text = (self.folder / "corpus.txt").read_text()
        for path, wanted in (("chat.json", "chat.json:1 is not valid JSON"), ("chat.jsonl", ":1 is not valid JSON"),
                             ("table.csv", "as_text = true"), ("rows.parquet", "rows.parquet")):
            (self.folder / path).write_text(text)
            with self.subTest(path):
                self.refuse_job(language_model(), path, wanted, settings={"data.path": path})

    def test_more_devices_than_there_are_are_refused(self):
        self.refuse_job(language_model(), "cpu:999", "cpu:0", settings={"teacher.devices": ["cpu:999"]})
        many = {"teacher.replicas": CORES + 1, "train.global_batch": 4 * (CORES + 1)}
        self.refuse_job(language_model(), "teacher.replicas", settings=many)

    def test_a_batch_too_small_for_the_replicas_is_refused(self):
        settings = {"teacher.replicas": 3, "train.global_batch": 8}
        self.refuse_job(language_model(), "micro_batch", "3 replicas", settings=settings)

    def test_defaults_never_make_a_small_job_impossible(self):
        job = language_model(steps=1)
        for key in ("replicas", "micro_batch"):
            del job["teacher"][key]
        name = self.write_job(job)
        for options in (("--set", "train.global_batch=1"), ("--set", "train.global_batch=8"),
                        ("--set", "train.global_batch=1", "--set", "teacher.micro_batch=1"),
                        ("--set", "train.global_batch=8", "--set", "teacher.micro_batch=8"),
                        ("--set", "train.global_batch=2", "--set", "teacher.replicas=2", "--cpu-devices", "2"),
                        ("--cpu-devices", "1"), ("--set", 'teacher.devices=["cpu:0"]'),
                        ("--set", "teacher.processes=[0]")):
            with self.subTest(options):
                checked = self.call("check", name, *options)
                self.assertEqual(checked.status, 0, checked.describe())

    def test_an_empty_table_that_would_lose_the_keys_of_the_file_is_refused(self):
        for table in ("student", "train", "data", "plain"):
            name = self.write_job(distillation())
            for command in ("train", "check"):
                self.refuse([command, name, "--set", f"{table}={{}}"], f"--set {table}={{}}: the empty table would lose "
                                                                       f"{table}.")

    def test_a_source_of_a_mixture_is_refused_by_name(self):
        job = language_model()
        job["data"] = {"kind": "prepared", "sequence": 16, "mix": {"one": {"path": "nowhere"}}}
        self.refuse_job(job, "[data.mix.one] path: nowhere has no data.json")

    def test_an_interface_that_is_not_here_is_refused(self):
        self.refuse_job(distillation(), 'transport.listen = "none7" is neither an address nor an interface here',
                        settings={"transport.listen": "none7"}, options=("--processes", 2))

    def test_vocabularies_that_differ_by_more_than_padding_are_refused(self):
        self.refuse_job(distillation(), "vocabulary", "250", settings={"student.vocabulary": 250})
        self.refuse_job(distillation(), "vocabulary", "200", settings={"teacher.vocabulary": 200})

    def test_a_frozen_section_without_weights_is_refused_unless_random_ones_are_meant(self):
        job = distillation()
        del job["teacher"]["weights"]
        self.refuse_job(job, "job.toml:", "teacher.weights", "frozen", 'weights = "random"')
        self.refuse_job(distillation(), "student.weights", "frozen", settings={"student.trained": False})
        finished = self.call("check", self.write_job(distillation()))  # its teacher has weights = "random"
        self.assertEqual(finished.status, 0, finished.describe())

    def test_weights_that_are_no_folder_are_refused_with_what_to_give(self):
        self.refuse_job(language_model(), "teacher.weights", "gpt2: no such folder", "hf download",
                        settings={"teacher.weights": "gpt2"})
        self.refuse_job(language_model(), "teacher.weights", "is a file", "name the folder",
                        settings={"teacher.weights": "corpus.txt"})

    def test_an_unknown_app_provider_or_section_type_is_refused(self):
        self.refuse_job(language_model(), "did you mean 'language_model'?", settings={"app": "langauge_model"})
        self.refuse_job(language_model(), "transport.provider", "smoke", settings={"transport.provider": "smoke"})
        self.refuse_job(language_model(), "did you mean 'decoder_lm'?", settings={"teacher.type": "decoder_ml"})

    def test_a_provider_that_this_machine_lacks_is_refused_with_those_it_has(self):
        settings = {"transport.provider": "efa"}
        self.refuse_job(distillation(), "efa", "available", "tcp", settings=settings, options=("--processes", 2))

    def test_an_unwritable_output_folder_is_refused(self):
        self.refuse_job(language_model(), "train.out", settings={"train.out": "corpus.txt/out"})

    def test_an_output_folder_with_other_entries_under_the_names_of_a_run_is_refused(self):
        for entry in ("record/steps.jsonl", "record/events.jsonl", "run.json", ".lock"):
            with self.subTest(entry):
                (self.folder / f"of {Path(entry).name}" / entry).mkdir(parents=True)
                self.refuse_job(language_model(), "train.out: cannot write", entry, "it is a folder",
                                settings={"train.out": f"of {Path(entry).name}"})
        for entry in ("record", "checkpoints", "models"):
            with self.subTest(entry):
                (self.folder / f"with {entry}").mkdir()
                (self.folder / f"with {entry}" / entry).touch()
                self.refuse_job(language_model(), "train.out: cannot write", f"{entry} is not a folder",
                                settings={"train.out": f"with {entry}"})

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
        self.refuse(["train"], "missing job (job file (TOML))")
        self.refuse(["resume", "--at", "unix:/x"], "maestro resume was renamed: maestro continue")
        self.refuse(["plan"], "missing job (job file (TOML)", "maestro show-plan shows the plan of a run")
        self.refuse(["prepare", "--out", "x"], "missing files (files and folders", "Parquet")
        self.refuse(["prepare", "a.txt", "--out", "x"], "give --tokenizer, or --model")
        self.refuse(["train", "job.toml", "--processes", "0"], "--processes")


class WrongLayouts(Refusals):
    """Each is refused with the nearest that fits, before anything runs."""

    def job(self):
        job = distillation()
        for section in ("teacher", "student", "plain"):
            job[section] |= {"layers": 3, "width": 48, "heads": 8}
        job["plain"] |= {"family": "llama", "kv_heads": 4, "tied": False}
        return job

    def refuse_layout(self, settings, *wanted, devices=64):
        with self.subTest(settings):
            options = ("--cpu-devices", devices) if devices else ()
            self.refuse_job(self.job(), *wanted, settings=settings, options=options)

    def test_a_tensor_degree_that_does_not_cut_the_model_is_refused(self):
        self.refuse_layout({"student.tensor": 3}, "student.tensor = 3: 8 heads", "nearest that fits: tensor = 2")
        self.refuse_layout({"teacher.tensor": 16}, "teacher.tensor = 16: 8 heads", "nearest that fits: tensor = 8")
        self.refuse_layout({"plain.tensor": 8}, "plain.tensor = 8: 4 kv_heads", "nearest that fits: tensor = 4")
        self.refuse_layout({"plain.tensor": 4, "plain.ffn": 90}, "plain.tensor = 4: 90 ffn",
                           "nearest that fits: tensor = 2")
        self.refuse_layout({"student.tensor": 2, "student.ffn": 91}, "student.tensor = 2: 91 ffn",
                           "nearest that fits: tensor = 1")

    def test_a_tensor_degree_above_the_vocabulary_is_refused(self):
        small = {"data.kind": "synthetic", "data.path": "", "data.vocabulary": 3, "teacher.vocabulary": 3,
                 "student.vocabulary": 3, "plain.vocabulary": 3, "student.tensor": 4}
        self.refuse_layout(small, "student.tensor = 4: a vocabulary of 3", "nearest that fits: tensor = 2")

    def test_a_context_degree_that_does_not_cut_the_heads_of_delta_rules_is_refused(self):
        delta = {"plain.family": "qwen3_5_text", "plain.head_size": 8, "plain.delta_key_heads": 8}
        self.refuse_layout({**delta, "plain.context": 3}, "plain.context = 3: 8 delta_key_heads", "nearest",
                           "context = 2")
        self.refuse_layout({**delta, "plain.context": 4, "plain.tensor": 4}, "plain.context = 4: 8 delta_key_heads",
                           "16", "nearest that fits: tensor = 4, context = 2")

    def test_more_stages_than_layers_are_refused(self):
        self.refuse_layout({"student.pipeline": 4}, "student.pipeline = 4", "3 layers",
                           "nearest that fits: pipeline = 3")
        self.refuse_layout({"teacher.pipeline": 100}, "teacher.pipeline = 100", "3 layers",
                           "nearest that fits: pipeline = 3")

    def test_stages_of_a_section_without_layers_are_refused(self):
        model = {"layers": 2, "width": 32, "heads": 2, "positions": 32, "tied": False, "micro_batch": 4}
        job = {**language_model(), "app": "split_language_model", "trunk": model, "head": model}
        del job["teacher"]
        self.refuse_job(job, "head.pipeline = 2", "pipeline", "1", settings={"head.pipeline": 2},
                        options=("--cpu-devices", 4))

    def test_more_devices_than_there_are_are_refused_with_a_layout_that_fits(self):
        if CORES < 8:
            for degree in ("tensor", "context"):
                self.refuse_layout({f"student.{degree}": 8}, "student", "8 devices", "nearest that fits",
                                   "--cpu-devices 8", devices=None)
            self.refuse_layout({"student.replicas": 8, "student.micro_batch": 1}, "student.replicas = 8",
                               f"use at most {CORES}", "--cpu-devices 8", devices=None)
        self.refuse_layout({"student.tensor": 4}, "student", "4 devices", "nearest that fits",
                           "--cpu-devices 4", devices=2)
        self.refuse_layout({"student.pipeline": 3}, "student", "3 devices", "nearest that fits",
                           "--cpu-devices 3", devices=2)
        self.refuse_layout({"student.replicas": 2, "student.tensor": 2, "student.pipeline": 2}, "student", "8 devices",
                           "nearest that fits", "--cpu-devices 8", devices=4)

    def test_a_list_of_devices_of_the_wrong_length_is_refused(self):
        for count in (1, 3, 5):
            devices = [f"cpu:{core}" for core in range(count)]
            self.refuse_layout({"student.tensor": 2, "student.pipeline": 2, "student.devices": devices},
                               "student.devices", f"names {count}", "replicas x pipeline x context x tensor = 4",
                               "name 4")

    def test_a_device_of_two_ranks_is_refused(self):
        self.refuse_layout({"student.tensor": 2, "student.devices": ["cpu:1", "cpu:1"]}, "student.devices", '"cpu:1"',
                           "twice")
        self.refuse_layout({"student.replicas": 2, "student.devices": ["cpu:1", "cpu:1"]}, "student.devices",
                           '"cpu:1"', "twice")

    def test_a_device_of_two_stages_is_refused(self):
        self.refuse_layout({"student.pipeline": 2, "student.devices": ["cpu:1", "cpu:1"]}, "student.devices",
                           '"cpu:1"', "twice")
        self.refuse_layout({"student.pipeline": 2, "student.replicas": 2,
                            "student.devices": ["cpu:0", "cpu:1", "cpu:1", "cpu:2"]}, '"cpu:1"', "twice")

    def test_the_nearest_layout_that_is_told_is_accepted(self):
        degrees = ("replicas", "pipeline", "context", "tensor")
        for wanted, devices in (((1, 1, 1, 8), 3), ((1, 1, 1, 8), 7), ((1, 1, 2, 4), 3), ((1, 2, 1, 4), 2),
                                ((2, 3, 1, 2), 8), ((3, 3, 1, 1), 8), ((1, 3, 8, 1), 20)):
            with self.subTest(wanted, devices=devices):
                name = self.write_job(self.job())
                settings = {f"student.{degree}": value for degree, value in zip(degrees, wanted)}
                settings["student.micro_batch"] = 1
                command = ("check", name, "--cpu-devices", devices)
                refused = self.call(*command, *options_of(settings))
                told = re.search(r"nearest that fits: [a-z ]+ = (\d+) x (\d+) x (\d+) x (\d+)", refused.err)
                self.assertIsNotNone(told, refused.describe())
                settings |= {f"student.{degree}": int(value) for degree, value in zip(degrees, told.groups())}
                accepted = self.call(*command, *options_of(settings))
                self.assertEqual(accepted.status, 0, accepted.describe())

    def test_a_device_that_is_not_there_is_refused(self):
        self.refuse_layout({"student.tensor": 2, "student.devices": ["cpu:0", "cpu:64"]}, "student.devices",
                           '"cpu:64"', "cpu:0 to cpu:63")
        self.refuse_layout({"student.tensor": 2, "student.devices": ["cpu:0", "gpu:1"]}, "student.devices", '"gpu:1"',
                           "cpu:0")

    def test_emulated_devices_that_are_too_few_or_beside_others_are_refused(self):
        for degree in ("tensor", "context", "pipeline"):
            self.refuse_layout({"student.devices": ["emulated:0"], f"student.{degree}": 2}, "student.devices",
                               "names 1 device", "name 2", 'a single "emulated"')
        self.refuse_layout({"student.tensor": 2, "student.devices": ["emulated:0", "emulated:0"]}, "student.devices",
                           '"emulated:0" is named twice', "the ranks of a replica")
        self.refuse_layout({"student.tensor": 2, "student.devices": ["emulated:0", "cpu:0"]}, "student.devices",
                           "emulated:0 with cpu:0", "on emulated devices only, or on others only")
        self.refuse_layout({"student.devices": ["emulatd:0"]}, "student.devices", '"emulatd:0"', "emulated:K")

    def test_logits_between_sections_of_other_tensor_degrees_are_refused(self):
        for teacher, student in ((1, 2), (4, 2)):
            self.refuse_layout({"teacher.boundary": "logits", "student.boundary": "logits", "teacher.tensor": teacher,
                                "student.tensor": student}, f"teacher.tensor = {teacher}",
                               f"student.tensor = {student}", "make them equal, or choose another boundary")

    def test_a_degree_that_is_no_positive_integer_is_refused(self):
        for degree in ("tensor", "context", "pipeline"):
            for value in (0, -1, 1_000_000):
                self.refuse_layout({f"student.{degree}": value}, f"student.{degree}", "from 1 to", str(value))
            for value in ("two", 1.5):
                self.refuse_layout({f"student.{degree}": value}, f"student.{degree}", "expected an integer")

    def test_an_empty_list_of_devices_means_any_and_no_list_is_refused(self):
        job = self.job()
        job["train"]["steps"] = 1
        self.train(job, settings={"student.devices": []})
        self.refuse_layout({"student.devices": "cpu:0"}, "student.devices", "expected a list of strings")
        self.refuse_layout({"student.devices": [1]}, "student.devices", "expected a list of strings")

    def test_a_number_of_devices_that_is_none_is_refused(self):
        name = self.write_job(self.job())
        for count in ("0", "-1", "two", "1000000"):
            self.refuse(["train", name, f"--cpu-devices={count}"], "--cpu-devices", count, "1 to 4096")


class WrongState(Refusals):
    """Input from an earlier run."""

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

    def test_a_mutated_file_ends_the_program_with_one_line_and_never_by_a_signal(self):
        rng = random.Random(20261122)
        self.write_job(language_model(steps=2))
        (self.folder / "workload.json").write_text(WORKLOAD)
        shutil.copytree(self.checkpoint / "teacher", self.folder / "weights")
        weights = ["check", "job.toml", "--fresh", *options_of({"teacher.weights": "weights"})]
        refused = 0
        for path, command in ((self.folder / "job.toml", ["check", "job.toml", "--fresh"]),
                              (self.folder / "workload.json", ["simulate", "workload.json"]),
                              (self.folder / "weights/config.json", weights),
                              (self.folder / "weights/model.safetensors", weights),
                              (self.checkpoint / "checkpoint.json", ["check", "job.toml", "--resume", "out"])):
            whole = path.read_bytes()
            for case in range(8):
                path.write_bytes(mutated(rng, whole))
                with self.subTest(path.name, case=case):
                    finished = self.call(*command)
                    self.assertIn(finished.status, (0, 1, 2), finished.describe())
                    if finished.status != 0:
                        refused += 1
                        self.assertRegex(finished.err, r"\Aerror: [^\x00-\x1f\x7f-\x9f]{1,2100}\n\Z")
            path.write_bytes(whole)
        self.assertGreater(refused, 20)

    def test_a_checkpoint_of_stages_that_lacks_one_or_has_a_damaged_one_is_refused(self):
        self.train(language_model(steps=2, out="staged"), "--cpu-devices", 2, settings={"teacher.pipeline": 2})
        part = self.folder / "staged/checkpoints/step-00000002/teacher/model-00002-of-00002.safetensors"
        whole = part.read_bytes()
        for damage in (self.truncate, self.alter, Path.unlink):
            damage(part)
            with self.subTest(damage=damage.__name__):
                self.refuse_job(language_model(), part.name, options=("--resume", "staged"))
            if damage is not self.alter:  # weights outside a checkpoint lack checksums
                with self.subTest("weights", damage=damage.__name__):
                    settings = {"teacher.weights": str(part.parent), "train.out": "another"}
                    self.refuse_job(language_model(), part.name, settings=settings)
            part.write_bytes(whole)

    def test_truncated_weights_are_refused(self):
        weights = self.folder / "weights"
        shutil.copytree(self.checkpoint / "teacher", weights)
        self.truncate(weights / "model.safetensors")
        settings = {"teacher.weights": "weights", "train.out": "another"}
        self.refuse_job(language_model(), "weights", settings=settings)

    def test_weights_with_a_tokenizer_are_refused_unless_foreign_tokens_are_meant(self):
        weights = self.folder / "weights"
        shutil.copytree(self.checkpoint / "teacher", weights)
        given = {"teacher.weights": "weights", "data.tokenizer": "bytes"}
        (weights / "tokenizer.json").write_text("{}")
        self.refuse_job(language_model(), "teacher.weights: weights/tokenizer.json is the tokenizer of these weights",
                        'data.tokenizer = "bytes"', "foreign_tokens = true in [teacher]", settings=given)
        meant = self.call("check", "job.toml", "--fresh", *options_of(given | {"teacher.foreign_tokens": True}))
        self.assertEqual(meant.status, 0, meant.describe())
        self.refuse_job(language_model(), "weights/tokenizer.json: model is missing",
                        settings={"teacher.weights": "weights"})
        (weights / "tokenizer.json").unlink()
        self.assertEqual(self.call("check", "job.toml", "--fresh", *options_of(given)).status, 0)

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
