#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Behaviour of the `run` script on a small clone."""

import shutil
import subprocess
import unittest
from pathlib import Path

from run_clone import RunClone


class RunScript(RunClone):
    # Arguments that reach the program

    def test_the_program_gets_arguments_directory_and_repository_and_its_status_is_ours(self):
        done = self.run_it("distill", "--steps", "a b", "")
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertIn(f"cwd={self.top} repository={self.clone}\n", done.stdout)
        self.assertIn("argument=distill\nargument=--steps\nargument=a b\nargument=\n", done.stdout)

    def test_the_program_replaces_the_script_so_that_signals_reach_it(self):
        with subprocess.Popen([self.clone / "run", "distill"], env=self.environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            output, _ = process.communicate()
        self.assertIn(f"pid={process.pid} ", output)

    def test_a_symbolic_link_to_the_script_finds_the_repository(self):
        link = self.top / "maestro-run"
        link.symlink_to(self.clone / "run")
        self.assertIn(f"repository={self.clone}\n", self.run_it("train", "x.toml", script=link).stdout)

    def test_check_is_the_programs_and_verify_the_projects(self):
        self.assertIn("argument=check\nargument=job.toml\n", self.run_it("check", "job.toml").stdout)
        done = self.run_it("check")
        self.assertEqual(done.returncode, 2)
        self.assertEqual("run: check needs a job file; to check the project: ./run verify\n", done.stderr)
        self.missing("libcaf-dev")
        self.assertEqual(self.run_it("check").returncode, 2)
        self.assertEqual(self.run_it("--no-install", "check", "job.toml").returncode, 3)
        self.assertEqual(self.calls("apt-get"), [])
        done = self.run_it("verify", "fromat")
        self.assertEqual(done.returncode, 2)
        self.assertIn("no step 'fromat'; there are: format layers", done.stderr)

    # Machines with a GPU

    def device(self, text, status):
        self.make_script(self.state / "show_cuda_devices", f'echo "{text}"\nexit {status}')

    def test_gpu_tests_are_built_and_not_run_where_there_is_no_device(self):
        self.device("no NVIDIA driver", 1)
        for command, what in (("gpu-test", "tests"), ("gpu-bench", "benchmarks")):
            done = self.run_it(command)
            self.assertEqual(done.returncode, 77, done.stderr)
            self.assertIn(f"run: no NVIDIA driver; built, but {what} not run\n", done.stderr)
        self.assertIn("--preset gpu", self.calls("cmake")[0])
        self.assertNotIn("tests passed", done.stdout)

    def test_gpu_tests_are_those_of_the_label_where_there_is_a_device(self):
        self.device("cuda:0: a device", 0)
        done = self.run_it("gpu-test", "-R", "Attention")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("run: cuda:0: a device\n", done.stderr)
        self.assertIn("--no-tests=error -L gpu -R Attention", done.stdout)
        self.assertIn("compute-sanitizer is not installed; left out", done.stderr)

    def test_gpu_tests_are_checked_by_the_toolkits_sanitizer_for_what_kernels_do(self):
        self.device("cuda:0: a device", 0)
        sanitizer = self.top / "toolkit" / "bin" / "compute-sanitizer"
        self.make_script(sanitizer, 'cat; echo "$*" >>"$STATE/checks"\n[ "$2" != "$(cat "$STATE/finds")" ]')
        self.run_it("gpu-test")
        checked = self.clone / "build" / "gpu" / "device_checked_tests"
        checked.write_text("/a/first_tests -Slow.*\n/a/second_tests *\n")
        for finds, status in (("nothing", 0), ("memcheck", 1), ("racecheck", 1)):
            (self.state / "finds").write_text(finds)
            (self.state / "checks").write_text("")
            self.assertEqual(self.run_it("gpu-test").returncode, status)
            checks = (self.state / "checks").read_text().splitlines()
            self.assertEqual([line.split()[1] for line in checks], ["memcheck"] * 2 + ["racecheck"] * 2)
            self.assertIn("--report-api-errors no --error-exitcode 9 /a/first_tests", checks[0])
            self.assertIn("--gtest_filter=-Slow.*", checks[0])

    def test_gpu_tests_need_neither_the_actors_packages_nor_those_that_are_carried(self):
        self.device("no NVIDIA driver", 1)
        self.missing("libcaf-dev", "libfabric-dev", "libdnnl-dev")
        self.run_it("gpu-test")
        self.assertEqual(self.calls("apt-get")[-1], "apt-get install -y --no-install-recommends libdnnl-dev")
        carried = self.top / "carried"
        (carried / "usr").mkdir(parents=True)
        self.missing("libdnnl-dev")
        done = self.run_it("gpu-test", MAESTRO_DEPS=str(carried))
        self.assertEqual(done.returncode, 77, done.stderr)
        self.assertEqual(len(self.calls("apt-get")), 2)
        self.assertIn(f"-DMAESTRO_DEPS={carried}", self.calls("cmake")[-1])

    def test_gpu_tests_are_compiled_for_the_devices_that_are_there(self):
        self.device("cuda:0: a device", 0)
        self.make_script(self.tools / "nvidia-smi", "printf '9.0\\n9.0\\n'")
        self.run_it("gpu-test")
        self.assertIn("-DCMAKE_CUDA_ARCHITECTURES=90", self.calls("cmake")[-1].split())
        self.make_script(self.tools / "nvidia-smi", "echo 'NVIDIA-SMI has failed'; exit 9")
        self.run_it("gpu-test")
        self.assertNotIn("ARCHITECTURES", self.calls("cmake")[-1])

    def test_a_folder_of_packages_that_is_empty_is_refused(self):
        empty = self.top / "empty"
        empty.mkdir()
        done = self.run_it("gpu-test", MAESTRO_DEPS=str(empty))
        self.assertEqual(done.returncode, 2)
        self.assertIn("holds no packages; fill it with: ./run gpu-deps", done.stderr)

    # Packages

    def test_nothing_missing_never_calls_apt(self):
        self.run_it("distill")
        self.assertEqual(self.calls("apt-get"), [])

    def test_missing_packages_are_installed_once_and_only_those(self):
        self.missing("libcaf-dev", "libdnnl-dev", "libgtest-dev", "libbenchmark-dev")
        done = self.run_it("distill")
        self.assertIn("missing Debian packages: libcaf-dev libdnnl-dev\n", done.stderr)
        self.assertEqual(self.calls("apt-get"), ["apt-get update",
                         "apt-get install -y --no-install-recommends libcaf-dev libdnnl-dev"])
        self.assertEqual(done.returncode, 7, done.stderr)
        self.run_it("distill")
        self.assertEqual(len(self.calls("apt-get")), 2)

    def test_a_compiler_cache_is_installed_with_missing_packages_and_not_needed(self):
        (self.tools / "ccache").unlink()
        self.run_it("distill")
        self.assertEqual(self.calls("apt-get"), [])
        self.missing("libcaf-dev")
        self.run_it("distill")
        self.assertEqual(self.calls("apt-get")[-1], "apt-get install -y --no-install-recommends libcaf-dev ccache")

    def test_tests_need_their_packages_too(self):
        self.missing("libgtest-dev", "libbenchmark-dev")
        self.run_it("test")
        self.assertEqual(self.calls("apt-get")[-1], "apt-get install -y --no-install-recommends libgtest-dev")

    @unittest.skipIf(Path("/run/systemd/system").exists(), "here installed services would be started")
    def test_packages_that_some_tests_need_are_installed_where_that_starts_no_service(self):
        self.missing("slurm-wlm", "munge")
        self.assertEqual(self.run_it("test").returncode, 0)
        self.assertEqual(self.calls("apt-get")[-1], "apt-get install -y --no-install-recommends slurm-wlm munge")
        self.missing("slurm-wlm")
        (self.state / "apt-fails").touch()
        done = self.run_it("test")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("these tests are skipped; to run them: apt-get install --no-install-recommends slurm-wlm\n", done.stderr)

    def test_packages_that_some_tests_need_are_only_named_to_others_than_root(self):
        for uid, option in ((1000, []), (0, ["--no-install"])):
            with self.subTest(uid=uid):
                self.missing("munge")
                (self.state / "uid").write_text(f"{uid}\n")
                done = self.run_it(*option, "test")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("to run them: apt-get install --no-install-recommends munge\n", done.stderr)
                self.assertEqual(self.calls("apt-get"), [])
        self.run_it("distill")
        self.assertEqual(self.calls("apt-get"), [])

    def test_no_install_names_what_is_missing_and_exits_with_3(self):
        self.missing("g++", "libcaf-dev")
        done = self.run_it("--no-install", "distill")
        self.assertEqual(done.returncode, 3)
        self.assertIn("missing Debian packages: g++ libcaf-dev\n", done.stderr)
        self.assertEqual(self.calls(), [])

    def test_without_root_and_sudo_the_command_to_type_is_named(self):
        self.missing("libcaf-dev")
        (self.state / "uid").write_text("1000\n")
        done = self.run_it("distill")
        self.assertEqual(done.returncode, 3)
        self.assertIn("apt-get install --no-install-recommends libcaf-dev", done.stderr)
        self.assertEqual(self.calls(), [])

    def test_sudo_that_asks_nothing_is_used_without_a_terminal(self):
        self.missing("libcaf-dev")
        (self.state / "uid").write_text("1000\n")
        self.make_script(self.tools / "sudo", 'shift\n[ "$1" = true ] || exec "$@"')
        self.assertEqual(self.run_it("distill").returncode, 7)
        self.assertEqual(len(self.calls("apt-get")), 2)

    def test_a_failing_apt_shows_its_words_and_ends_the_run(self):
        self.missing("libcaf-dev")
        (self.state / "apt-fails").touch()
        done = self.run_it("distill")
        self.assertEqual(done.returncode, 3)
        self.assertIn("E: no network", done.stderr)
        self.assertEqual(self.calls("cmake"), [])

    def test_a_system_that_is_not_debian_is_told_what_is_needed_and_tried(self):
        (self.tools / "dpkg-query").unlink()
        done = self.run_it("distill")
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertIn("not a Debian system; required packages, by their Debian names: g++ cmake ninja-build libcaf-dev", done.stderr)
        self.assertNotIn("not a Debian system", self.run_it("distill").stderr)

    def test_a_missing_tool_on_another_system_is_named(self):
        (self.tools / "dpkg-query").unlink()
        (self.tools / "ninja").unlink()
        done = self.run_it("distill")
        self.assertEqual(done.returncode, 3)
        self.assertIn("not found here: ninja\n", done.stderr)

    # Configuration and build

    def test_a_second_run_neither_configures_nor_builds_nor_talks(self):
        self.run_it("distill")
        before = self.calls()
        self.assertEqual(self.run_it("distill").stderr, "")
        self.assertEqual(self.calls(), before)

    def test_tests_are_added_to_the_build_and_stay(self):
        self.run_it("distill")
        self.assertIn("-DMAESTRO_BUILD_TESTS=OFF", self.calls("cmake")[-1])
        done = self.run_it("test", "-R", "two words")
        self.assertIn("-DMAESTRO_BUILD_TESTS=ON", self.calls("cmake")[-1])
        self.assertEqual(done.stdout.splitlines()[-1], "100% tests passed")
        self.assertIn("-R two words", done.stdout)
        self.run_it("distill")
        self.assertEqual(len(self.calls("cmake")), 2)

    def test_the_cuda_backend_is_built_where_a_gpu_is_found_or_on_request(self):
        self.run_it("distill")
        self.assertIn("-DMAESTRO_CUDA=OFF", self.calls("cmake")[-1])
        self.run_it("distill", MAESTRO_CUDA="ON")
        self.assertIn("-DMAESTRO_CUDA=ON", self.calls("cmake")[-1])
        configurations = len(self.calls("cmake"))
        self.run_it("distill")  # the backend is found in a folder
        self.assertFalse(any("MAESTRO_CUDA=OFF" in call for call in self.calls("cmake")[configurations:]))
        shutil.rmtree(self.clone / "build")
        self.make_script(self.tools / "nvidia-smi", "printf '8.0\\n9.0\\n9.0\\n'")
        self.run_it("distill")
        options = self.calls("cmake")[-1].split()
        self.assertIn("-DMAESTRO_CUDA=AUTO", options)
        self.assertIn("-DCMAKE_CUDA_ARCHITECTURES=80;90", options)

    def test_a_build_names_its_files_and_about_how_long_it_takes(self):
        (self.state / "steps").write_text("".join(f"Building CXX object a{at}.o\n" for at in range(600)) + "Linking b\n")
        shown = self.run_it("distill", MAESTRO_JOBS="2").stderr
        self.assertIn("run: building release: 600 files, about 20 minutes without a compiler cache\n", shown)

    def test_an_app_builds_only_the_program(self):
        self.run_it("distill")
        self.assertTrue(self.calls("ninja")[0].endswith(" maestro"), self.calls())

    def test_a_build_without_a_terminal_shows_tenths_and_no_compiler_lines(self):
        shown = self.run_it("distill").stderr
        self.assertIn("\n  50% built\n", shown)
        self.assertNotIn("half", shown)

    def test_a_failed_build_shows_the_first_error_and_runs_nothing(self):
        (self.state / "build-fails").touch()
        done = self.run_it("distill")
        self.assertEqual(done.returncode, 1)
        self.assertIn("a.cpp:1: error: no", done.stderr)
        self.assertNotIn("fine", done.stderr)
        self.assertEqual(done.stdout, "")

    def test_a_clone_that_moved_is_configured_afresh(self):
        self.run_it("distill")
        moved = self.top / "moved"
        self.clone.rename(moved)
        self.run_it("distill", script=moved / "run")
        self.assertIn(" --fresh ", self.calls("cmake")[-1])

    def test_changed_flags_configure_afresh_and_an_unset_variable_keeps_them(self):
        self.run_it("distill", CXXFLAGS="-O1 -g")
        self.run_it("distill")
        self.assertEqual(len(self.calls("cmake")), 1)
        self.run_it("distill", CXXFLAGS="-O2")
        self.assertIn(" --fresh ", self.calls("cmake")[-1])
        self.assertEqual(len(self.calls("cmake")), 2)

    def test_changed_presets_configure_again(self):
        self.run_it("distill")
        with open(self.clone / "CMakePresets.json", "a", encoding="utf-8") as presets:
            presets.write("\n")
        self.run_it("distill")
        self.assertEqual(len(self.calls("cmake")), 2)

    def test_the_build_folder_can_be_chosen(self):
        self.run_it("distill", MAESTRO_BUILD_DIR="else where")
        self.assertTrue((self.top / "else where" / "release" / "build.ninja").exists())
        self.assertFalse((self.clone / "build").exists())

    def test_a_clone_that_cannot_be_written_is_built_in_the_cache_folder(self):
        (self.clone / "build").write_text("a file where the folder would be, which stops root as well")
        done = self.run_it("distill")
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertTrue(list((self.top / "home" / ".cache" / "maestro").glob("build-*/release/build.ninja")))

    def test_sanitizers_have_build_folders_of_their_own(self):
        self.assertIn(f"--test-dir {self.clone}/build/tsan ", self.run_it("sanitize", "thread", "-R", "x").stdout)
        self.assertIn("-L unit", self.run_it("sanitize", "address").stdout)
        self.assertIn("-R ^(a_tests|b_tests)$", self.run_it("sanitize", "address", "a_tests", "b_tests").stdout)
        self.assertEqual(self.run_it("sanitize", "memory").returncode, 2)

    # Benchmarks and help

    def test_benchmarks_are_listed_and_run_with_the_build_at_hand(self):
        self.make_script(self.clone / "benchmarks" / "transfer" / "run", 'echo "$MAESTRO_BINARY_DIR: $*"')
        self.assertEqual(self.run_it("bench").stdout, "benchmarks: transfer\n")
        self.assertEqual(self.run_it("bench", "transfer", "a").stdout, f"{self.clone}/build/release: a\n")
        done = self.run_it("bench", "transfre")
        self.assertEqual(done.returncode, 2)
        self.assertIn("no benchmark 'transfre'; there are: transfer", done.stderr)

    def make_fuzz_target(self, program):
        """Makes a target `toy` with a seed and a file of another test; `program` takes the place of its fuzzer."""
        seeds = self.clone / "tests" / "fuzz" / "corpus" / "toy"
        seeds.mkdir(parents=True)
        (seeds / "small").touch()
        (self.clone / "tests" / "fuzz" / "toy_target.cpp").touch()
        (self.clone / "tests" / "fuzz" / "references.txt").write_text("toy tests/*/own.json\nother tests/*\n")
        (self.clone / "tests" / "data").mkdir()
        (self.clone / "tests" / "data" / "own.json").touch()
        self.make_script(self.clone / "build" / "fuzz" / "bin" / "fuzz_toy", program)

    def test_a_fuzz_target_runs_for_its_seconds_on_all_its_seeds(self):
        self.make_fuzz_target('echo "$*"; for last; do :; done; ls "$last"')
        self.assertEqual(self.run_it("fuzz").stdout.split(), ["fuzz", "targets:", "toy"])
        done = self.run_it("fuzz", "toy", "--seconds", "7")
        self.assertEqual(done.returncode, 0, done.stderr)
        for text in ("-max_total_time=7 ", "-rss_limit_mb=2048 -timeout=10 ", "small\n", "own.json\n"):
            self.assertIn(text, done.stdout)
        self.assertIn(" fuzz_toy", self.calls("ninja")[-1])
        self.assertEqual(self.run_it("fuzz", "toys").returncode, 2)
        self.assertEqual(self.run_it("fuzz", "toy", "--seconds", "x").returncode, 2)

    def test_a_finding_of_a_fuzz_target_is_named_with_the_command_that_repeats_it(self):
        self.make_fuzz_target('for word; do case $word in -artifact_prefix=*) touch "${word#*=}crash-1";; esac; done; exit 1')
        done = self.run_it("fuzz", "toy")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"run: finding: \S.*/bin/fuzz_toy -rss_limit_mb=2048 -timeout=10 \S.*/findings/toy/crash-1\n")

    def test_help_builds_nothing(self):
        for arguments in ((), ("help",), ("--help",)):
            self.assertIn("usage: ./run", self.run_it(*arguments).stdout)
        self.assertEqual(self.calls(), [])

    def test_commands_that_talk_to_a_run_use_the_program_that_is_there_and_build_nothing(self):
        commands = (("help", "train.steps"), ("status",), ("runs", "--json"), ("maestro", "watch"), ("stop", "runs/a"))
        self.missing("g++", "libcaf-dev")
        for command in commands:
            done = self.run_it(*command)
            self.assertEqual((done.returncode, done.stdout), (3, ""), done.stderr)
            words = " ".join(command[command[0] == "maestro":])
            self.assertEqual(done.stderr, f"run: the program is not built yet, and '{words.split()[0]}' builds nothing; "
                                          f"build it and run the command: ./run --build {words}\n")
        self.make_script(self.clone / "build" / "release" / "bin" / "maestro", 'echo "there: $*"; exit 5')
        for command in commands:
            done = self.run_it(*command)
            self.assertEqual((done.returncode, done.stderr), (5, ""))
            self.assertTrue(done.stdout.startswith("there: "))
        self.assertEqual(self.calls(), [])

    def test_help_about_a_key_is_built_on_request(self):
        done = self.run_it("--build", "help", "train.steps")
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertIn("train.steps", done.stdout)


if __name__ == "__main__":
    unittest.main()
