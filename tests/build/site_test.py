#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The documentation builds as web pages without a warning; links have targets, nothing is loaded from elsewhere.

A browser that opens the pages from disk searches and copies. Exits with 77 (skipped) if mkdocs is not installed.
"""

import html.parser
import json
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.parse
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.S | re.M)
CLICKS = """<script>
const copied = [];
Object.defineProperty(navigator, "clipboard", {value: {writeText: async (text) => { copied.push(text); }}});
addEventListener("load", () => {
  for (const button of document.querySelectorAll("pre > button")) button.click();
  document.body.dataset.copied = JSON.stringify(copied);
});
</script>"""
needs_browser = unittest.skipUnless(BROWSER, "no browser: install chromium")
LOADED = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src"}


class Page(html.parser.HTMLParser):
    def __init__(self, file):
        super().__init__()
        self.ids, self.links, self.loads, self.body = set(), set(), set(), {}
        self.feed(file if isinstance(file, str) else file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.ids |= {values[name] for name in ("id", "name") if values.get(name)}
        if tag == "body":
            self.body = values
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
                target = (file.parent / path).resolve() if path else file
                with self.subTest(page=file.name, link=link):
                    self.assertTrue(target.is_file(), "no such file")
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

    def shown(self, address):
        """Returns the page as the browser has built it, and its complaints."""
        words = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
                 "--disable-component-update", f"--user-data-dir={self.site}/browser", "--enable-logging=stderr",
                 "--virtual-time-budget=20000", "--dump-dom", address]
        done = subprocess.run(words, text=True, capture_output=True, timeout=60, check=True)
        return done.stdout, [line for line in done.stderr.splitlines() if ":CONSOLE" in line]

    def search(self, words):
        page, complaints = self.shown(f"{(self.site / 'search.html').as_uri()}?q={urllib.parse.quote_plus(words)}")
        self.assertEqual(complaints, [])
        return re.search(r'id="mkdocs-search-results".*?>(.*)', page, re.S)[1]

    @needs_browser
    def test_the_search_finds_sections_by_their_words(self):
        found = self.search("what-if trace")
        links = re.findall(r'<article><h3><a href="([^"]+)"', found)
        self.assertIn("planning.html#trace-a-run", links[:5])
        self.assertIn("rehears", self.search("rehearsal").lower())
        for link in links:
            path, _, anchor = link.partition("#")
            self.assertTrue(not anchor or anchor in self.pages[self.site / path].ids, link)
        self.assertIn("No page has these words.", self.search("xylophone"))

    @needs_browser
    def test_pages_are_shown_without_a_complaint(self):
        for name in ("index.html", "planning.html"):
            self.assertEqual(self.shown((self.site / name).as_uri())[1], [])

    @needs_browser
    def test_buttons_copy_blocks_and_the_commands_of_sessions(self):
        for name in ("start", "distil-a-model"):
            clicked = self.site / f"clicked-{name}.html"
            clicked.write_text((self.site / f"{name}.html").read_text().replace("</head>", CLICKS + "</head>"))
            wanted = []
            for language, body in BLOCK.findall((ROOT / f"docs/{name}.md").read_text()):
                commands = re.sub(r"^(?!\$ ).*\n", "", body.replace("\\\n", "\\\0"), flags=re.M)
                wanted.append(re.sub(r"^\$ ", "", commands, flags=re.M).replace("\0", "\n") if language == "console" else body)
            self.assertGreater(len(wanted), 3)
            self.assertEqual(json.loads(Page(self.shown(clicked.as_uri())[0]).body["data-copied"]), wanted)


if __name__ == "__main__":
    if shutil.which("mkdocs") is None:
        print("skipped: mkdocs is not installed")
        sys.exit(77)
    unittest.main()
