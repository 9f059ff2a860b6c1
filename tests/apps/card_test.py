#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A run's card: its values equal the record, in the file and in a browser, and nothing leaves the machine."""

import html
import html.parser
import json
import math
import os
import re
import shutil
import signal
import statistics
import struct
import subprocess
import unittest
import zlib

import record_test
from maestro_program import ENDLESS, PATIENCE_S, SystemTest, distillation, language_model

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PHONE, DESKTOP = (390, 844), (1280, 900)
# Shows a page in a frame, since windows have a minimum width, and then becomes the page's content with its measures.
FRAME = """<!DOCTYPE html><meta charset="utf-8"><iframe width="{}" height="{}" style="border: 0" srcdoc="{}"></iframe>
<script>
const frame = document.querySelector("iframe");
frame.onload = () => {{
  const page = frame.contentDocument, measures = {{
    inner: frame.contentWindow.innerWidth,
    scroll: page.documentElement.scrollWidth,
    requests: frame.contentWindow.performance.getEntriesByType("resource").length,
    charts: [...page.querySelectorAll("svg")].filter(svg => svg.getBoundingClientRect().height > 50).length,
  }};
  document.body.innerHTML = page.body.innerHTML;
  Object.assign(document.body.dataset, measures);
}};
</script>
"""


class Card(html.parser.HTMLParser):
    """tables: {title: [[(text, value)]]}; charts: {label: (attributes, {section: points of its moving mean})}."""

    def __init__(self, text):
        super().__init__()
        self.tables, self.charts, self.figures, self.texts = {}, {}, {}, []
        self.row = self.cell = self.chart = self.body = None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "body":
            self.body = attributes
        if tag == "table":
            self.rows = self.tables.setdefault(attributes["data-table"], [])
        if tag == "tr":
            self.row = []
        if tag in ("td", "dd", "dt", "pre"):
            self.cell = ["", attributes.get("data-value")]
        if tag == "svg" and "data-chart" in attributes:
            self.chart = self.charts.setdefault(attributes["data-chart"], (attributes, {}))
        if tag == "polyline" and "mean" in attributes["class"]:
            self.chart[1][attributes["data-line"]] = attributes["points"]

    def handle_endtag(self, tag):
        if tag == "tr" and self.row:
            self.rows.append(self.row)
        if tag == "td":
            self.row.append(tuple(self.cell))
        if tag == "dt":
            self.name = self.cell[0]
        if tag == "dd":
            self.figures[self.name] = float(self.cell[1])
        if tag == "pre":
            self.texts.append(self.cell[0])
        if tag in ("td", "dd", "dt", "pre"):
            self.cell = None

    def handle_data(self, text):
        if self.cell is not None:
            self.cell[0] += text

    def drawn(self, label, section):
        """Returns [(step, value)] of a curve's points, computed from their coordinates."""
        attributes, curves = self.charts[label]
        (x0, x1, step0, step1), (y0, y1, low, high) = (map(float, attributes[name].split()) for name in ("data-x", "data-y"))
        logarithmic = attributes["data-scale"] == "log"
        scaled = math.log10 if logarithmic else float
        points = []
        for point in curves[section].split():
            x, y = map(float, point.split(","))
            value = scaled(low) + (y - y0) / (y1 - y0) * (scaled(high) - scaled(low))
            points.append((step0 + (x - x0) / (x1 - x0) * (step1 - step0), 10 ** value if logarithmic else value))
        return points


def whole_ms(times):
    return times["busy_ms"] + times["step_end_ms"] + sum(times.get("wait_ms", {}).values())


