#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The document check reports faults in small trees, and --write updates copies and table."""
import pathlib
import tempfile
import unittest

import check_docs
import check_layers
import markdown_width

SPDX = "// SPDX-License-Identifier: Apache-2.0\n"
HEADER = SPDX + ("// A ring.\n//\n// RG-1: nothing is lost\n//       or doubled.\n// RG-2 (motion): it turns.\n"
                 "#pragma once\n")
NAMED = HEADER.replace("RG-1:", "RG-1 (no loss):")
README = f"# x\n<!-- file: app.cpp -->\n```cpp\n{SPDX}int main() {{}}\n```\n[ring](runtime/ring.hpp)\n"
HOUSE = "[Invariants](invariants.md)\n"
LIST = """
[runtime/ring.hpp](../runtime/ring.hpp)
- **RG-1** nothing is lost or doubled.
- **RG-2** (motion) it turns.
"""
LONG = "word " * 25 + "end."


class CheckDocs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.put("runtime/ring.hpp", HEADER)
        self.put("app.cpp", SPDX + "int main() {}\n")
        self.put("README.md", README)
        self.put("docs/house.md", HOUSE)

    def put(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def problems(self):
        return [problem.replace(str(self.root) + "/", "") for problem in check_docs.problems(self.root)]

    def invariant_problems(self):
        return list(check_docs.invariant_problems(self.root))

    def test_a_true_tree_passes(self):
        self.assertEqual(self.problems(), [])

    def test_dc1_a_code_block_that_differs_from_its_file_is_found_and_mended(self):
        self.put("app.cpp", SPDX + "int main() { return 1; }\n")
        self.assertEqual(self.problems(), ["README.md: its copy of app.cpp differs"])
        self.assertEqual(check_docs.main([str(self.root), "--write"]), 0)
        self.assertIn("return 1;", (self.root / "README.md").read_text())

    def test_dc1_a_code_block_of_a_missing_file_is_found(self):
        (self.root / "app.cpp").unlink()
        self.assertEqual(self.problems(), ["README.md: shows app.cpp, which is not there"])

    def test_dc2_the_page_of_invariants_names_them_with_their_header(self):
        self.assertTrue(check_docs.invariant_page(self.root).endswith(LIST))

    def test_dc3_a_dead_link_is_found_but_not_one_inside_code_or_to_the_page_of_invariants(self):
        self.put("docs/house.md", HOUSE + "[gone](../gone.md)\n```\nx[0](no_link)\n```\n")
        self.assertEqual(self.problems(), ["docs/house.md: links to ../gone.md, which is not there"])

    def test_dc3_links_of_the_documents_beside_the_readme_are_checked(self):
        self.put("SECURITY.md", "[gone](gone.md)\n")
        self.assertEqual(self.problems(), ["SECURITY.md: links to gone.md, which is not there"])

    def test_dc4_named_cited_invariants_of_one_header_and_its_source_pass(self):
        self.put("runtime/ring.hpp", NAMED)
        self.put("runtime/ring.cpp", SPDX + "// RG-3 (order): first in, first out.\n// RG-1: cited here.\n")
        self.put("tests/ring_test.cpp", SPDX + "// RG-1, RG-2 and RG-3\n")
        self.assertEqual(self.invariant_problems(), [])
        self.assertEqual(check_docs.main([str(self.root), "--invariants"]), 0)

    def test_dc4_an_invariant_without_a_name_or_a_test_is_found(self):
        self.put("tests/ring_test.cpp", SPDX + "// RG-1 and RG-20\n")
        self.assertEqual(self.invariant_problems(), ["runtime/ring.hpp: RG-1 has no name; write 'RG-1 (name): ...'",
                                                     "runtime/ring.hpp: RG-2 is cited by no file below tests/"])
        self.assertEqual(check_docs.main([str(self.root), "--invariants"]), 1)

    def test_dc4_a_prefix_of_two_headers_and_a_code_that_is_defined_twice_are_found(self):
        self.put("runtime/ring.hpp", NAMED)
        self.put("tests/ring_test.cpp", SPDX + "// RG-1, RG-2, RG-7\n")
        self.put("transport/ring.hpp", SPDX + "// RG-2 (again): x.\n// RG-7 (new): y.\n")
        wrong = ["RG-2 is defined in", "the prefix of RG-2 belongs to", "the prefix of RG-7 belongs to"]
        self.assertEqual([problem.removesuffix(", too") for problem in self.invariant_problems()],
                         [f"transport/ring.hpp: {each} runtime/ring.hpp" for each in wrong])

    def test_dc4_a_document_that_cites_a_code_of_no_header_is_found(self):
        self.put("runtime/ring.hpp", NAMED)
        self.put("tests/ring_test.cpp", SPDX + "// RG-1, RG-2\n")
        self.put("docs/more.md", "It turns (RG-2), as GPT-2 does not (RG-4).\n")
        self.assertEqual(self.invariant_problems(), ["docs/more.md: cites RG-4, which no header defines"])

    def test_dc5_a_source_or_script_without_its_licence_in_two_lines_is_found(self):
        line = "# SPDX-License-Identifier: Apache-2.0\n"
        self.put("good.py", f"#!/usr/bin/env python3\n{line}")
        self.put("good", f"#!/bin/sh\n{line}")
        self.put("data.toml", "x = 1\n")
        self.put("data", "no script\n")
        self.put("late.cmake", f"#\n#\n{line}")
        self.put("empty.hpp", "")
        self.put("runtime/CMakeLists.txt", "project(x)\n")
        self.put("script", "#!/bin/sh\n")
        wanted = "the first two lines lack 'SPDX-License-Identifier: Apache-2.0'"
        self.assertEqual(self.problems(), [f"{file}: {wanted}" for file in
                                           ("empty.hpp", "late.cmake", "runtime/CMakeLists.txt", "script")])

    def test_dc6_the_table_of_rooms_is_that_of_the_layer_check(self):
        table = "\n".join(check_layers.table())
        self.put("docs/rooms.md", f"<!-- rooms -->\n{table}\n<!-- end of rooms -->\n")
        self.assertEqual(self.problems(), [])
        self.put("docs/rooms.md", "<!-- rooms -->\n| kitchen |\n<!-- end of rooms -->\n")
        self.assertEqual(self.problems(), ["docs/rooms.md: its table of rooms differs from check_layers.py --table"])
        self.assertEqual(check_docs.main([str(self.root), "--write"]), 0)
        self.assertIn(table, (self.root / "docs/rooms.md").read_text())

    def test_dc8_a_long_paragraph_is_found_and_wrapped(self):
        self.put("docs/wide.md", f"# {LONG}\n\n{LONG}\n")
        self.assertEqual(self.problems(), [f"docs/wide.md:3: has {len(LONG)} columns, at most 100; "
                                           "check_docs.py . --wrap wraps it"])
        self.assertEqual(check_docs.main([str(self.root), "--wrap"]), 0)
        self.assertEqual(max(map(len, (self.root / "docs/wide.md").read_text().splitlines()[1:])), 99)

    def test_a_missing_readme_is_found(self):
        (self.root / "README.md").unlink()
        self.assertEqual(self.problems(), ["README.md is missing"])

    def test_dc7_another_version_is_found_and_mended(self):
        self.put("CMakeLists.txt", "# " + SPDX[3:] + "project(maestro VERSION 1.2.3 LANGUAGES CXX)\n")
        self.put("apps/python/pyproject.toml", 'name = "y"\nversion = "1.2.3"\n')
        self.put("clients/python/pyproject.toml", 'name = "x"\nversion = "1.2.2"\n')
        self.put("share/maestro/kubernetes.yml", "image: r.example/maestro:1.2.3\nimage: r.example/maestro:1.2.1\n")
        self.assertEqual(self.problems(), [
            "clients/python/pyproject.toml: has version 1.2.2, CMakeLists.txt has 1.2.3",
            "share/maestro/kubernetes.yml: has version 1.2.1, 1.2.3, CMakeLists.txt has 1.2.3"])
        self.assertEqual(check_docs.main([str(self.root), "--write"]), 0)
        self.assertEqual((self.root / "clients/python/pyproject.toml").read_text(), 'name = "x"\nversion = "1.2.3"\n')


class Wrap(unittest.TestCase):
    def wraps(self, text, *lines):
        self.assertEqual(markdown_width.wrap(text).split("\n"), list(lines))
        self.assertEqual(markdown_width.wrap("\n".join(lines)), "\n".join(lines))
        self.assertEqual(list(markdown_width.too_long("\n".join(lines))), [])

    def keeps(self, text):
        self.wraps(text, *text.split("\n"))

    def test_paragraphs_and_items_keep_their_indentation(self):
        for first, rest in (("- ", "  "), ("10. ", "    "), ("    - ", "      ")):
            with self.subTest(first):
                words = (101 - len(first)) // 5
                self.wraps(f"- outer\n{first}{LONG}", "- outer", first + "word " * (words - 1) + "word",
                           rest + "word " * (25 - words) + "end.")

    def test_short_lines_of_a_long_paragraph_are_filled_and_other_paragraphs_kept(self):
        self.wraps(f"one\ntwo\n\nthree\n{'x' * 90} four fives\n- six\n- seven",
                   "one", "two", "", f"three {'x' * 90}", "four fives", "- six", "- seven")

    def test_code_spans_links_and_tags_are_not_broken(self):
        for atom in ("`a  b` ", "``a ` b`` ", "[a](b.md 'c d') ", 'a <a href="x">y</a> ', "[a](b_(c).md) "):
            with self.subTest(atom):
                wrapped = markdown_width.wrap("x " + atom * 40).split("\n")
                self.assertGreater(len(wrapped), 1)
                self.assertEqual("".join(line + " " for line in wrapped), "x " + atom * 40)
        self.keeps("`" + "a b " * 30 + "`")

    def test_no_line_begins_with_the_begin_of_a_block(self):
        for word in ("-", "+", "*", "1.", "2)", "#", ">", "|", "<br>", "---", "===", "```x```", "[x]: y", "!!!"):
            with self.subTest(word):
                self.wraps(f"{'x' * 91} 12345678 {word} y", "x" * 91, f"12345678 {word} y")

    def test_other_blocks_are_kept(self):
        for block in (f"# {LONG}", f"{LONG}\n===", f"> {LONG}\n{LONG}", f"| {LONG} |\n|---|",
                      f"{LONG} | x\n---|---\n1 | 2",
                      f"```\n{LONG}\n\n{LONG}\n```", f"- ~~~ x\n  {LONG}\n  ~~~", f"text\n\n    {LONG}",
                      f"- item\n\n      {LONG}", f"<p>\n{LONG}\n</p>", f"<!-- {LONG} -->", f"!!! note\n    {LONG}",
                      f"[x]: {LONG}", f"[{LONG}](x.md)", f"{LONG}  \n{LONG}", f"{LONG}\\\n{LONG}",
                      f"<!-- keys -->\n\n{LONG}\n<!-- end of keys -->"):
            with self.subTest(block):
                self.keeps(block)

    def test_text_after_other_blocks_is_wrapped(self):
        for block in ("```\nx\n```", "<!-- x -->", "# x", "<!-- keys -->\nx\n<!-- end of keys -->", "| a |\n|---|",
                      "    code\n"):
            with self.subTest(block):
                self.assertIn("word\nword", markdown_width.wrap(f"{block}\n{LONG}"))


if __name__ == "__main__":
    unittest.main()
