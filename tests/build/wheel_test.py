#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cmake/package/wheel.py: wheels of a small package, and of the build at hand, which MAESTRO_BUILD names."""

import base64
import csv
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import textwrap
import unittest
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "cmake/package/wheel.py"
BUILD = Path(os.environ.get("MAESTRO_BUILD", "absent"))
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
TOOLS = [tool for tool in ("cc", "patchelf", "strip", "ldd", "cmake", "dpkg-query") if shutil.which(tool) is None]
SYSTEM = re.compile(r"lib(c|m|mvec|pthread|dl|rt|util|resolv|stdc\+\+|gcc_s)\.so")
CUDA = re.compile(r"lib(cuda|cudart|cublas|cublasLt|cudnn\w*|nccl|nvrtc|nvJitLink)\.so")  # from packages of NVIDIA's

SOURCES = {
    "two": "int two() { return 2; }",
    "one": "int two(); int one() { return two() - 1; }",
    "maestro": "int one(); int core() { return one() + 41; }",
    "_core": "int core(); int answer() { return core(); }",
    "program": '#include <stdio.h>\nint core(); int main(int n, char** a) { printf("%d %s\\n", core(), n > 1 ? a[1] : ""); }',
}


@unittest.skipIf(TOOLS, f"not installed: {', '.join(TOOLS)}")
class WheelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.top = Path(folder.name).resolve()

    @classmethod
    def make(cls, build, into=".", status=0):
        folder = cls.top / into
        folder.mkdir(exist_ok=True)
        done = subprocess.run([sys.executable, "-B", SCRIPT, build, folder], check=False, capture_output=True, text=True)
        assert done.returncode == status, done.stderr
        return done.stderr if status else Path(done.stdout.strip())

    def install(self, wheel):
        """Returns the folder of a new environment that has only the wheel."""
        folder = self.top / "environment"
        venv.create(folder)
        done = subprocess.run([sys.executable, "-m", "pip", "--python", folder, "install", "--no-index", "--no-deps", "--no-compile",
                               "--disable-pip-version-check", wheel], check=False, capture_output=True, text=True)
        self.assertIn("Successfully installed maestro-runtime", done.stdout, done.stderr)
        return folder

    def run_in(self, environment, program, *arguments):
        """Runs a program of the environment without the variables of this process."""
        done = subprocess.run([environment / "bin" / program, *arguments], env={}, cwd=self.top, check=False, text=True,
                              capture_output=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def assert_needs_only_the_system(self, site):
        """Returns the number of files whose libraries are the environment's, but for the C and C++ libraries and CUDA's."""
        files = [*site.glob("maestro/*.so"), site / "maestro/_program/bin/maestro", *site.glob("maestro_runtime.libs/*")]
        for file in files:
            for line in subprocess.run(["ldd", file], check=True, capture_output=True, text=True).stdout.splitlines():
                name, arrow, place = line.strip().partition(" => ")
                elsewhere = SYSTEM.match(name) or CUDA.match(name) and "cuda" in file.name
                self.assertTrue(not arrow or elsewhere or place.startswith(str(site)), f"{file}: {line}")
        return len(files)


class SmallPackage(WheelTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.build, cls.other = cls.top / "build", cls.top / "site/one"
        for folder in (cls.build / "bin", cls.build / "lib/maestro", cls.build / "python/maestro", cls.other,
                       cls.top / "site/one-1.0.dist-info", cls.build / "share/maestro", cls.build / "share/man",
                       cls.build / "share/doc"):
            folder.mkdir(parents=True)
        (cls.top / "site/one-1.0.dist-info/LICENSE").write_text("free\n")
        (cls.build / "share/maestro/slurm.sh").write_text("#!/bin/sh\n")
        (cls.build / "share/man/maestro.1").write_text("page\n")
        (cls.build / "share/doc/changelog").write_text("the time of the build\n")
        (cls.build / "cmake_install.cmake").write_text("".join(
            f'file(INSTALL DESTINATION "${{CMAKE_INSTALL_PREFIX}}" USE_SOURCE_PERMISSIONS TYPE DIRECTORY FILES '
            f'"{cls.build}/{part}")\n' for part in ("bin", "lib", "share")))
        (cls.build / "python/maestro/__init__.py").write_text("")
        cls.compile("two", cls.other / "libtwo.so.2", "-shared", "-Wl,-soname,libtwo.so.2")
        cls.compile("one", cls.other / "libone.so.1", "-shared", "-Wl,-soname,libone.so.1", cls.other / "libtwo.so.2")
        own = cls.build / "lib/maestro/libmaestro.so"
        cls.compile("maestro", own, "-shared", "-Wl,-soname,libmaestro.so", cls.other / "libone.so.1")
        cls.compile("_core", cls.build / f"python/maestro/_core{SUFFIX}", "-shared", own)
        cls.compile("program", cls.build / "bin/maestro", own)
        cls.wheel = cls.make(cls.build)

    @classmethod
    def compile(cls, name, file, *options):
        source = cls.top / f"{name}.c"
        source.write_text(SOURCES[name])
        subprocess.run(["cc", "-fPIC", source, *options, "-o", file, f"-Wl,-rpath,{cls.other}:{cls.build}/lib/maestro",
                        "-Wl,--disable-new-dtags"], check=True)

    def hide(self, path):
        """Moves a file or a folder away until the end of the test."""
        hidden = path.rename(self.top / f"hidden-{path.name}")
        self.addCleanup(hidden.rename, path)
        return hidden

    def test_runs_where_its_libraries_are_missing(self):
        environment = self.install(self.wheel)
        self.hide(self.other)
        self.hide(self.build)
        self.assertEqual(self.run_in(environment, "maestro", "an argument"), "42 an argument\n")
        (site,) = environment.glob("lib/python*/site-packages")
        self.assert_needs_only_the_system(site)
        self.assertEqual(self.run_in(environment, "python", "-c", f"import ctypes; print(ctypes.CDLL('{site}/maestro/_core{SUFFIX}').answer())"),
                         "42\n")
        self.assertTrue((environment / "share/man/maestro.1").is_file())
        self.assertTrue(os.access(site / "maestro/_program/share/maestro/slurm.sh", os.X_OK))

    def test_names_its_libraries_by_their_content(self):
        with zipfile.ZipFile(self.wheel) as wheel:
            names = wheel.namelist()
        digest = hashlib.sha256((self.other / "libone.so.1").read_bytes()).hexdigest()[:8]
        self.assertIn(f"maestro_runtime.libs/libone-{digest}.so.1", names)
        self.assertIn("maestro_runtime.libs/libfabric.so.1", names)
        self.assertFalse([name for name in names if SYSTEM.match(Path(name).name) or "share/doc" in name])

    def test_states_name_python_system_and_licences(self):
        made = self.wheel
        version = re.search(r'^version = "(.*)"', (ROOT / "apps/python/pyproject.toml").read_text(), re.MULTILINE)[1]
        python, libc = "cp%d%d" % sys.version_info[:2], os.confstr("CS_GNU_LIBC_VERSION").split()[1].replace(".", "_")
        tag = f"{python}-{python}-manylinux_{libc}_{os.uname().machine}"
        self.assertEqual(made.name, f"maestro_runtime-{version}-{tag}.whl")
        about = f"maestro_runtime-{version}.dist-info"
        with zipfile.ZipFile(made) as wheel:
            self.assertIn(f"\nTag: {tag}\n", wheel.read(f"{about}/WHEEL").decode())
            self.assertIn(f"\nName: maestro-runtime\nVersion: {version}\n", wheel.read(f"{about}/METADATA").decode())
            self.assertEqual(wheel.read(f"{about}/LICENSE"), (ROOT / "LICENSE").read_bytes())
            self.assertEqual(wheel.read(f"{about}/licenses/one/LICENSE"), b"free\n")
            self.assertIn(f"{about}/licenses/libfabric1/copyright", wheel.namelist())
            rows = {name: (digest, size) for name, digest, size in csv.reader(wheel.read(f"{about}/RECORD").decode().splitlines())}
            self.assertEqual(rows.pop(f"{about}/RECORD"), ("", ""))
            self.assertEqual(set(rows), set(wheel.namelist()) - {f"{about}/RECORD"})
            for name, (digest, size) in rows.items():
                content = wheel.read(name)
                expected = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
                self.assertEqual((digest, size), ("sha256=" + expected, str(len(content))))

    def test_has_the_same_bytes_each_time(self):
        self.assertEqual(self.wheel.read_bytes(), self.make(self.build, "again").read_bytes())

    def test_that_cannot_be_made_has_a_line_with_the_reason(self):
        hidden = self.hide(self.other / "libtwo.so.2")
        self.assertRegex(self.make(self.build, status=1), r"^wheel.py: \S+ needs libtwo.so.2, which is not found\n$")
        shutil.copy(hidden, self.other / "libtwo.so.2")
        self.hide(self.top / "site/one-1.0.dist-info/LICENSE")
        self.assertRegex(self.make(self.build, status=1), r"^wheel.py: \S+/lib(one|two).so.\d belongs to no package with a licence\n$")
        self.hide(self.build / f"python/maestro/_core{SUFFIX}")
        self.assertRegex(self.make(self.build, status=1), r"^wheel.py: \S+/python/maestro has 0 Python modules; expected 1\n$")


@unittest.skipUnless(list(BUILD.glob(f"python/maestro/_core{SUFFIX}")), "MAESTRO_BUILD names no build with a module for this Python")
class BuildAtHand(WheelTest):
    def test_trains_in_a_new_environment_with_its_own_libraries(self):
        environment = self.install(self.make(BUILD))
        self.assertRegex(self.run_in(environment, "maestro", "--version"), r"^maestro \d+\.\d+\.\d+\n$")
        (site,) = environment.glob("lib/python*/site-packages")
        self.assertGreater(self.assert_needs_only_the_system(site), 30)
        script = self.top / "train.py"
        script.write_text(textwrap.dedent("""
            import json

            def libraries():
                return {line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}

            before = libraries()
            import maestro

            class Counting(maestro.Corpus):
                vocabulary = 32

                def samples(self, split):
                    return 64 if split == "train" else 8

                def length(self, split, sample):
                    return 12

                def read(self, split, sample):
                    return [(sample + at) % 32 for at in range(12)]

            job = {"name": "counting", "train": {"steps": 2, "global_batch": 8, "out": "out"},
                   "model": {"layers": 1, "width": 32, "heads": 2, "positions": 16, "lr": 1e-2, "replicas": 2}}
            app = maestro.App(job, processes=2)
            data, model = app.source("corpus", Counting()), app.section("model", "decoder_lm")
            app.connect(data.port("tokens"), model.port("tokens"))
            app.connect(data.port("targets"), model.port("targets"))
            result = app.run()
            print(json.dumps([result.last_step, sorted(libraries() - before)]))
        """))
        steps, libraries = json.loads(self.run_in(environment, "python", script).splitlines()[-1])
        self.assertEqual(steps, 2)
        self.assertIn(str(site / "maestro_runtime.libs/libfabric.so.1"), libraries)
        for library in libraries:
            name = Path(library).name
            self.assertTrue(library.startswith(str(site)) or SYSTEM.match(name) or "/lib-dynload/" in library, library)


if __name__ == "__main__":
    unittest.main(verbosity=2)