class CardTest(SystemTest):
    def card(self, *options, run="out"):
        finished = self.call("card", run, *options)
        self.assertEqual(finished.status, 0, finished.describe())
        markdown, page = map(self.folder.joinpath, finished.out.splitlines())
        self.assertIsNone(re.search(r"<script|<link|<img|@import|url\(|src=|href", page.read_text()))
        return Card(page.read_text()), markdown.read_text()

    def rows(self):
        return record_test.lines(self.folder / "out", "steps.jsonl")

    def check_figures(self, card):
        expected = {}
        for row in self.rows():
            for section, metrics in row["sections"].items():
                for name, value in metrics.items():
                    expected.setdefault((section, name), []).append(value)
            lanes = {}
            for name, times in row["lanes"].items():
                lanes.setdefault(name.split("/")[0], []).append((times["busy_ms"], whole_ms(times)))
            for section, times in lanes.items():
                expected.setdefault((section, "busy"), []).append(sum(busy for busy, _ in times) / sum(whole for _, whole in times))
            for name in ("step_ms", "makespan_ms", "lower_bound_ms"):
                expected.setdefault(("run", name), []).append(row[name])
        found = {(row[0][0], row[1][0]): [float(value) for _, value in row[2:]] for row in card.tables["Figures"]}
        self.assertEqual(found.keys(), expected.keys())
        for key, values in expected.items():
            for shown, value in zip(found[key], (values[0], values[-1], min(values), max(values))):
                self.assertTrue(math.isclose(shown, value, rel_tol=1e-12), (key, shown, value))
        steps = [row["step_ms"] for row in self.rows()][-512:]
        bounds = [row["lower_bound_ms"] for row in self.rows()][-512:]
        self.assertEqual(card.figures["Step time / bound"], statistics.median_high(steps) / statistics.median_high(bounds))

    def check_curve(self, card, section, metric):
        """Checks that a curve of up to 80 steps has every value at its step, as exactly as a drawing can."""
        attributes, _ = card.charts[metric]
        low, high = map(float, attributes["data-y"].split()[2:])
        drawn = card.drawn(metric, section)
        recorded = [(row["step"], row["sections"][section][metric]) for row in self.rows()]
        self.assertEqual(len(drawn), len(recorded))
        for (step, value), (there, expected) in zip(drawn, recorded):
            self.assertAlmostEqual(step, there, delta=0.1 + there / 1000)
            tolerance = expected * 0.05 if attributes["data-scale"] == "log" else (high - low) / 500
            self.assertAlmostEqual(value, expected, delta=tolerance)


