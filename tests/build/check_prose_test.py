#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The prose check accepts small trees, or refuses them with the exceeded limit."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).with_name("check_prose.py")
CLEAN = "The lane runs a pass when its inputs are ready. "  # ten words


def check(files, *arguments):
    """Runs the script on a tree of {path: text}. Returns its exit status and output."""
    with tempfile.TemporaryDirectory() as folder:
        for path, text in files.items():
            file = Path(folder) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        run = subprocess.run([sys.executable, SCRIPT, folder, *arguments], capture_output=True, text=True, check=False)
        return run.returncode, run.stdout + run.stderr


class ProseCheck(unittest.TestCase):
    def refuses(self, files, limit):
        status, output = check(files)
        self.assertEqual(status, 1, output)
        self.assertIn(limit, output)

    def accepts(self, files):
        status, output = check(files)
        self.assertEqual(status, 0, output)

    def test_clean_comments_pass(self):
        self.accepts({"a.hpp": "/// Returns the order of passes.\nint order();\n", "README.md": "# Title\n\nText.\n"})

    def test_each_limit_is_held_in_every_kind_of_file(self):
        for words, limit in (("those of", "those of: "), ("in which", "of which: "), ("where", "where: "), ("Beside", "behind/"),
                             ("is no lane", "is no NOUN: "), ("pictures", "picture/"),
                             ("the end of the list of passes of a lane", "three of: ")):
            for path, text in (("a.hpp", "// {}\n"), ("a.cu", "int x;  // {}\n"), ("a.thrift", "/** {} */\n"),
                               ("a.md", "{}\n"), ("a.cmake", "# {}\n"), ("run", "#!/usr/bin/env bash\n# {}\n"),
                               ("a.py", '"""{}"""\n'), ("b.py", "x = 1  # {}\n")):
                with self.subTest(words=words, path=path):
                    self.refuses({path: "".join(text.format(words) for _ in range(3))}, limit)

    def test_a_few_places_pass_in_a_small_room(self):
        self.accepts({"a.hpp": "// where\nint x;  // beside\n", "b.hpp": "// where\n"})

    def test_comments_of_fields_and_functions_start_with_a_noun_or_a_verb(self):
        self.refuses({"a.hpp": "int count;  ///< of passes\n"}, "field comment that starts with no noun: 1")
        self.refuses({"a.hpp": "struct A {\n  /// Whether it ended.\n  bool ended();\n};\n"}, "function comment that starts")
        self.accepts({"a.hpp": "int count;  ///< passes of a step\n/// Returns whether it ended.\nbool ended();\n"})

    def test_chains_go_on_over_the_end_of_a_line(self):
        self.refuses({"a.md": "The lanes, those\nof a step.\n" * 3}, "those of: 3")

    def test_messages_of_the_product_count_and_strings_of_tests_do_not(self):
        text = 'fail("the lanes beside it have ended");\n' * 3
        self.refuses({"runtime/ops/a.cpp": text}, "runtime/ops: behind/")
        self.accepts({"tests/ops/a.cpp": text})
        self.accepts({"runtime/ops/a.cpp": 'key("beside");\n' * 3})

    def test_code_and_code_blocks_do_not_count(self):
        self.accepts({
            "a.cpp": "bool whole(int own) { return where(own); }\n" * 3,
            "a.py": "whole = own\n" * 3,
            "a.md": "```\nwhere\n```\nUse `where()` and [it](own.md).\n" * 3,
            "a.json": '{"where": "own"}\n' * 3,
        })

    def test_limits_are_rates_of_a_room(self):
        room = {"runtime/a/a.hpp": "// " + CLEAN * 500 + "\n" + "// where\n" * 4}
        self.accepts({**room, "runtime/b/a.hpp": "// where\n"})  # 4 of 5,004 words
        self.refuses({**room, "runtime/b/a.hpp": "// where\n" * 3}, "runtime/b: where: 3")

    def test_list_prints_every_place_below_the_given_paths(self):
        files = {"a/b.hpp": "\n// Where it ends.\n", "c/d.hpp": "// Where it begins.\n"}
        _, output = check(files, "--list", "a")
        self.assertIn("a/b.hpp:2: where: // Where it ends.", output)
        self.assertNotIn("c/d.hpp", output)

    def test_build_folders_of_a_plain_copy_are_left_out(self):
        self.accepts({"build/a.hpp": "// where\n" * 3})


if __name__ == "__main__":
    unittest.main()
