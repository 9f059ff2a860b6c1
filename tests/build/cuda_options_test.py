#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Messages and exit statuses of cmake/MaestroCuda.cmake if a part of the CUDA backend is missing; nvcc is a stub."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROJECT = """cmake_minimum_required(VERSION 3.25)
project(probe LANGUAGES CXX)
list(APPEND CMAKE_MODULE_PATH "{root}/cmake")
include(MaestroCuda)
message(STATUS "found=${{MAESTRO_CUDA_FOUND}} missing=${{MAESTRO_CUDA_MISSING}}")
"""


class CudaOptions(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.top = Path(folder.name)
        (self.top / "CMakeLists.txt").write_text(PROJECT.format(root=ROOT))

    def nvcc(self, text):
        path = self.top / "bin" / "nvcc"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    def configure(self, *options, nvcc=None):
        environment = {**os.environ, "CUDACXX": str(nvcc or "")}
        done = subprocess.run(["cmake", "-S", self.top, "-B", self.top / "build", *options], check=False, text=True,
                              env=environment, capture_output=True)
        return done, " ".join((done.stdout + done.stderr).split())

    def assert_left_out(self, why, *options, nvcc=None):
        done, output = self.configure(*options, nvcc=nvcc)
        self.assertEqual(done.returncode, 0, output)
        self.assertIn(f"CUDA backend: left out ({why})", output)
        self.assertIn(f"found=FALSE missing={why}", output)
        self.assertEqual(output.count("left out"), 1)

    def test_off_is_off_whatever_there_is(self):
        self.assert_left_out("built with MAESTRO_CUDA=OFF; MAESTRO_CUDA=ON ./run builds it", "-DMAESTRO_CUDA=OFF")

    def test_an_old_compiler_is_named_with_its_version(self):
        old = self.nvcc('echo "Cuda compilation tools, release 11.8, V11.8.89"')
        self.assert_left_out(f"nvcc 12.4 or newer is needed; {old} is 11.8.89", nvcc=old)

    def test_a_compiler_that_compiles_nothing_is_named(self):
        broken = self.nvcc('[ "$1" = --version ] || exit 1\necho "Cuda compilation tools, release 13.0, V13.0.88"')
        self.assert_left_out(f"{broken} compiles nothing here; see CMakeFiles/CMakeError.log", nvcc=broken)

    def test_sanitizers_leave_it_out(self):
        self.assert_left_out("built with sanitizers, which do not go with nvcc", "-DMAESTRO_SANITIZE=address")

    def test_on_makes_an_error_of_what_is_missing(self):
        old = self.nvcc('echo "Cuda compilation tools, release 12.0, V12.0.1"')
        done, output = self.configure("-DMAESTRO_CUDA=ON", nvcc=old)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(f"MAESTRO_CUDA=ON, but: nvcc 12.4 or newer is needed; {old} is 12.0.1", output)

    @unittest.skipIf(shutil.which("nvcc") is None and not Path("/usr/local/cuda/bin/nvcc").exists(), "there is no nvcc")
    def test_a_library_that_is_missing_or_old_is_named_with_the_variable_for_its_folder(self):
        old = self.top / "old" / "include"
        old.mkdir(parents=True)
        (old / "cudnn.h").touch()
        (old / "cudnn_version.h").write_text("#define CUDNN_MAJOR 8\n")
        library = self.top / "libcudnn.so"
        library.touch()
        done, output = self.configure(f"-DCUDNN_INCLUDE_DIR={old}", f"-DCUDNN_LIBRARY={library}")
        self.assertEqual(done.returncode, 0, output)
        self.assertRegex(output, r"CUDA backend: left out \(CMake found no (cuDNN 9 or newer; give its folder as "
                                 r"CUDNN_ROOT|cuBLASLt; give its folder as CUBLASLT_ROOT)\)")


if __name__ == "__main__":
    unittest.main()
