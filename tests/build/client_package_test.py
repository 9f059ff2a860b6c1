#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python client: setup.py packs it with generated code for its Thrift interfaces, which a clone lacks."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE = {"_control/Control.py", "_control/ttypes.py", "_served/ServedModule.py", "_served/ttypes.py"}


class ClientPackage(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.top = Path(folder.name).resolve()
        self.client = self.top / "clone/clients/python"
        left_out = shutil.ignore_patterns("_control", "_served", "build", "*.egg-info", "__pycache__")
        shutil.copytree(ROOT / "clients/python", self.client, ignore=left_out)
        for interface in ("control", "served"):
            (self.top / "clone/actors" / interface).mkdir(parents=True)
            shutil.copy(ROOT / f"actors/{interface}/{interface}.thrift", self.top / "clone/actors" / interface)

    def python(self, *words, folder=None, **environment):
        return subprocess.run([sys.executable, "-B", *words], cwd=folder or self.client, capture_output=True, text=True,
                              env={**os.environ, **environment})

    def assert_has_code(self, package):
        self.assertLessEqual(CODE, {file.relative_to(package).as_posix() for file in package.rglob("*.py")})
        self.assertTrue((package / "_served/ttypes.py").read_text().startswith("# SPDX-License-Identifier: Apache-2.0\n"))

    def test_an_import_without_the_code_names_the_command_that_makes_it(self):
        done = self.python("-c", "import maestro_client.serve")
        self.assertEqual(done.stderr.splitlines()[-1], "ImportError: maestro_client lacks the code of its Thrift interfaces; "
                                                       f"this command makes it: pip install {self.client}")

    def test_a_copy_has_the_code_of_its_interfaces_alone(self):
        for _ in range(2):
            done = self.python("setup.py", "copy", self.top / "made", "thrift")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assert_has_code(self.top / "made/maestro_client")
        self.assertFalse((self.client / "maestro_client/_served").exists())

    def test_a_clone_without_the_compiler_is_refused_in_a_line(self):
        done = self.python("setup.py", "copy", self.top / "made", "no-thrift")
        self.assertEqual((done.returncode, len(done.stderr.splitlines())), (1, 1))
        self.assertIn("needs the Thrift compiler, and 'no-thrift' is not installed", done.stderr)

    @unittest.skipIf(importlib.util.find_spec("setuptools") is None, "setuptools is not installed for this Python")
    def test_a_source_package_needs_no_compiler(self):
        done = self.python("setup.py", "--quiet", "sdist", "--dist-dir", self.top)
        self.assertEqual(done.returncode, 0, done.stderr)
        (archive,) = self.top.glob("*.tar.gz")
        shutil.unpack_archive(archive, self.top / "unpacked")
        (source,) = (self.top / "unpacked").iterdir()
        self.assert_has_code(source / "maestro_client")
        done = self.python("setup.py", "--quiet", "build_py", "--build-lib", self.top / "built", folder=source, PATH="/nowhere")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assert_has_code(self.top / "built/maestro_client")


if __name__ == "__main__":
    unittest.main()
