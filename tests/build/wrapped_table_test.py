#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A table of operators that wraps another table forwards every call: a missing call would run the CPU's default."""

import collections
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = "runtime/ops/operator_table.hpp"
WRAPPERS = ("runtime/device/cuda/repeating_table.hpp",)


def declarations(path, pattern):
    """How often each method is declared in the header's last class; comments and the destructor are left out."""
    text = re.sub(r"//.*", "", (ROOT / path).read_text(encoding="utf-8"))
    text = text[text.rindex("\nclass "):]
    statements = (" ".join(each.split()) for each in re.split(r"[;{}]", text))
    return collections.Counter(match[1] for each in statements if (match := re.search(pattern, each)))


class AWrappingTable(unittest.TestCase):
    def test_has_every_method_of_the_table(self):
        wanted = declarations(TABLE, r"\bvirtual [^(~]*?\b(\w+)\(")
        self.assertGreater(wanted["cross_entropy_head"], 1)
        for wrapper in WRAPPERS:
            with self.subTest(wrapper):
                self.assertEqual(declarations(wrapper, r"(?<!~)\b(\w+)\(.*\)[^()]* override\b"), wanted)


if __name__ == "__main__":
    unittest.main(verbosity=2)
