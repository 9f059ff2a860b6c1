#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`maestro teach` records a teacher, and a student learns from the records as from the live teacher."""

import fcntl
import json
import os
import select
import shutil
import signal
import struct
import unittest

from maestro_program import PATIENCE_S, Run, SystemTest, distillation, text_corpus

F16 = 2e-3  # relative: log-probabilities are rounded to 11 bits


def with_boundary(boundary, **student):
    job = distillation()
    job["teacher"] |= {"boundary": boundary, "top_k": 16}
    job["student"] |= {"boundary": boundary, "top_k": 16, **student}
    del job["plain"]
    return job


def with_records(folder="records", **student):
    job = distillation()
    job["teacher"] = {"type": "recorded_teacher", "path": folder, "micro_batch": 4}
    job["student"] |= student
    del job["plain"]
    return job


def tensors(path):
    """Returns {name: bytes} of a safetensors file."""
    content = path.read_bytes()
    data = 8 + struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:data])
    header.pop("__metadata__", None)
    return {name: content[data + entry["data_offsets"][0]:data + entry["data_offsets"][1]]
            for name, entry in header.items()}


class Teaching(SystemTest):
    def teach(self, *options, job=None, out="records"):
        name = self.write_job(job or distillation(), "teach.toml")
        finished = self.call("teach", name, "--out", out, *options)
        self.assertEqual(finished.status, 0, finished.describe())
        return finished

    def start_teaching(self, *options, out):
        name = self.write_job(distillation(), "teach.toml")
        run = Run(self.folder, ["teach", name, "--out", out, *[str(option) for option in options]])
        self.addCleanup(run.end)
        return run

    def blocked_at(self, shard, *options, out):
        """Returns a run that blocks while it writes a shard, which is a full pipe, and the pipe's reading end."""
        pipe = self.folder / out / f"teacher-{shard:05}.safetensors"
        pipe.parent.mkdir()
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
        run = self.start_teaching(*options, out=out)
        self.assertTrue(select.select([reader], [], [], PATIENCE_S)[0], run.text)  # it has begun to write
        return run, reader

    def files(self, folder):
        return {path.name: path.read_bytes() for path in sorted((self.folder / folder).iterdir())
                if not path.name.startswith(".")}

    def refuse(self, job, *wanted):
        name = self.write_job(job, "refused.toml")
        for part in wanted:
            self.assert_refused(part, "check", name)


class AStudentOfRecords(Teaching):
    def test_learns_as_with_the_teacher(self):
        end = self.teach("--top-k", "16").out
        self.assertRegex(end, r"1250 samples, 39998 tokens, \d+\.\d bytes a token \(16\.0 entries\), "
                              r"[\d.]+% of the probability left out")
        for change in ({"divergence": "forward_kl"}, {"divergence": "reverse_kl", "temperature": 2.0},
                       {"divergence": "js", "beta": 0.3, "alpha": 0.9}):
            live = self.train(with_boundary("top_k_rest", **change)).curve("loss", "ce", "kl")
            recorded = self.train(with_records(**change)).curve("loss", "ce", "kl")
            self.assertIn(("student", 12), recorded)
            self.assert_close({key: live[key] for key in recorded}, recorded, F16)

    def test_with_the_whole_vocabulary_learns_as_from_all_logits(self):
        self.teach("--top-k", "256")
        for change in ({"divergence": "forward_kl", "temperature": 2.0}, {"divergence": "reverse_kl"}):
            live = self.train(with_boundary("logits", **change)).curve("loss", "ce", "kl")
            recorded = self.train(with_records(**change)).curve("loss", "ce", "kl")
            self.assert_close({key: live[key] for key in recorded}, recorded, F16)

    def test_visits_samples_in_any_order_and_on_any_layout(self):
        self.teach("--top-k", "16", "--top-p", "0.9")
        job = with_records()
        job["train"]["seed"] = 5
        whole = self.train(job)
        cut = self.train(job, settings={"student.tensor": 2})
        self.assert_close(whole.curve("loss", "kl"), cut.curve("loss", "kl"), 1e-4)
        apart = self.train(job, "--processes", "2")
        self.assertEqual(whole.curve("loss", "kl"), apart.curve("loss", "kl"))

    def test_resumes_with_the_same_records_only(self):
        self.teach("--top-k", "16")
        job = with_records()
        job["train"]["checkpoint_every"] = 6
        whole = self.train(job)
        rest = self.train(job, "--resume", "out/checkpoints/step-00000006")
        self.assertEqual(whole.curve(after=6), rest.curve())
        self.assertIn(("student", 7), rest.curve())
        shutil.rmtree(self.folder / "records")
        self.teach("--top-k", "12")
        name = self.write_job(job)
        self.assert_refused("records of section 'teacher' differ", "train", name, "--resume", "out")


