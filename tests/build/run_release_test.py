#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`run` with an installed program, `run docs` and `run release`, on a small clone."""

import shutil
import subprocess
import unittest

from run_clone import RunClone


class RunRelease(RunClone):
    # An installed program

    def install(self, version):
        (self.clone / "CMakeLists.txt").write_text("project(maestro VERSION 1.2.3 LANGUAGES CXX\n")
        self.make_script(self.tools / "maestro", f'[ "$1" != --version ] || {{ echo "maestro {version}"; exit; }}\n'
                                                 'echo "installed, repository=$MAESTRO_REPOSITORY"; exit 5')

    def test_an_installed_program_of_the_same_version_saves_the_build(self):
        self.install("1.2.3")
        self.missing("libcaf-dev")
        done = self.run_it("distill")
        self.assertEqual((done.returncode, done.stdout), (5, f"installed, repository={self.clone}\n"), done.stderr)
        self.assertEqual(done.stderr, f"run: using the installed {self.tools}/maestro, version 1.2.3, in place of a build of "
                                      "this clone (--build builds)\n")
        self.assertEqual(self.calls(), [])

    def test_a_build_on_request_is_used_from_then_on(self):
        self.install("1.2.3")
        for options in (["--build"], []):
            done = self.run_it(*options, "distill")
            self.assertEqual(done.returncode, 7, done.stderr)
            self.assertNotIn("installed", done.stderr + done.stdout)

    def test_an_installed_program_of_another_version_or_without_the_wanted_backend_is_not_used(self):
        self.install("1.2.4")
        self.assertEqual(self.run_it("distill").returncode, 7)
        shutil.rmtree(self.clone / "build")
        self.install("1.2.3")
        self.assertEqual(self.run_it("distill", MAESTRO_CUDA="ON").returncode, 7)

    # Documentation and releases

    def test_the_documentation_is_built_into_a_folder(self):
        self.missing("mkdocs")
        (self.tools / "mkdocs").rename(self.tools / "mkdocs-of-apt")
        self.make_script(self.tools / "apt-get", 'echo "apt-get $*" >>"$STATE/calls"; : >"$STATE/missing"\n'
                                                 f'mv -f "{self.tools}/mkdocs-of-apt" "{self.tools}/mkdocs" 2>/dev/null; :')
        (self.tools / "mv").symlink_to(shutil.which("mv"))
        done = self.run_it("docs", "a site")
        self.assertEqual((done.returncode, done.stdout), (0, f"{self.top}/a site/index.html\n"), done.stderr)
        self.assertEqual(self.calls("apt-get")[-1], "apt-get install -y --no-install-recommends mkdocs")
        self.assertTrue(self.calls("mkdocs")[0].endswith(f"--config-file {self.clone}/mkdocs.yml --site-dir {self.top}/a site"))
        self.assertEqual(self.run_it("docs", "a", "b").returncode, 2)

    def git(self, *arguments):
        return subprocess.run(["git", "-C", self.clone, "-c", "user.name=n", "-c", "user.email=e@example.org", *arguments],
                              check=True, text=True, capture_output=True).stdout

    def make_release_clone(self, heading="## [1.2.3] - 2026-11-25"):
        self.install("1.2.3")
        (self.clone / "clients/python").mkdir(parents=True)
        for tool in "git gzip tar sha256sum date".split():
            (self.tools / tool).symlink_to(shutil.which(tool))
        (self.clone / "CHANGELOG.md").write_text(f"# Changelog\n\n{heading}\n")
        (self.clone / ".gitignore").write_text("build/\n")
        self.git("init", "-q")
        self.git("add", "-A")
        self.git("commit", "-qm", "A release")
        self.environment |= {"GIT_COMMITTER_NAME": "n", "GIT_COMMITTER_EMAIL": "e@example.org"}

    def test_packages_include_a_wheel_if_the_build_has_the_python_module(self):
        done = self.run_it("package", "made")
        self.assertEqual((done.returncode, done.stdout), (0, "made/maestro_1.2.3_amd64.deb\n"), done.stderr)
        self.assertIn("run: no wheel: this build has no Python module, because nanobind or Python.h is missing", done.stderr)
        self.make_module()
        done = self.run_it("package", "made")
        self.assertEqual(done.stdout.splitlines()[1:], [f"wheel of {self.clone}/build/release"], done.stderr)
        self.assertTrue((self.top / "made/maestro_runtime-1.2.3.whl").exists())
        self.assertNotIn("no wheel", done.stderr)

    def make_module(self):
        folder = self.clone / "build/release/python/maestro"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "_core.cpython-311-x86_64-linux-gnu.so").touch()

    def test_a_release_has_sources_documentation_packages_and_their_checksums(self):
        self.make_release_clone()
        for options, tags, wheel in (([], "", []), (["--tag"], "v1.2.3\n", ["maestro_runtime-1.2.3.whl"])):
            if wheel:
                self.make_module()
            done = self.run_it("release", "1.2.3", *options)
            self.assertEqual(done.returncode, 0, done.stderr)
            folder = self.clone / "build" / "releases" / "1.2.3"
            self.assertEqual(sorted(file.name for file in folder.iterdir()),
                             ["SHA256SUMS", "maestro-1.2.3-docs.tar.gz", "maestro-1.2.3.tar.gz", "maestro-client-1.2.3.tar.gz",
                              "maestro_1.2.3_amd64.deb", *wheel])
            subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=folder, check=True, capture_output=True)
            self.assertEqual(len((folder / "SHA256SUMS").read_text().splitlines()), 4 + len(wheel))
            for archive, member in (("maestro-1.2.3", "maestro-1.2.3/run"), ("maestro-1.2.3-docs", "maestro-1.2.3-docs/index.html")):
                listed = subprocess.run(["tar", "tzf", folder / f"{archive}.tar.gz"], check=True, text=True, capture_output=True)
                self.assertIn(member, listed.stdout.splitlines())
            self.assertEqual(self.git("tag"), tags)

    def test_a_release_of_a_wrong_clone_is_refused_before_anything_is_built(self):
        self.make_release_clone()
        self.git("tag", "v1.2.3")
        for arguments, reason in ((("1.2.4",), "CMakeLists.txt has version 1.2.3"), ((), "takes VERSION"),
                                  (("1.2.3", "--tags"), "takes VERSION"), (("1.2.3", "--tag"), "the tag v1.2.3 is there already")):
            done = self.run_it("release", *arguments)
            self.assertEqual(done.returncode, 2)
            self.assertIn(reason, done.stderr)
        (self.clone / "new").touch()
        self.assertIn("the clone has changes", self.run_it("release", "1.2.3").stderr)
        (self.clone / "CHANGELOG.md").write_text("## [Unreleased] - 1.2.3\n")
        self.assertIn("the first heading of CHANGELOG.md is '## [Unreleased] - 1.2.3' instead of '## [1.2.3] - ",
                      self.run_it("release", "1.2.3").stderr)
        self.assertEqual(self.calls(), [])


if __name__ == "__main__":
    unittest.main()
