#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plug-ins: section types of shared libraries train like the program's types; a broken library or section ends the
program with a line that names it.

The environment variable MAESTRO_TEST_PLUG_IN names the library built from plug_in/faulty.cpp.
"""

import os
import re
import shutil
import signal
import struct
import unittest
from pathlib import Path

from maestro_program import SANITIZED, SystemTest

LIBRARY = Path(os.environ.get("MAESTRO_TEST_PLUG_IN", "libmaestro_faulty.so"))


def bigram(**train):
    return {
        "app": "graph",
        "plugins": ["faulty.so"],
        "edges": ["corpus.tokens -> model.tokens", "corpus.targets -> model.targets"],
        "train": {"steps": 6, "global_batch": 8, "validation_samples": 8, "out": "out", "recover": "off", **train},
        "data": {"path": "corpus.txt", "sequence": 32},
        "model": {"type": "bigram", "micro_batch": 4, "lr": 1e-2},
    }


def faulty(fault, **train):
    job = bigram(**train)
    del job["model"]
    return job | {
        "edges": ["corpus.tokens -> mine.tokens", "mine.hidden -> head.hidden", "corpus.targets -> head.targets"],
        "mine": {"type": "faulty", "fault": fault, "micro_batch": 4},
        "head": {"type": "language_model_head", "width": 32, "micro_batch": 4},
    }


class PlugInTest(SystemTest):
    def setUp(self):
        super().setUp()
        shutil.copy(LIBRARY, self.folder / "faulty.so")

    def assert_check_refused(self, wanted, job):
        self.assert_refused(wanted, "check", self.write_job(job), "--plugin", "faulty.so")

    def changed(self, name, old, new):
        """Returns a copy of the plug-in with other bytes."""
        content = LIBRARY.read_bytes()
        self.assertIn(old, content)
        self.assertEqual(len(old), len(new))
        (self.folder / name).write_bytes(content.replace(old, new))
        return name

    def build_ids(self):
        """Returns the note with the library's build id, and a note with another id."""
        note = struct.pack("<III", 4, 20, 3) + b"GNU\0"
        content = LIBRARY.read_bytes()
        at = content.index(note) + len(note)
        return note + content[at:at + 20], note + bytes(reversed(content[at:at + 20]))

    def bits(self, finished):
        return (self.folder / finished.report["checkpoint"] / "model" / "model.safetensors").read_bytes()


class Training(PlugInTest):
    def test_is_the_same_in_several_processes_and_by_the_option(self):  # PX-4
        one = self.train(bigram(out="one"))
        two = self.train(bigram(out="two"), "--processes", 2)
        job = bigram(out="three")
        del job["plugins"]
        by_option = self.train(job, "--processes", 2, "--plugin", "faulty.so")
        self.assertLess(one.curve()["model", 6][0], one.curve()["model", 1][0])
        for other in (two, by_option):
            self.assertEqual(other.curve(), one.curve())
            self.assertEqual(self.bits(other), self.bits(one))

    def test_reads_the_corpora_of_plug_ins(self):
        job = bigram(steps=40) | {"data": {"kind": "counting", "vocabulary": 9}}
        one = self.train(job)
        self.assertIn("tokens that count", one.out)
        self.assertLess(one.report["validation"]["model_ce"], 0.5)  # far below ln 9 = 2.2: the next token is certain
        two = self.train(job, "--processes", 2)
        self.assertEqual(two.curve(), one.curve())
        self.assertEqual(self.call("replay", "out", "--steps", "2..3", "--check", "--plugin", "faulty.so").status, 0)
        self.assert_check_refused("job.toml:12: data.vocabulary: must be from 2 to 256",
                                  job | {"data": {"kind": "counting", "vocabulary": 1}})
        self.assert_check_refused("job.toml:12: data.sequence: unknown key",
                                  job | {"data": {"kind": "counting", "sequence": 9}})

    def test_is_resumed_and_replayed_with_the_plug_ins_of_the_option(self):
        job = bigram(checkpoint_every=3, keep_checkpoints=9)
        del job["plugins"]
        whole = self.train(job, "--plugin", "faulty.so")
        replayed = self.call("replay", "out", "--steps", "2..5", "--check", "--plugin", "faulty.so")
        self.assertEqual(replayed.status, 0, replayed.describe())
        self.assertNotIn("warning", replayed.err)
        self.changed("faulty.so", *self.build_ids())
        other = self.call("replay", "out", "--steps", "2..5", "--check", "--plugin", "faulty.so")
        self.assertEqual(other.status, 0, other.describe())
        self.assertRegex(other.err, "warning: the build of maestro or a plug-in was [0-9a-f]+, is [0-9a-f]+: figures may")  # PX-5
        resumed = self.train(job, "--plugin", "faulty.so", "--resume", "out/checkpoints/step-00000003")
        self.assertEqual(resumed.curve(), whole.curve(after=3))
        self.assertEqual(self.bits(resumed), self.bits(whole))


