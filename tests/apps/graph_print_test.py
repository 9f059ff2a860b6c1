#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`maestro check --graph` prints the sections and edges of a job as text, for Graphviz and as a drawing."""

import re
import shutil
import subprocess
import unittest
import xml.etree.ElementTree as ElementTree

import help_test
from graph_test import as_graph, distillation_graph
from maestro_program import SystemTest, distillation

SVG = "{http://www.w3.org/2000/svg}"


def vision_language():
    job = as_graph(help_test.vision_language(), "vlm.toml")
    for section in ("vision", "projector"):
        job[section]["micro_batch_tokens"] = 64
    return job


class Graph(SystemTest):
    def printed(self, job, form="", *options):
        finished = self.call("check", self.write_job(job), f"--graph{form}", *options)
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertEqual(finished.err, "")
        self.assertFalse((self.folder / "out").exists())
        return finished.out

    def test_is_a_line_for_each_section_and_edge(self):
        lines = self.printed(distillation_graph(), "", "--cpu-devices", "2", "--set", "teacher.replicas=2").splitlines()
        self.assertEqual(lines[0], "test: 4 sections, 6 edges")
        self.assertEqual([re.sub(" +", " ", line.strip()) for line in lines[1:]], [
            "corpus source 8 samples a step; host of process 0",
            "teacher decoder_trunk frozen, 2 replicas; micro-batch of 8 samples; cpu:0 of process 0; cpu:1 of process 0",
            "student distilled_decoder trained, 1 replica; micro-batch of 4 samples; cpu:0 of process 0",
            "plain decoder_lm trained, 1 replica; micro-batch of 4 samples; cpu:1 of process 0",
            "corpus.tokens -> teacher.tokens i32 x 1, tokens", "corpus.tokens -> student.tokens i32 x 1, tokens",
            "corpus.targets -> student.targets i32 x 1, tokens",
            "teacher.hidden -> student.teacher_hidden fp32 x 48, tokens", "corpus.tokens -> plain.tokens i32 x 1, tokens",
            "corpus.targets -> plain.targets i32 x 1, tokens"])

    def test_has_the_gradients_and_axes_of_pictures(self):
        text = re.sub(" +", " ", self.printed(vision_language(), "=text"))
        self.assertIn("vision vision_encoder trained, 1 replica; micro-batch of 8 samples, 64 patches;", text)
        self.assertIn("vision.features -> projector.features fp32 x 32, patches, gradient returns\n", text)
        self.assertIn("corpus.tokens -> llm.tokens i32 x 1, tokens\n", text)
        frozen = vision_language()
        frozen["vision"] |= {"trained": False, "weights": "random"}
        text = self.printed(frozen)
        self.assertEqual(text.count("gradient returns"), 1, text)

    def test_has_stages_and_layouts(self):
        text = re.sub(" +", " ", self.printed(distillation(), "", "--cpu-devices", "4", "--set", "student.pipeline=2", "--set",
                                              "student.tensor=2"))
        self.assertIn("student.stage0 distilled_decoder trained, 1 replica, stage 1 of 2, tensor 2; micro-batch of 4", text)
        self.assertIn("student.stage0.stream -> student.stage1.stream fp32 x 32, tokens, gradient returns", text)

    def test_of_a_bundled_app_is_that_of_its_job_file(self):
        for form in ("=text", "=dot", "=svg"):
            self.assertEqual(self.printed(distillation(), form), self.printed(distillation_graph(), form))

    def test_for_graphviz_has_a_node_for_each_section_and_an_arrow_for_each_edge(self):
        dot = self.printed(vision_language(), "=dot")
        self.assertEqual(re.findall(r'^  "(\w+)" \[label', dot, re.M), ["corpus", "vision", "projector", "llm"])
        arrows = re.findall(r'^  "(\w+)" -> "(\w+)" \[label="(\w+) -> (\w+)\\n', dot, re.M)
        self.assertEqual([f"{a}.{c} -> {b}.{d}" for a, b, c, d in arrows], vision_language()["edges"])
        self.assertEqual(dot.count("dir=both"), 2)
        if shutil.which("dot"):
            subprocess.run(["dot", "-Tsvg"], input=dot, text=True, check=True, capture_output=True)

    def test_quotes_names_for_graphviz(self):
        dot = self.printed(distillation_graph() | {"name": 'a "b" \\ c'}, "=dot")
        self.assertTrue(dot.startswith('digraph "a \\"b\\" \\\\ c" {\n'), dot)

    def test_as_a_drawing_has_a_box_for_each_section_and_an_arrow_for_each_edge(self):
        drawing = ElementTree.fromstring(self.printed(vision_language(), "=svg"))
        self.assertEqual(len(drawing.findall(f"{SVG}rect")), 4)
        titles = [path.find(f"{SVG}title").text for path in drawing.findall(f"{SVG}path")
                  if path.find(f"{SVG}title") is not None]
        self.assertEqual([title.partition(": ")[0] for title in titles], vision_language()["edges"])
        words = {text.text for text in drawing.iter(f"{SVG}text")}
        self.assertLessEqual({"vision", "vision_encoder", "features fp32 x 32", "a gradient returns"}, words)
        markers = {marker.get("id") for marker in drawing.iter(f"{SVG}marker")}
        used = set(re.findall(r"url\(#([\w-]+)\)", ElementTree.tostring(drawing, "unicode")))
        self.assertEqual(used, markers)

    def test_of_another_form_or_of_a_wrong_job_is_refused(self):
        job = self.write_job(distillation())
        self.assert_refused("--graph: pdf not in", "check", job, "--graph=pdf")
        self.assert_refused("student.layerz: unknown key", "check", job, "--graph", "--set", "student.layerz=1")


if __name__ == "__main__":
    unittest.main(verbosity=2)
