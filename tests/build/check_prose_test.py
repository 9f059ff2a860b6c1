#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small trees that the prose check has to accept or to refuse with the exceeded limit."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).with_name("check_prose.py")
CLEAN = "The lane runs a pass when its inputs are ready. "  # ten words


def check(files, *arguments):
    """Runs the script on a tree of {path: text}; returns its exit status and output."""
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
        self.accepts({"a.hpp": "// Returns the order of passes.\nint order();\n", "README.md": "# Title\n\nText.\n"})

    def test_each_limit_is_held_in_every_kind_of_file(self):
        for word, limit in (("What", "what: "), ("asks", "say, tell, ask, know: "), ("one", "one, ones: ")):
            for path, text in (("a.hpp", f"// {word}\n"), ("a.cu", f"int x;  // {word}\n"),
                               ("a.thrift", f"/** {word} */\n"), ("a.md", f"{word}\n"), ("a.cmake", f"# {word}\n"),
                               ("run", f"#!/usr/bin/env bash\n# {word}\n"), ("a.py", f'"""{word}"""\n'),
                               ("b.py", f"x = 1  # {word}\n")):
                with self.subTest(word=word, path=path):
                    self.refuses({path: text}, limit)

    def test_strings_code_and_code_blocks_do_not_count(self):
        self.accepts({
            "a.cpp": 'const char* what = "say what // one";\nbool known(int one);\n',
            "a.py": 'what = "say what"\nprint("one  # what")\n',
            "a.sh": 'say "what"\n',
            "a.md": "```\nwhat one\n```\nUse `what()` and [it](what.md).\n",
            "a.json": '{"what": "one"}\n',
        })

    def test_words_within_words_do_not_count(self):
        self.accepts({"a.hpp": "// Whatever is alone, unknown, or an essay on tasks, somewhat prone.\n"})

    def test_limits_are_rates_over_the_whole_tree(self):
        files = {"a.hpp": "// " + CLEAN * 100 + "\n", "b.hpp": "// What is that and so on here for ten\n"}
        self.accepts(files)  # 1 of 1,009 words
        self.refuses({**files, "c.md": "What.\n"}, "what: 1.98")

    def test_list_prints_every_place_below_the_given_paths(self):
        files = {"a/b.hpp": "\n// Tells a story.\n", "c/d.hpp": "// Tells another.\n"}
        _, output = check(files, "--list", "a")
        self.assertIn("a/b.hpp:2: say, tell, ask, know: // Tells a story.", output)
        self.assertNotIn("c/d.hpp", output)
        self.assertIn("(1 of 3)", output)

    def test_build_folders_of_a_plain_copy_are_left_out(self):
        self.accepts({"build/a.hpp": "// What one tells.\n"})


if __name__ == "__main__":
    unittest.main()