class Records(Teaching):
    def test_of_a_killed_and_continued_run_are_those_of_an_undisturbed_one(self):
        options = ("--top-k", 16, "--top-p", 0.95, "--shard-samples", 5)
        self.teach(*options, out="whole")
        run, _ = self.blocked_at(20, *options, out="killed")
        os.killpg(run.process.pid, signal.SIGKILL)
        run.wait()
        (self.folder / "killed/teacher-00020.safetensors").unlink()
        self.assertEqual(len(json.loads((self.folder / "killed/teacher.json").read_text())["shards"]), 20)
        continued = self.teach(*options, out="killed").out
        self.assertIn("20 shards exist already", continued)
        self.assertNotIn("shard 20/250", continued)
        whole, killed = self.files("whole"), self.files("killed")
        self.assertEqual(len(whole), 251)
        self.assertEqual(whole, killed)

    def test_of_a_run_that_ctrl_c_stopped_are_continued(self):
        run, reader = self.blocked_at(20, "--shard-samples", 5, out="records")
        run.interrupt()
        self.assertTrue(run.wait_for_text("stopping"), run.text)
        os.set_blocking(reader, True)
        while os.read(reader, 65536):
            pass
        finished = run.wait()
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertIn("stopped after 21 of 250 shards; the same command continues", finished.out)
        self.assertEqual(finished.err, "")
        (self.folder / "records/teacher-00020.safetensors").unlink()
        self.refuse(with_records(), "of 250 shards: teacher-", "run `maestro teach` again")
        self.assertIn("1250 samples", self.teach("--shard-samples", 5).out)
        self.train(with_records())

    def test_of_another_job_are_refused_with_the_difference(self):
        self.teach()
        name = self.write_job(distillation(), "other.toml")
        refusals = {
            "records of another job: --top-k is 64, but this job has 8": ("--top-k", "8"),
            "--top-p is 1, but this job has 0.5": ("--top-p", "0.5"),
            "data.sequence is 32, but the corpus has 16": ("--set", "data.sequence=16"),
            "weights is random values of seed 1, but this teacher has random values of seed 2": ("--set", "train.seed=2"),
            "model is gpt2, 2 layers x 48": ("--set", "teacher.layers=1"),
            "teacher: top_k = 400 must lie between 1 and the vocabulary of 256": ("--top-k", "400"),
        }
        for wanted, options in refusals.items():
            with self.subTest(wanted):
                self.assert_refused(wanted, "teach", name, "--out", "records", *options)

    def test_of_other_data_are_refused_by_a_student(self):
        self.teach()
        other = with_records()
        other["data"]["sequence"] = 16
        self.refuse(other, "teacher.path: these records are of other data: data.sequence is 32, but the corpus has 16")
        (self.folder / "corpus.txt").write_text(text_corpus(seed=8))
        self.refuse(with_records(), "these records are of other data: the content of the data differs; use the data")

    def test_that_are_damaged_are_refused_by_name(self):
        self.teach()
        shard = self.folder / "records/teacher-00002.safetensors"
        content = shard.read_bytes()
        shard.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        self.refuse(with_records(), "records/teacher-00002.safetensors is damaged: its checksum differs")
        shard.unlink()
        self.refuse(with_records(), "shard records/teacher-00002.safetensors is missing; run `maestro teach` again")
        self.teach()
        self.assertEqual(shard.read_bytes(), content)
        self.call("check", self.write_job(with_records()))

    def test_need_settings_that_fit_them(self):
        self.teach("--top-k", "16")
        self.refuse(with_records(boundary="logits"), "student.boundary: [teacher] is recorded: leave boundary out")
        self.refuse(with_records(top_k=17), "student.top_k: the records of [teacher] have k = 16; leave top_k out")
        self.refuse(with_records("nowhere"), "teacher.path", "nowhere/teacher.json")
        job = with_records()
        del job["teacher"]["path"]
        self.refuse(job, "teacher.path is not given; name the folder that `maestro teach` wrote")
        name = self.write_job(with_records())
        self.assert_refused("this teacher is recorded already", "teach", name, "--out", "again")
        other = self.write_job({"app": "language_model", "data": {"path": "corpus.txt"}})
        self.assert_refused('teach takes a job of the app "distillation"', "teach", other, "--out", "again")


