#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The documentation builds as web pages without a warning; links have targets, nothing is loaded from elsewhere.

Exits with 77 (skipped) if mkdocs is not installed.
"""

import html.parser
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.parse
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOADED = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src"}


class Page(html.parser.HTMLParser):
    def __init__(self, file):
        super().__init__()
        self.ids, self.links, self.loads = set(), set(), set()
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.ids |= {values[name] for name in ("id", "name") if values.get(name)}
        if tag == "a" and values.get("href"):
            self.links.add(values["href"])
        if tag in LOADED and values.get(LOADED[tag]) and values.get("rel") not in ("canonical", "prev", "next"):
            self.loads.add(values[LOADED[tag]])


class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.site = Path(folder.name).resolve()
        cls.built = subprocess.run(["mkdocs", "build", "--quiet", "--strict", "--config-file", ROOT / "mkdocs.yml",
                                    "--site-dir", cls.site], text=True, capture_output=True)
        cls.pages = {file: Page(file) for file in cls.site.rglob("*.html")}

    def test_it_builds_without_a_warning_with_every_document(self):
        self.assertEqual((self.built.returncode, self.built.stderr), (0, ""))
        names = {file.stem for file in self.pages}
        documents = {file.stem for file in (ROOT / "docs").glob("*.md")}
        self.assertLessEqual(documents | {"index", "benchmarks", "changes", "invariants"}, names)
        navigation = (ROOT / "mkdocs.yml").read_text()
        self.assertEqual([name for name in names - {"404", "search"} if f"{name}.md" not in navigation], [])

    def test_every_link_leads_to_a_page_and_a_heading(self):
        followed = 0
        for file, page in self.pages.items():
            for link in page.links | page.loads if file.stem != "404" else ():
                if re.match(r"(https?|mailto):", link):
                    continue
                path, _, anchor = urllib.parse.unquote(link).partition("#")
                target = (file.parent / path).resolve() if path not in ("", ".") else file
                with self.subTest(page=file.name, link=link):
                    self.assertTrue(target.exists(), "no such file")
                    if anchor and target.suffix == ".html":
                        self.assertIn(anchor, self.pages[target].ids)
                followed += 1
        self.assertGreater(followed, 1000)

    def test_nothing_is_loaded_from_another_place(self):
        for file, page in self.pages.items():
            with self.subTest(page=file.name):
                self.assertEqual([load for load in page.loads if re.match(r"(https?:)?//", load)], [])
        for style in self.site.rglob("*.css"):
            with self.subTest(style=style.name):
                self.assertEqual(re.findall(r"(?:@import|url\()\s*['\"]?https?:[^)'\"]*", style.read_text()), [])


if __name__ == "__main__":
    if shutil.which("mkdocs") is None:
        print("skipped: mkdocs is not installed")
        sys.exit(77)
    unittest.main()