class Others(PlugInTest):
    def test_observers_receive_the_lines_of_the_record(self):  # OV-1
        plain = self.train(bigram(out="plain"))
        for processes in (1, 2):
            observed = self.train(bigram(out="seen") | {"observers": {"lines": {"file": f"seen{processes}.txt"}}},
                                  "--processes", processes, "--fresh")
            record = self.folder / "seen" / "record"
            lines = (self.folder / f"seen{processes}.txt").read_text().splitlines()
            steps = [line for line in lines if line.startswith('{"step"')]
            self.assertEqual(steps, (record / "steps.jsonl").read_text().splitlines())
            self.assertEqual([line for line in lines if line not in steps], (record / "events.jsonl").read_text().splitlines())
            self.assertEqual(observed.curve(), plain.curve())

    def test_an_observer_that_throws_ends_alone(self):  # OV-1
        plain = self.train(bigram(out="plain"))
        finished = self.train(bigram() | {"observers": {"lines": {"throws_at": 3}}})
        self.assertEqual(finished.curve(), plain.curve())
        warnings = [line for line in finished.err.splitlines() if "warning: " in line]
        self.assertEqual(len(warnings), 1, finished.describe())
        self.assertIn("observer 'lines' ends here, the run goes on: the paper is torn", warnings[0])
        self.assertEqual((self.folder / "lines.txt").read_text().count('{"step"'), 2)

    def test_settings_and_names_of_observers_are_checked(self):
        for observers, wanted in (
            ({"line": {}}, "job.toml:18: observers.line: there is no observer 'line'; did you mean 'lines'?"),
            ({"lines": {"file": 7}}, "observers.lines.file: expected a string, got the integer 7"),
            ({"lines": {"fil": "x"}}, "observers.lines.fil: unknown key; did you mean 'file'?"),
        ):
            self.assert_check_refused(wanted, bigram() | {"observers": observers})

    def test_a_policy_plans_as_that_which_it_calls(self):
        job = bigram() | {"schedule": {"policy": "arrival"}}
        arrival = self.train(job | {"train": {**job["train"], "out": "arrival"}}, "--processes", 2)
        queue = self.train(job | {"schedule": {"policy": "queue"}}, "--processes", 2)
        self.assertEqual(queue.curve(), arrival.curve())
        self.assert_check_refused("did you mean", job | {"schedule": {"policy": "queues"}})

    def test_a_tokenizer_cuts_the_text(self):
        job = bigram()
        plain = self.train(job | {"train": {**job["train"], "out": "plain"}})
        job["data"] = {**job["data"], "tokenizer": "inverted"}
        inverted = self.train(job)
        self.assertIn("(inverted)", inverted.out)
        self.assertNotEqual(inverted.curve(), plain.curve())
        samples = self.call("samples", "out", "--step", "1", "--text", "--plugin", "faulty.so")
        self.assertEqual(samples.out.splitlines()[-1],
                         self.call("samples", "plain", "--step", "1", "--text", "--plugin", "faulty.so").out.splitlines()[-1])


class Types(PlugInTest):
    def test_are_listed_with_their_library_ports_and_keys(self):
        listed = self.call("sections", "--plugin", "faulty.so").out
        self.assertRegex(listed, r"\n  bigram +language model that sees one token \(faulty\.so\)\n")
        self.assertRegex(listed, r"\nCorpora of plug-ins, for `data.kind`\.\n  counting +tokens that count \(faulty\.so\)\n")
        self.assertRegex(listed, r"\nObservers of plug-ins.*\n  lines +lines of the record in a file \(faulty\.so\)\n")
        self.assertNotRegex(self.call("sections").out, "bigram|counting|lines of")
        lines = self.call("sections", "faulty", "--plugin", "faulty.so").out.splitlines()
        self.assertEqual(lines[0], "faulty: embedding that fails as it is asked to")
        self.assertEqual([line.split(maxsplit=2) for line in lines[2:4]],
                         [["input", "tokens", "i32 x 1, tokens"],
                          ["output", "hidden", "fp32 x 32 (width), tokens, differentiable"]])
        self.assertRegex("\n".join(lines), r"\n  width +32 +columns of hidden\n")
        self.assertRegex(self.call("help", "faulty", "--plugin", "faulty.so").out, r"\n  fault +\"none\" +what goes wrong")
        self.assertIn('"bigram"', self.call("schema", "--plugin", "faulty.so").out)

    def test_are_among_those_that_an_unknown_one_is_answered_with(self):
        job = bigram() | {"model": {"type": "bigrams"}}
        self.assert_check_refused("did you mean 'bigram'?", job)