class TheCard(CardTest):
    def test_has_the_values_of_the_record(self):
        self.train(distillation(steps=40, checkpoint_every=20, validate_every=20, keep_checkpoints=9), "--trace", "out/trace.json")
        card, markdown = self.card("--prompt", "The <b>", "--prompt", "river")
        self.check_figures(card)
        for section in ("student", "plain"):
            for metric in ("loss", "grad_norm", "lr"):
                self.check_curve(card, section, metric)
        rows, events = self.rows(), record_test.lines(self.folder / "out", "events.jsonl")
        self.assertEqual(card.figures["Tokens"], sum(row["tokens"] for row in rows))
        self.assertEqual(card.figures["student loss"], rows[-1]["sections"]["student"]["loss"])
        validations = [event for event in events if event["event"] == "validation"]
        last = {event["section"]: event["metrics"] for event in validations}
        gain = last["plain"]["ce"] - last["student"]["ce"]
        self.assertEqual(list(card.figures.items())[:4],
                         [("teacher", last["student"]["teacher_ce"]), ("student, distilled", last["student"]["ce"]),
                          ("plain, without teacher", last["plain"]["ce"]), ("gain of distillation", gain)])
        self.assertEqual([(int(row[0][1]), row[1][0]) for row in card.tables["Validations"]],
                         [(event["step"], event["section"]) for event in validations])
        for row, event in zip(card.tables["Validations"], validations):
            self.assertEqual({float(value) for _, value in row[2:] if value}, set(event["metrics"].values()))
        self.assertEqual([(row[0][0], row[1][0]) for row in card.tables["Events"]],
                         [(event["time"], event["event"]) for event in events
                          if event["event"] not in ("validation", "rehearsed")])
        rehearsed, = [event for event in events if event["event"] == "rehearsed"]
        self.assertEqual(card.figures["Step"], rehearsed["measured_step_ms"])
        self.assertEqual([row[0][0] for row in card.tables["Layout"]], events[0]["lanes"])
        data = {name: value for (name, _), (value, _) in card.tables["Data"]}
        self.assertEqual({name: data[name] for name in events[0]["data"]}, events[0]["data"])
        self.assertEqual(card.texts[0], "maestro train job.toml --fresh")
        self.assertEqual(card.texts[1], events[0]["job_file"])
        self.check_texts(card)
        self.assertIn("finished after step 40", markdown)
        self.assertIn(events[0]["job_file"], markdown)
        self.assertIn("What ran when", (self.folder / "out/card.html").read_text())

    def check_texts(self, card):
        """Checks that the models' texts equal the output of `maestro generate`."""
        texts = {(row[0][0], row[1][0], int(row[2][1])): json.loads(row[3][0]) for row in card.tables["What the models write"]}
        self.assertEqual(set(texts), {(prompt, section, step) for prompt in ("The <b>", "river")
                                      for section in ("student", "plain") for step in (20, 40)})
        generated = self.call("generate", "out/checkpoints/step-00000020/student", "--prompt", "The <b>", "--max-tokens", 24,
                              "--temperature", 0, "--json")
        self.assertEqual(texts["The <b>", "student", 20], json.loads(generated.out)["text"])

    def test_repeats_the_run(self):
        self.train(language_model())
        card, _ = self.card()
        (self.folder / "again.toml").write_text(card.texts[1])
        command = card.texts[0].replace("job.toml", "again.toml").split()
        before = record_test.curve(self.folder / "out")
        done = self.call(*command[1:])
        self.assertEqual(done.status, 0, done.describe())
        after = record_test.curve(self.folder / "out")
        self.assertEqual([metrics["loss"] for metrics in after.values()], [metrics["loss"] for metrics in before.values()])
        self.assertTrue((self.folder / "out.1/card.html").exists(), "the card stays with its run")

    def test_of_a_run_under_way_and_after_its_end(self):
        run = self.start(language_model(steps=ENDLESS, checkpoint_every=1000, validate_every=ENDLESS), "--processes", 2)
        self.assertTrue(run.wait_for(lambda: record_test.recorded_steps(self.folder / "out") > 30), run.text)
        _, markdown = self.card("--checkpoints", 0)
        self.assertIn("under way", markdown)
        os.kill(run.members()[1], signal.SIGKILL)
        failed = run.wait()
        card, markdown = self.card()
        self.check_figures(card)
        error = record_test.lines(self.folder / "out", "events.jsonl")[-1]["error"]
        self.assertIn(error, failed.err)
        self.assertIn("failed after step", markdown)
        self.assertEqual(card.tables["Events"][-1][1][0], "failed")

    def test_of_a_killed_and_of_a_resumed_run(self):
        job = language_model(steps=ENDLESS, checkpoint_every=20)
        run = self.start_held(job, after=100)
        self.assertTrue(run.wait_for(lambda: record_test.recorded_steps(self.folder / "out") > 60), run.text)
        run.end()
        card, markdown = self.card()
        self.check_figures(card)
        self.assertIn("cut off after step", markdown)
        job["train"]["steps"] = 200
        self.train(job, "--resume", "auto")
        card, markdown = self.card("--out", "elsewhere")
        self.check_figures(card)
        self.assertIn("finished after step 200", markdown)
        self.assertEqual([row[1][0] for row in card.tables["Events"]].count("began"), 2)
        self.assertTrue((self.folder / "elsewhere/card.md").exists())

    def test_of_an_interrupted_run(self):
        run = self.start(language_model(steps=ENDLESS))
        self.assertTrue(run.wait_for(lambda: record_test.recorded_steps(self.folder / "out") > 3), run.text)
        run.interrupt()
        self.assertEqual(run.wait().status, 0)
        card, markdown = self.card("--checkpoints", 0)
        self.check_figures(card)
        self.assertIn("interrupted after step", markdown)
        self.assertNotIn("What the models write", card.tables)

    def test_of_what_is_no_run_is_refused_by_name(self):
        self.assert_refused("nowhere has no record of a run, nowhere/record", "card", "nowhere")
        (self.folder / "broken/record").mkdir(parents=True)
        (self.folder / "broken/record/events.jsonl").write_text("what\n")
        self.assert_refused("broken/record/events.jsonl, line 1", "card", "broken")
        self.assertFalse((self.folder / "broken/card.md").exists())

    def test_goes_on_without_a_trace_that_cannot_be_read(self):
        self.train(language_model())
        (self.folder / "out/trace.json").write_text("{}")
        finished = self.call("card", "out")
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertIn("warning: card: out/trace.json has no traceEvents", finished.err)


