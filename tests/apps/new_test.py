#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`maestro new` writes starter folders. The installation test builds and runs a new plug-in."""

import tomllib
import unittest

from maestro_program import SystemTest

PLUG_IN = {"CMakeLists.txt", "README.md", "job.toml", "plug_in.cpp"}


class New(SystemTest):
    def files(self, folder):
        return {path.name for path in (self.folder / folder).iterdir()}

    def new(self, *arguments):
        finished = self.call("new", *arguments)
        self.assertEqual(finished.status, 0, finished.describe())
        return finished.out.splitlines()

    def test_app_is_a_job_that_runs_as_it_is(self):
        lines = self.new("app", "first_app")
        self.assertEqual(lines, ["app first_app:", "  first_app/README.md", "  first_app/job.toml"])
        finished = self.call("train", "first_app/job.toml", "--report", "report.json")
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertTrue((self.folder / "runs/first_app/checkpoints/step-00000050").is_dir())
        printed = self.call("check", "first_app/job.toml", "--graph", "--fresh").out
        self.assertIn("body", printed)

    def test_section_and_plug_in_have_the_name_in_files_class_type_and_job(self):
        for kind in ("section", "plug-in"):
            with self.subTest(kind):
                self.new(kind, "gated_bigram2", "--into", f"deep/{kind}")
                folder = self.folder / "deep" / kind
                named = {"gated_bigram2.hpp", "gated_bigram2.cpp", "gated_bigram2_test.cpp"}
                self.assertEqual(self.files(folder), PLUG_IN | named)
                text = "".join(path.read_text() for path in folder.iterdir())
                self.assertNotRegex(text, "@[A-Z]+@")
                self.assertIn('host.add_section<mine::GatedBigram2>("gated_bigram2"', text)
                job = tomllib.loads((folder / "job.toml").read_text())
                self.assertEqual((job["model"]["type"], job["plugins"]), ("gated_bigram2", ["build/libgated_bigram2.so"]))
                version = self.call("--version").out.split()[1]
                self.assertIn(f"find_package(maestro {version} REQUIRED)", text)

    def test_names_that_do_not_fit_are_refused(self):
        for name in ("", "2nd", "Model", "a-b", "a b", "../a", "x" * 41, "\u00e4"):
            self.assert_refused("is not a valid name: use up to 40 of a-z, 0-9 and _, starting with a letter", "new",
                                "section", "--into", "x", "--", name)
        self.assert_refused("maestro has a section type 'projector'; choose another name", "new", "plug-in", "projector")
        self.assert_refused("kind", "new", "sections", "mine")
        self.assertFalse((self.folder / "x").exists())

    def test_a_file_that_exists_is_kept_and_no_other_is_written(self):  # NW-1
        folder = self.folder / "mine"
        folder.mkdir()
        (folder / "job.toml").write_text("name = \"precious\"\n")
        self.assert_refused("new: mine/job.toml exists; nothing was written", "new", "app", "mine")
        self.assertEqual(self.files("mine"), {"job.toml"})
        self.assertEqual((folder / "job.toml").read_text(), "name = \"precious\"\n")
        (folder / "job.toml").unlink()
        (folder / "README.md").symlink_to("nowhere")
        self.assert_refused("new: mine/README.md exists", "new", "app", "mine")
        self.assertFalse((folder / "nowhere").exists())

    def test_a_folder_that_cannot_be_made_is_named(self):
        self.assert_refused("new: ", "new", "app", "mine", "--into", "corpus.txt/mine")


if __name__ == "__main__":
    unittest.main(verbosity=2)
