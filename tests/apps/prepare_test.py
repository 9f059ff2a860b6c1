#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Texts and conversations in files are prepared, shown and trained on; equal rows give equal losses from any file."""

import bz2
import gzip
import io
import json
import lzma
import os
import signal
import tarfile
import unittest
from pathlib import Path

from maestro_program import Run, SystemTest, language_model, text_corpus

try:
    import pyarrow
except ImportError:
    pyarrow = None

WORDS = text_corpus().split()


def conversations(count, longest=8):
    made = []
    for at in range(count):
        words = WORDS[at % (len(WORDS) - 40):]
        turns = [{"role": "user", "content": " ".join(words[:2 + at % longest])},
                 {"role": "assistant", "content": " ".join(words[9:11 + at % 5])}]
        made.append({"messages": turns})
    return made


def tar_of(rows):
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for at, row in enumerate(rows):
            content = json.dumps(row).encode()
            member = tarfile.TarInfo(f"shard/{at:06}.json")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return archive.getvalue()


def parquet_of(rows):
    import pyarrow.parquet

    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), file, row_group_size=70)
    return file.getvalue()


class Prepared(SystemTest):
    def write(self, name, content):
        (self.folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return name

    def lines(self, rows):
        return "".join(json.dumps(row) + "\n" for row in rows)

    def prepare(self, *arguments, out="data", template="chatml"):
        finished = self.call("prepare", *arguments, "--tokenizer", "bytes", "--template", template, "--out", out)
        self.assertEqual(finished.status, 0, finished.describe())
        return json.loads((self.folder / out / "data.json").read_text())

    def job(self, data, **train):
        job = language_model(**{"steps": 6, **train})
        job["teacher"] |= {"positions": 128, "micro_batch_tokens": 256}
        job["data"] = {"sequence": 128, **data}
        return job


class FromAnyFile(Prepared):
    def test_the_same_rows_are_the_same_data_and_give_the_same_losses(self):
        rows = conversations(300)
        files = {
            "rows.jsonl": self.lines(rows), "rows.json": json.dumps(rows, indent=1),
            "renamed.txt": self.lines(rows), "rows.jsonl.gz": gzip.compress(self.lines(rows).encode()),
            "rows.jsonl.bz2": bz2.compress(self.lines(rows).encode()),
            "rows.jsonl.xz": lzma.compress(self.lines(rows).encode()), "rows.tar": tar_of(rows),
            "rows.tar.gz": gzip.compress(tar_of(rows))}
        kinds = {"rows.jsonl": "chat", "rows.json": "chat", "rows.tar": "webdataset"}
        if pyarrow is not None:
            files["rows.parquet"] = parquet_of(rows)
            kinds["rows.parquet"] = "parquet"
        shards, curves = {}, {}
        for name, content in files.items():
            self.write(name, content)
            index = self.prepare(name, "--validation", "0.1", out=f"data-{name}")
            self.assertEqual(index["counts"], {"rows": 300})
            shards[name] = [(shard["checksum"], shard["documents"]) for shard in index["train"] + index["validation"]]
        self.assertEqual(len(set(map(tuple, shards.values()))), 1, shards)
        for name, kind in kinds.items():
            job = self.job({"kind": kind, "path": name, "template": "chatml"})
            curves[name] = self.train(job, settings={"train.out": f"out-{name}"}).curve()
        prepared = self.job({"kind": "prepared", "path": "data-rows.jsonl"})
        curves["prepared"] = self.train(prepared, "--processes", 1).curve()
        self.assertEqual(len(curves["prepared"]), 6)
        for name, curve in curves.items():
            self.assertEqual(curve, curves["prepared"], name)

    def test_a_folder_of_rows_is_the_same_as_a_file_of_them(self):
        rows = [{"text": " ".join(WORDS[at:at + 30])} for at in range(0, 3000, 30)]
        (self.folder / "many").mkdir()
        self.write("rows.jsonl", self.lines(rows))
        self.write("many/a.jsonl", self.lines(rows[:60]))
        self.write("many/b.jsonl", self.lines(rows[60:]))
        curves = [self.train(self.job({"path": path}), settings={"train.out": f"out-{path}"}).curve()
                  for path in ("many", "rows.jsonl")]
        self.assertEqual(*curves)
        self.write("many/README.md", "about these rows\n")
        mixed = self.train(self.job({"path": "many"}), settings={"train.out": "mixed"})
        self.assertIn("prepared 101 rows", mixed.out)

    def test_rows_of_text_are_a_stream(self):
        rows = [{"text": " ".join(WORDS[at:at + 30])} for at in range(0, 3000, 30)]
        self.write("rows.jsonl", self.lines(rows))
        finished = self.train(self.job({"path": "rows.jsonl"}))
        self.assertIn("prepared 100 rows in out/data/prepared", finished.out)
        self.assertNotIn("prepared 100 rows", self.train(self.job({"path": "rows.jsonl"}), "--processes", 1).out
                         .replace(finished.out, ""))
        documents = self.train(self.job({"path": "rows.jsonl", "packing": "documents"}), settings={"train.out": "other"})
        self.assertNotEqual(documents.curve(), finished.curve())

    def test_bad_rows_of_a_job_have_a_line_each(self):
        (self.folder / "rows.jsonl").write_text('{"text": "a b c d"}\n{"text": 5}\n{"text": null}\n')
        refused = self.call("train", self.write_job(self.job({"path": "rows.jsonl"})))
        self.assertEqual((refused.status, refused.err.splitlines()), (2, [
            "error: 2 bad rows, more than the limit of 0:",
            '  rows.jsonl:2: "text" is 5; it must be a text',
            '  rows.jsonl:3: "text" is null; it must be a text']), refused.describe())

    def test_epochs_count_the_samples(self):
        self.write("rows.jsonl", self.lines(conversations(100)))
        index = self.prepare("rows.jsonl")
        samples = sum(shard["documents"] for shard in index["train"])
        job = self.job({"kind": "prepared", "path": "data"})
        del job["train"]["steps"]
        report = self.train(job, settings={"train.epochs": 1.5}).report
        self.assertEqual(max(row["step"] for row in report["steps"]), -(-samples * 3 // 2 // 8))


class Mixture(Prepared):
    def test_a_resumed_mixture_goes_on_with_the_samples_that_were_left(self):
        mix = {}
        for number, name in enumerate(("wiki", "books", "code", "chat")):
            rows = [{"text": f"{name} " + " ".join(WORDS[at:at + 20])} for at in range(number, 1000, 17)]
            self.write(f"{name}.jsonl", self.lines(rows))
            self.prepare(f"{name}.jsonl", out=name)
            mix[name] = {"path": name, "weight": number + 1}
        job = self.job({"kind": "prepared", "sequence": 32, "mix": mix}, steps=12, checkpoint_every=4)
        job["teacher"]["schedule"] = "constant"  # a shorter run has the same schedule
        whole = self.train(job, settings={"train.out": "whole"})
        self.assertIn("chat (40%)", whole.out)
        self.train(job, settings={"train.steps": 4})
        rest = self.train(job, "--resume", "out")
        self.assertEqual(rest.curve(), whole.curve(after=4))
        mix["wiki"]["weight"] = 2
        changed = self.start(self.job({"kind": "prepared", "sequence": 32, "mix": mix}, steps=14), "--resume",
                             "out").wait()
        self.assertEqual(changed.status, 2, changed.describe())
        self.assertIn("data.mix.wiki.weight", changed.err)


class Tables(Prepared):
    def setUp(self):
        super().setUp()
        if pyarrow is None:
            self.skipTest("pyarrow, which writes the files, is not installed")

    def test_rows_are_those_that_pyarrow_writes(self):
        rows = [{"id": at, "score": at / 7, "flag": at % 2 == 0, "text": f"row {at} \u65e5\u672c \"quoted\"\n",
                 "embedding": [0.5] * 4, "bytes": b"\0", "empty": None} for at in range(500)]
        self.write("rows.parquet", parquet_of(rows))
        self.prepare("rows.parquet", "--validation", "0")
        shown = self.call("data", "data", "--show", 500).out
        for row in rows:
            self.assertIn(f"\n{row['text']}\n", shown)
        self.write("rows.jsonl", self.lines([{"text": row["text"]} for row in rows]))
        from_lines = self.prepare("rows.jsonl", "--validation", "0", out="lines")
        self.assertEqual(json.loads((self.folder / "data/data.json").read_text())["train"], from_lines["train"])

    def test_a_bad_row_is_named_by_row_group_and_row(self):
        rows = [{"text": f"row {at}"} for at in range(200)]
        rows[150]["text"] = None
        self.write("rows.parquet", parquet_of(rows))
        self.assert_refused("rows.parquet: row group 2, row 150: \"text\" is null; it must be a text", "prepare",
                            "rows.parquet", "--tokenizer", "bytes", "--out", "refused")


class Sparse(Prepared):
    def test_a_run_on_20_gb_of_tokens_takes_little_memory(self):
        tokens = 10_000_000_000
        sizes = {"tokens": ("U16", tokens, 2), "offsets": ("I64", 2, 8), "source": ("I32", 1, 4)}
        header, end = {}, 0
        for name, (dtype, count, width) in sizes.items():
            header[name] = {"dtype": dtype, "shape": [count], "data_offsets": [end, end + count * width]}
            end += count * width
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        (self.folder / "data").mkdir()
        with open(self.folder / "data/train-00000.safetensors", "wb") as shard:
            shard.write(len(text).to_bytes(8, "little") + text)
            shard.seek(2 * tokens, os.SEEK_CUR)  # a hole: all tokens are 0
            shard.write((0).to_bytes(8, "little") + tokens.to_bytes(8, "little") + bytes(4))
            if os.fstat(shard.fileno()).st_blocks * 512 > 1e9:
                self.skipTest("the file system has no sparse files")
        shard = {"file": "train-00000.safetensors", "documents": 1, "tokens": tokens, "learned": tokens, "checksum": ""}
        index = {"version": 1, "tokenizer": {"name": "bytes", "fingerprint": "bytes", "vocabulary": 256},
                 "conversations": False, "settings": {}, "sources": [], "counts": {}, "train": [shard], "validation": []}
        (self.folder / "data/data.json").write_text(json.dumps(index))
        self.write("rows.jsonl", self.lines([{"text": " ".join(WORDS[:4000])}]))
        self.prepare("rows.jsonl", "--validation", "0", out="small")
        large, small = (self.train(self.job({"kind": "prepared", "path": path}, steps=20, global_batch=64),
                                   settings={"train.out": f"out-{path}"}).report for path in ("data", "small"))
        self.assertEqual(len(large["steps"]), 20)
        self.assertLess(large["max_rss_mb"] - small["max_rss_mb"], 300)


class Shown(Prepared):
    def test_documents_are_shown_with_what_is_learned(self):
        rows = conversations(50)
        self.write("rows.jsonl", self.lines(rows))
        self.prepare("rows.jsonl", "--validation", "0")
        finished = self.call("data", "data", "--show", 2, "--verify")
        self.assertEqual(finished.status, 0, finished.describe())
        first = rows[0]["messages"]
        self.assertIn(f"<|im_start|>user\n{first[0]['content']}<|im_end|>\n<|im_start|>assistant\n"
                      f"\u00bb{first[1]['content']}<|im_end|>\n\u00ab", finished.out)
        self.assertIn("50 conversations", finished.out)
        self.assertIn("all checksums are right", finished.out)
        self.assertEqual(finished.out.count("--- document"), 2)

    def test_a_byte_order_mark_changes_nothing(self):
        rows = self.lines(conversations(5))
        self.write("rows.jsonl", rows)
        self.write("marked.jsonl", "\ufeff" + rows)
        self.write("marked.json", "\ufeff[" + ",".join(rows.splitlines()) + "]")
        self.write("marked.jinja", "\ufeff{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + "
                                   "message.content + '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}"
                                   "{{ '<|im_start|>assistant\\n' }}{% endif %}")
        checksums = set()
        for name, template in (("rows.jsonl", "chatml"), ("marked.jsonl", "chatml"), ("marked.json", "marked.jinja")):
            index = self.prepare(name, "--validation", "0", out=name + ".data", template=template)
            checksums.add(index["train"][0]["checksum"])
        self.assertEqual(len(checksums), 1)

    def test_wrong_input_is_refused_in_one_line(self):
        self.write("rows.jsonl", self.lines(conversations(5)))
        self.write("wide.jsonl", self.lines([{"question": "a", "answer": "b"}]))
        self.write("bad.jsonl", self.lines(conversations(5)) + "{no json\n")
        self.write("binary", b"\x89PNG\0\xff")
        self.write("broken.json", "{'text': 'a'}\n")
        self.write("notes.txt", "[Chapter 1]\nCall me Ishmael.\n")
        self.write("table.csv", "prompt,completion\na,b\n")
        self.write("wide.txt", "plain text".encode("utf-16"))
        self.write("damaged.parquet", b"PAR1\0\xff")
        base = ("--tokenizer", "bytes", "--out", "refused")
        for wanted, *arguments in (
                ("the columns are answer, question; rows have", "prepare", "wide.jsonl", *base),
                ("has no chat template", "prepare", "rows.jsonl", *base),
                ("binary is not text (UTF-8), JSON, Parquet or a tar archive", "prepare", "binary", *base),
                ("broken.json:1 is not valid JSON: parse error at column 2", "prepare", "broken.json", *base),
                ("notes.txt:1 is not valid JSON: parse error at column 2", "prepare", "notes.txt", *base),
                ("table.csv:1: a table (.csv) is not read; convert it", "prepare", "table.csv", *base),
                ("wide.txt is UTF-16; convert it to UTF-8", "prepare", "wide.txt", *base),
                ("damaged.parquet", "prepare", "damaged.parquet", *base),
                ("missing.jsonl does not exist", "prepare", "missing.jsonl", *base),
                ("bad.jsonl:6 is not valid JSON", "prepare", "bad.jsonl", *base, "--template", "chatml"),
                ("has no data.json", "data", ".")):
            with self.subTest(wanted):
                self.assert_refused(wanted, *arguments)
                self.assertFalse((self.folder / "refused").exists())
        for wanted, data in (
                ("job2.toml", {"kind": "prepared", "path": "rows.jsonl"}),
                ("is a conversation; kind = \"chat\" reads it", {"path": "rows.jsonl"}),
                ("is not a tar archive, but JSON Lines", {"kind": "webdataset", "path": "rows.jsonl"}),
                ("data.template: does not apply to kind = \"text\"", {"path": "corpus.txt", "template": "chatml"}),
                ("data.mix: does not apply to kind = \"text\"", {"path": "corpus.txt", "mix": {"a": {"path": "b"}}}),
                ("needs data.path, a folder that `maestro prepare` wrote", {"kind": "prepared"})):
            with self.subTest(wanted):
                finished = self.start(self.job(data)).wait()
                self.assertEqual(finished.status, 2, finished.describe())
                self.assertEqual(len(finished.err.splitlines()), 1, finished.describe())
                if wanted != "job2.toml":
                    self.assertIn(wanted, finished.err)


class Images(Prepared):
    REFERENCES = Path(__file__).resolve().parents[1] / "dataset" / "references"

    def test_conversations_about_images_are_prepared_and_shown(self):
        rows = self.REFERENCES / "image_rows"
        finished = self.call("prepare", rows / "list.json", "--model", self.REFERENCES / "images" / "smolvlm",
                             "--validation", "0", "--out", "data")
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertIn("  images      12", finished.out)
        finished = self.call("data", "data", "--show", 1, "--verify")
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertIn("<row_1_col_1><image> (4 times)", finished.out)
        self.assertIn("What is in image 0?", finished.out)
        self.assert_refused("--images is of no use without --model", "prepare", rows / "list.json", "--tokenizer",
                            "bytes", "--images", rows, "--out", "refused")
        self.assert_refused("give --tokenizer, or --model", "prepare", rows / "list.json", "--out", "refused")

    def test_look_shows_tiles_rows_text_and_tokens(self):
        model, image = self.REFERENCES / "images" / "idefics3", self.REFERENCES / "image_rows" / "images" / "a.png"
        finished = self.call("look", model, image, "--tiles", "tiles")
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertIn("tiles       10 tiles of 32 x 32 pixels: 3 rows of 3, and the whole image\n", finished.out)
        self.assertIn("rows        160 of the encoder, 40 of the decoder\n", finished.out)
        self.assertIn("<fake_token_around_image><row_1_col_1><image> (4 times)", finished.out)
        self.assertEqual(len(list((self.folder / "tiles").glob("tile-*.png"))), 10)
        bracketed = self.call("look", self.REFERENCES / "images" / "gemma3", image)
        self.assertIn(r"\n\n<start_of_image><image_soft_token> (4 times)<end_of_image>\n\n", bracketed.out)
        self.assert_refused("does not exist", "look", model, "missing.png")


class Ended(Prepared):
    def large(self):
        line = self.lines([{"text": " ".join(WORDS[:400])}])
        self.write("large.jsonl", line * 30_000)

    def begin(self):
        run = Run(self.folder, ["prepare", "large.jsonl", "--tokenizer", "bytes", "--out", "data", "--jobs", "1"])
        self.addCleanup(run.end)
        partial = self.folder / ".data.partial"
        self.assertTrue(run.wait_for(partial.exists), run.text)
        return run

    def test_an_interrupted_preparation_leaves_nothing(self):
        self.large()
        run = self.begin()
        run.interrupt()
        finished = run.wait()
        self.assertEqual(finished.status, 130, finished.describe())
        self.assertEqual(finished.error_lines(), ["error: prepare: interrupted; nothing was written"])
        self.assertEqual(sorted(os.listdir(self.folder)), ["corpus.txt", "large.jsonl"])

    def test_a_killed_preparation_is_done_again_with_the_same_result(self):
        self.large()
        run = self.begin()
        os.kill(run.process.pid, signal.SIGKILL)
        run.wait()
        self.assertFalse((self.folder / "data").exists())
        again = self.prepare("large.jsonl")
        self.assertEqual(again["train"], self.prepare("large.jsonl", "--jobs", "3", out="other")["train"])
        self.assertFalse((self.folder / ".data.partial").exists())


if __name__ == "__main__":
    unittest.main()