class Strangers(PlugInTest):
    """A library that another user's file names does not run (PQ-1)."""

    LEFT_OUT = "faulty.so is not loaded, because it would run with your rights: give --plugin faulty.so if you trust it"

    def setUp(self):
        super().setUp()
        self.loaded = self.folder / "loaded"
        self.train(bigram(), "--trace", "trace.json")

    def call_watched(self, *arguments):
        """Calls the program with a library that creates a file when its code runs."""
        self.loaded.unlink(missing_ok=True)
        return self.call(*arguments, variables={"FAULTY_LOADED": str(self.loaded)})

    def commands(self):
        job = self.write_job(bigram(out="other"))
        yield "check", job
        yield "check", job, "--graph"
        yield "plan", job, "--measure-ms", 0
        yield "profile", job, "--measure-ms", 0
        yield "what-if", "trace.json"
        yield "samples", "out", "--step", 1
        yield "replay", "out", "--steps", "1..2", "--check"

    def test_run_nothing_unless_they_are_asked_for(self):
        for command in self.commands():
            with self.subTest(command):
                finished = self.call_watched(*command)
                self.assertEqual((finished.status, finished.out), (2, ""), finished.describe())
                self.assertIn(self.LEFT_OUT, finished.err)
                self.assertEqual(len(finished.err.splitlines()), 1, finished.describe())
                self.assertFalse(self.loaded.exists())
                finished = self.call_watched(*command, "--no-plugins")
                self.assertEqual(finished.status, 2, finished.describe())
                self.assertIn("bigram", finished.err)
                self.assertFalse(self.loaded.exists())
                finished = self.call_watched(*command, "--plugin", "faulty.so")
                self.assertEqual(finished.status, 0, finished.describe())
                self.assertTrue(self.loaded.exists())

    def test_run_by_training_alone(self):
        job = self.write_job(bigram(out="two"))
        finished = self.call_watched("train", job, "--no-plugins")
        self.assertEqual(finished.status, 2, finished.describe())
        self.assertFalse(self.loaded.exists())
        self.assertEqual(self.call_watched("train", job, "--no-plugins", "--plugin", "faulty.so").status, 0)
        self.assertTrue(self.loaded.exists())

    def test_may_lie_elsewhere_than_the_record_says(self):
        (self.folder / "libraries").mkdir()
        shutil.move(self.folder / "faulty.so", self.folder / "libraries" / "faulty.so")
        finished = self.call("samples", "out", "--step", 1, "--plugin", "libraries/faulty.so")
        self.assertEqual(finished.status, 0, finished.describe())


