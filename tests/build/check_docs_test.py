#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The document check finds what is wrong in small trees, and --write mends what it can."""
import pathlib
import tempfile
import unittest

import check_docs

HEADER = "// A ring.\n//\n// RG-1: nothing is lost\n//       or doubled.\n// RG-2: it turns.\n#pragma once\n"
README = "# x\n<!-- file: app.cpp -->\n```cpp\nint main() {}\n```\n[ring](runtime/ring.hpp)\n"
HOUSE = """<!-- invariants -->
[runtime/ring.hpp](../runtime/ring.hpp)
- **RG-1** nothing is lost or doubled.
- **RG-2** it turns.
<!-- end of invariants -->
"""


class CheckDocs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.put("runtime/ring.hpp", HEADER)
        self.put("app.cpp", "int main() {}\n")
        self.put("README.md", README)
        self.put("docs/house.md", HOUSE)

    def put(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def problems(self):
        return [problem.replace(str(self.root) + "/", "") for problem in check_docs.problems(self.root)]

    def test_a_true_tree_passes(self):
        self.assertEqual(self.problems(), [])

    def test_dc1_a_code_block_that_differs_from_its_file_is_found_and_mended(self):
        self.put("app.cpp", "int main() { return 1; }\n")
        self.assertEqual(self.problems(), ["README.md: its copy of app.cpp differs"])
        self.assertEqual(check_docs.main([str(self.root), "--write"]), 0)
        self.assertIn("return 1;", (self.root / "README.md").read_text())

    def test_dc1_a_code_block_of_a_missing_file_is_found(self):
        (self.root / "app.cpp").unlink()
        self.assertEqual(self.problems(), ["README.md: shows app.cpp, which is not there"])

    def test_dc2_new_and_gone_invariants_are_found_and_mended(self):
        self.put("runtime/ring.hpp", HEADER.replace("RG-2", "RG-3"))
        self.assertEqual(self.problems(), ["docs/house.md: lacks RG-3 of runtime/ring.hpp",
                                           "docs/house.md: lists RG-2 of runtime/ring.hpp, which has none"])
        self.assertEqual(check_docs.main([str(self.root), "--write"]), 0)
        self.assertIn("**RG-1** nothing is lost or doubled.\n- **RG-3**", (self.root / "docs/house.md").read_text())

    def test_dc3_a_dead_link_is_found_but_not_one_inside_code(self):
        self.put("docs/house.md", HOUSE + "[gone](../gone.md)\n```\nx[0](no_link)\n```\n")
        self.assertEqual(self.problems(), ["docs/house.md: links to ../gone.md, which is not there"])

    def test_a_missing_readme_is_found(self):
        (self.root / "README.md").unlink()
        self.assertEqual(self.problems(), ["README.md is missing"])


if __name__ == "__main__":
    unittest.main()