class Comparison(CardTest):
    def test_of_runs_with_different_lengths_shows_figures_settings_and_curves(self):
        self.train(language_model(steps=12))
        self.train(language_model(steps=20), settings={"train.out": "other", "teacher.lr": 0.25})
        finished = self.call("compare", "out", "other", "--page", "compare.html")
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertIn("finished after step 12", finished.out)
        page = (self.folder / "compare.html").read_text()
        self.assertIsNone(re.search(r"<script|<link|<img|@import|url\(|src=|href", page))
        card = Card(page)
        settings = {row[0][0]: [text for text, _ in row[1:]] for row in card.tables["Settings that differ"]}
        self.assertEqual(settings["train.steps"], ["12", "20"])
        self.assertEqual(settings["teacher.lr"][1], "0.25")
        self.assertEqual(settings.keys(), {"train.steps", "train.out", "teacher.lr"})
        figures = {row[0][0]: [float(value) for _, value in row[1:]] for row in card.tables["Figures"]}
        self.assertEqual(figures["Steps"], [12, 20])
        for run, name in enumerate(("out", "other")):
            rows = record_test.lines(self.folder / name, "steps.jsonl")
            self.assertEqual(figures["teacher loss"][run], rows[-1]["sections"]["teacher"]["loss"])
            drawn = card.drawn("teacher loss", name)
            self.assertEqual(len(drawn), len(rows))
            for (step, _), row in zip(drawn, rows):
                self.assertAlmostEqual(step, row["step"], delta=0.1)

    def test_is_also_an_object_for_programs(self):
        self.train(language_model(steps=6))
        self.train(language_model(steps=6), settings={"train.out": "other", "train.seed": 5})
        compared = json.loads(self.call("compare", "out", "other", "--json").out)
        self.assertEqual([run["run"] for run in compared["runs"]], ["out", "other"])
        self.assertEqual(compared["settings"]["train.seed"][1], "5")
        self.assertEqual(compared["runs"][0]["figures"]["Steps"], 6)

    def test_of_what_cannot_be_compared_is_refused_by_name(self):
        self.train(language_model(steps=6))
        self.assert_refused("compare: give 2 to 8 runs, not 1", "compare", "out")
        self.assert_refused("compare: out is given twice", "compare", "out", "./out")
        self.assert_refused("nowhere has no record of a run", "compare", "out", "nowhere")


@unittest.skipUnless(BROWSER, "no browser: install chromium")
class InABrowser(CardTest):
    def browse(self, page, size, *options):
        words = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
                 "--disable-background-networking", "--disable-component-update",
                 f"--user-data-dir={self.folder}/browser", "--window-size={},{}".format(*size), *options, page.as_uri()]
        done = subprocess.run(words, capture_output=True, timeout=PATIENCE_S, cwd=self.folder, check=True)
        return done.stdout.decode()

    def measured(self, page, size):
        """Returns the page as the browser has built it, with its measures on <body>."""
        frame = self.folder / "frame.html"
        frame.write_text(FRAME.format(*size, html.escape(page.read_text())))
        return Card(self.browse(frame, DESKTOP, "--dump-dom"))

    def check_picture(self, page, size, *options):
        picture = self.folder / "picture.png"
        picture.unlink(missing_ok=True)
        self.browse(page, size, f"--screenshot={picture}", *options)
        content = picture.read_bytes()
        self.assertEqual(struct.unpack(">II", content[16:24]), size)
        data, at = b"", 8
        while at < len(content):
            length, = struct.unpack_from(">I", content, at)
            if content[at + 4:at + 8] == b"IDAT":
                data += content[at + 8:at + 8 + length]
            at += 12 + length
        data = zlib.decompress(data)
        stride = len(data) // size[1]
        lines = {data[begin + 1:begin + stride] for begin in range(0, len(data), stride)}
        self.assertGreater(len(lines), 50, "an empty picture")

    def check_page(self, page, charts):
        for size in (PHONE, DESKTOP):
            card = self.measured(page, size)
            self.assertEqual(int(card.body["data-inner"]), size[0])
            self.assertLessEqual(int(card.body["data-scroll"]), size[0], "the page is wider than the window")
            self.assertEqual(int(card.body["data-requests"]), 0)
            self.assertEqual(int(card.body["data-charts"]), charts)
            for scheme in ("0", "1"):  # dark, light
                self.check_picture(page, size, f"--blink-settings=preferredColorScheme={scheme}")
        return card

    def test_a_card_has_the_values_of_the_record_at_any_width(self):
        job = distillation(steps=40, checkpoint_every=20, validate_every=20)
        job["name"] = "a run with a rather long name, " + "x" * 200
        self.train(job, "--trace", "out/trace.json")
        written, _ = self.card("--prompt", "</table><script>alert(1)</script>" + "long" * 50)
        card = self.check_page(self.folder / "out/card.html", charts=len(written.charts) + 2)  # lanes, trace
        self.assertEqual(card.tables, written.tables)
        self.check_figures(card)
        self.check_curve(card, "student", "loss")

    def test_a_card_of_a_run_that_failed_at_once_is_shown(self):
        run = self.start(language_model(steps=ENDLESS))
        self.assertTrue(run.wait_for(lambda: record_test.recorded_steps(self.folder / "out") > 0), run.text)
        run.end()
        (self.folder / "out/record/steps.jsonl").write_text("")
        self.card()
        self.check_page(self.folder / "out/card.html", charts=0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