class Refusals(PlugInTest):
    """A refused library, by the key and by the option (PX-3)."""

    def refuse(self, name, wanted, *others, variables=None):
        self.refuse_in(bigram() | {"plugins": [*others, name]}, f"job.toml:2: plugins: {wanted}", variables)
        finished = self.call("sections", *(word for file in (*others, name) for word in ("--plugin", file)),
                             variables=variables)
        self.assertEqual((finished.status, finished.out), (2, ""), finished.describe())
        self.assertEqual(len(finished.err.splitlines()), 1, finished.describe())
        self.assertIn(f"error: --plugin: {wanted}", finished.err)

    def refuse_in(self, job, wanted, variables=None):
        finished = self.call("train", self.write_job(job), variables=variables)
        self.assertEqual((finished.status, finished.out), (2, ""), finished.describe())
        self.assertEqual(len(finished.err.splitlines()), 1, finished.describe())
        self.assertIn(wanted, finished.err)

    def test_of_files_that_are_no_plug_ins(self):  # PX-3
        self.refuse("none.so", "cannot open none.so: No such file or directory")
        self.refuse(".", "cannot read .: it is a folder")
        self.refuse("corpus.txt", "corpus.txt: is not a shared library")
        whole = LIBRARY.read_bytes()
        for size in (20, 5000, whole.index(b"maestro plug-in: ") + 200):
            (self.folder / "cut.so").write_bytes(whole[:size])
            self.refuse("cut.so", "cut.so: is cut off: the library is longer than the file")
        shutil.copy("/proc/self/exe", self.folder / "python.so")
        self.refuse("python.so", "python.so: is not a plug-in: it lacks the symbol maestro_plug_in, "
                    "which MAESTRO_PLUG_IN of ")
        if not SANITIZED:  # AddressSanitizer has a symbol whose name ends with these bytes
            renamed = self.changed("renamed.so", b"\0maestro_plug_in\0", b"\0maestro_plug_up\0")
            self.refuse(renamed, "renamed.so: is not a plug-in: it does not export the symbol maestro_plug_in")

    def test_of_another_abi_before_any_of_its_code_runs(self):  # PX-1
        trace = self.folder / "loaded"
        found = re.search(rb"maestro plug-in: (maestro [0-9.]+ with headers [0-9a-f]{16}, [^\0]+)\0", LIBRARY.read_bytes())[1]
        other = re.sub(rb"headers [0-9a-f]{4}", b"headers 0123", found)
        self.refuse(self.changed("other.so", found, other),
                    f"other.so: was built for {other.decode()}; this is {found.decode()}: build the plug-in again",
                    variables={"FAULTY_LOADED": str(trace)})
        self.assertFalse(trace.exists())
        self.call("sections", "--plugin", "faulty.so", variables={"FAULTY_LOADED": str(trace)})
        self.assertTrue(trace.exists())

    def test_of_symbols_that_the_program_lacks(self):
        name = self.changed("lacking.so", b"\0_ZN7maestro9embedding", b"\0_ZN7maestro9embeddinX")
        self.refuse(name, "lacking.so: cannot be loaded: undefined symbol: _ZN7maestro9embeddinX")

    def test_of_types_that_are_there(self):
        shutil.copy(LIBRARY, self.folder / "again.so")
        self.refuse("again.so", "section type 'faulty' is registered twice, by faulty.so and by again.so", "faulty.so")

    def test_of_a_registration_that_throws(self):
        self.refuse("faulty.so", "faulty.so: the registration of its types failed: the list is torn",
                    variables={"FAULTY_REGISTRATION": "1"})

    def test_of_sections_that_cannot_be_built(self):
        self.refuse_in(faulty("options"), "faulty.so: section type 'faulty' failed: the options are torn")
        self.refuse_in(faulty("cost"), "section 'mine' cannot be planned: the bill is torn")
        self.refuse_in(faulty("construction"), "faulty.so: section type 'faulty' failed: the walls are torn")


class Faults(PlugInTest):
    """A section that fails during the run ends it with a line that names the section."""

    def check_fault(self, fault, wanted, *options, **train):
        run = self.start(faulty(fault, **train), *options)
        finished = run.wait()
        self.assertEqual(finished.status, 1, finished.describe())
        errors = [line for line in finished.err.splitlines() if "error: " in line]
        if fault == "wait" and len(errors) == 2:  # from a process that cannot end the pass
            self.assertIn("the end of the failed run did not end in time", errors.pop())
        self.assertEqual(len(errors), 1, finished.describe())
        self.assertIn("'mine'", errors[0])
        self.assertIn(wanted, errors[0])
        self.assert_nothing_left(run)

    def test_end_the_run_with_the_name_of_the_section(self):
        for fault, wanted in (("exception", "the table is torn"), ("number", "not a std::exception"),
                              ("columns", "output port 'hidden' gave fp32 "), ("dtype", "output port 'hidden' gave i32 "),
                              ("silence", "no value for its output port 'hidden'"),
                              ("values", "output port 'hidden' has values that are not numbers in the first pass"),
                              ("backward", "the way back is torn")):
            with self.subTest(fault):
                self.check_fault(fault, wanted)
        self.check_fault("exception", "the table is torn", "--processes", 2)

    def test_of_memory_are_the_last_words_of_the_process(self):
        if SANITIZED:
            self.skipTest("a sanitizer reports faults")
        finished = self.start(faulty("fault")).wait()
        self.assertEqual(finished.status, -signal.SIGSEGV, finished.describe())
        self.assertEqual(finished.err, "error: section 'mine' replica 0: signal SIGSEGV\n")
        run = self.start(faulty("fault", out="two"), "--processes", 2)
        finished = run.wait()
        self.assertNotEqual(finished.status, 0)
        self.assertIn("error: section 'mine' replica 0: signal SIGSEGV\n", finished.err)
        self.assert_nothing_left(run)

    def test_of_a_pass_that_never_ends_end_after_the_limit_of_work(self):  # SJ-3
        for processes in (1, 2):
            with self.subTest(processes):
                self.check_fault("wait", "longer than train.work_timeout_s", "--processes", processes, work_timeout_s=3,
                                 stall_timeout_s=2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
