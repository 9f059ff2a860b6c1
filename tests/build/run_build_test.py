#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds of the `run` script with the real CMake, Ninja and compiler, on a clone with a small program."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from run_clone import ROOT, STANDINS, RunClone

CMAKE_LISTS = """cmake_minimum_required(VERSION 3.25)
project(maestro VERSION 1.2.3 LANGUAGES CXX)
file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/*.cpp")
add_executable(maestro ${sources})
target_include_directories(maestro PRIVATE "${PROJECT_SOURCE_DIR}/include")
set_target_properties(maestro PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 2 RUNTIME_OUTPUT_DIRECTORY bin)
"""
WITH_CACHE = CMAKE_LISTS.replace("LANGUAGES CXX)\n", "LANGUAGES CXX)\nset(CMAKE_CXX_COMPILER_LAUNCHER ccache)\n")
PRESETS = """{"version": 6, "configurePresets": [{"name": "release", "generator": "Ninja",
  "binaryDir": "${sourceDir}/build/${presetName}"}]}"""


class RunBuild(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.top = Path(folder.name).resolve()
        self.clone = self.top / "clone"
        self.clone.mkdir()
        shutil.copy(ROOT / "run", self.clone)
        shutil.copytree(ROOT / "cmake" / "run", self.clone / "cmake" / "run")
        tools = self.top / "tools"
        RunClone.make_script(tools / "dpkg-query", STANDINS["dpkg-query"])
        RunClone.make_script(tools / "apt-get", "exit 100")
        RunClone.make_script(tools / "compile", f'case " $* " in *" -E "*) ;; *" -c "*unity_*) echo >>"{self.top}/compiled";; esac\n'
                                                f'exec "{shutil.which("c++")}" "$@"')
        (self.top / "missing").touch()
        unset = ("CC", "CFLAGS", "CXXFLAGS", "LDFLAGS", "CCACHE_BASEDIR", "CCACHE_DISABLE", "CCACHE_NOHASHDIR", "MAESTRO_BUILD_DIR")
        self.environment = {name: value for name, value in os.environ.items() if name not in unset}
        self.environment |= {"PATH": f"{tools}:{os.environ['PATH']}", "STATE": str(self.top), "CXX": str(tools / "compile"),
                             "CCACHE_DIR": str(self.top / "ccache"), "MAESTRO_CUDA": "OFF"}
        self.write("CMakeLists.txt", CMAKE_LISTS)
        self.write("CMakePresets.json", PRESETS)
        self.write("include/part.hpp", "int part();\n")
        for at in range(3):
            self.write(f"part{at}.cpp", f'#include "part.hpp"\nstatic int part{at}() {{ return {at}; }}\n')
        self.write("main.cpp", '#include <cstdio>\n#include "part.hpp"\nint main() { std::puts("the program"); }\n')

    def write(self, name, text):
        path = self.clone / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def run_it(self):
        """Runs the program; returns the script's lines and the number of compilations."""
        compiled = self.top / "compiled"
        compiled.write_text("")
        done = subprocess.run([self.clone / "run", "train"], env=self.environment, stdin=subprocess.DEVNULL, check=False,
                              text=True, capture_output=True)
        self.assertEqual((done.returncode, done.stdout), (0, "the program\n"), done.stderr)
        return done.stderr, len(compiled.read_text())

    def test_only_a_changed_clone_is_built_and_nothing_is_said_of_others(self):
        lines, compiled = self.run_it()
        self.assertIn("run: building release: 2 files, about 1 minute without a compiler cache\n", lines)
        self.assertEqual((compiled, self.run_it()), (2, ("", 0)))
        changes = {"a source": lambda: self.write("main.cpp", '#include <cstdio>\nint main() { std::puts("the program"); } // x\n'),
                   "a header": lambda: self.write("include/part.hpp", "int part(int);\n"),
                   "a new source": lambda: self.write("part3.cpp", "static int part3() { return 3; }\n"),
                   "a removed source": (self.clone / "part3.cpp").unlink,
                   "a CMake file": lambda: self.write("CMakeLists.txt", CMAKE_LISTS + "add_compile_definitions(A=1)\n"
                                                      "target_compile_definitions(maestro PRIVATE B=1)\n"),
                   "a removed program": (self.clone / "build/release/bin/maestro").unlink}
        for name, change in changes.items():
            with self.subTest(name):
                change()
                self.assertIn("run: building release", self.run_it()[0])
                self.assertEqual(self.run_it(), ("", 0))
        self.environment["CXXFLAGS"] = "-O1"
        self.assertIn("run: building release: 2 files", self.run_it()[0])
        self.assertEqual(self.run_it(), ("", 0))

    @unittest.skipUnless(shutil.which("ccache"), "without a compiler cache a moved clone is compiled again")
    def test_a_moved_clone_keeps_its_objects(self):
        self.write("CMakeLists.txt", WITH_CACHE)
        self.assertEqual(self.run_it()[1], 2)
        self.clone = self.clone.rename(self.top / "another place")
        lines, compiled = self.run_it()
        self.assertIn("run: configuring (release)\n", lines)
        self.assertEqual((compiled, self.run_it()), (0, ("", 0)))


if __name__ == "__main__":
    unittest.main()