class AServer(Teaching):
    """A server's answers, made from records of a live teacher."""

    def answers(self, served):
        """Returns a JSON line for each sample, in vLLM's form or the plain form, with the recorded logprobs."""
        records = json.loads((self.folder / "records/teacher.json").read_text())
        text = (self.folder / "corpus.txt").read_bytes()
        lines, position = [], 0
        for shard in records["shards"]:
            stored = tensors(self.folder / "records" / shard["file"])
            ids = struct.unpack(f"<{shard['entries']}i", stored["ids"])
            logprobs = struct.unpack(f"<{shard['entries']}e", stored["logprobs"])
            offsets = struct.unpack(f"<{len(stored['offsets']) // 8}q", stored["offsets"])
            entry = 0
            for first, end in zip(offsets, [*offsets[1:], shard["rows"]]):
                rows = []
                for count in stored["counts"][first:end]:
                    rows.append((ids[entry:entry + count], logprobs[entry:entry + count]))
                    entry += count
                tokens = list(text[position:position + end - first + 1])
                position += end - first
                if len(lines) + 1 == int(records["data"]["training samples"]):
                    position += 1  # the last target of the training split
                lines.append(served(tokens, rows))
        return "".join(json.dumps(line) + "\n" for line in lines)

    @staticmethod
    def plain(tokens, rows):
        return {"ids": tokens, "top_ids": [row[0] for row in rows], "logprobs": [row[1] for row in rows]}

    @staticmethod
    def vllm(tokens, rows):
        entries = [{str(token): {"logprob": value} for token, value in zip(*row)} for row in rows]
        return {"prompt_token_ids": tokens, "prompt_logprobs": [None, *entries]}

    def test_is_recorded_as_the_teacher_that_it_serves(self):
        self.teach("--top-k", "16")
        expected = self.train(with_records()).curve("loss", "kl")
        for form in (self.plain, self.vllm):
            (self.folder / "rows.jsonl").write_text(self.answers(form))
            shutil.rmtree(self.folder / "served", ignore_errors=True)
            job = with_records("served")  # the student's job lacks a live teacher
            self.teach("--from", "rows.jsonl", "--top-k", "16", job=job, out="served")
            found = self.train(with_records("served")).curve("loss", "kl")
            self.assert_close(expected, found, F16)

    def test_of_other_tokens_is_refused_by_line(self):
        self.teach("--top-k", "4")
        (self.folder / "rows.jsonl").write_text(self.answers(self.plain))
        (self.folder / "corpus.txt").write_text(text_corpus(seed=8))
        name = self.write_job(with_records("served"))
        self.assert_refused("rows.jsonl:1: position ", "teach", name, "--from", "rows.jsonl", "--out", "served")


if __name__ == "__main__":
    unittest.main()
