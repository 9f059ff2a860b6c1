#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Apps as job files: `app = "graph"` trains as the bundled apps do, and refuses invalid graphs."""

import os
import tomllib
import unittest

from maestro_program import SystemTest, distillation, text_corpus
from vlm_test import REPOSITORY, VisionLanguageTest, vision_language

GRAPHS = REPOSITORY / "apps" / "graph"


def as_graph(job, file):
    """Returns the job with the edges and section types from a job file in apps/graph."""
    graph = tomllib.loads((GRAPHS / file).read_text())
    job = job | {"app": graph["app"], "edges": graph["edges"]}
    for name, table in graph.items():
        if isinstance(table, dict) and "type" in table:
            job[name] = {key: table[key] for key in ("type", "trained") if key in table} | job[name]
    return job


def distillation_graph(**train):
    return as_graph(distillation(**train), "distill.toml")


class BundledFiles(SystemTest):
    def test_have_the_settings_of_the_bundled_apps(self):
        for graph, bundled in (("distill.toml", "distill/distill.toml"), ("vlm.toml", "vlm/vlm.toml")):
            with self.subTest(graph):
                found = tomllib.loads((GRAPHS / graph).read_text())
                wanted = tomllib.loads((REPOSITORY / "apps" / bundled).read_text())
                del found["edges"], found["app"], wanted["app"]
                for table in found.values():
                    if isinstance(table, dict) and table.pop("type", None):
                        table.pop("trained", None)
                self.assertEqual(found, wanted)


class Document(SystemTest):
    def test_has_an_example_that_trains_and_the_line_of_its_graph(self):
        text = (REPOSITORY / "docs" / "writing-an-app.md").read_text().partition("## Without C++")[2]
        job = tomllib.loads(text.partition("```toml\n")[2].partition("```")[0])
        (self.folder / job["data"]["path"]).write_text(text_corpus())
        finished = self.train(job | {"train": {"steps": 2, "validation_samples": 4}})
        self.assertEqual({row["section"] for row in finished.report["steps"]}, {"trunk", "head"})
        line = text.partition("$ maestro check job.toml --graph\n...\n")[2].partition("```")[0].split()
        self.assertIn(line, [each.split() for each in self.call("check", "job1.toml", "--graph", "--fresh").out.splitlines()])


class Distillation(SystemTest):
    def test_as_a_graph_has_bitwise_the_losses_of_the_bundled_app(self):  # GF-1
        names = ("loss", "ce", "kl", "grad_norm")
        for processes in (1, 2):
            for policy in ("wavefront", "arrival"):
                with self.subTest(processes=processes, policy=policy):
                    options = ("--processes", processes)
                    settings = {"schedule.policy": policy}
                    bundled = self.train(distillation(steps=6, out="bundled"), *options, settings=settings)
                    graph = self.train(distillation_graph(steps=6, out="graph"), *options, settings=settings)
                    self.assertEqual(graph.curve(*names), bundled.curve(*names))
                    self.assertEqual(len(graph.curve()), 12)
                    self.assertEqual(graph.report["validation"], bundled.report["validation"])
                    for section in ("student", "plain"):
                        self.assertEqual(self.weights(graph, section), self.weights(bundled, section))

    def weights(self, finished, section):
        return (self.folder / finished.report["checkpoint"] / section / "model.safetensors").read_bytes()

    def test_resumes_bitwise(self):
        job = distillation_graph(steps=6, checkpoint_every=3, keep_checkpoints=9)
        whole = self.train(job)
        resumed = self.train(job, "--resume", "out/checkpoints/step-00000003")
        self.assertEqual(resumed.curve(), whole.curve(after=3))


    def test_is_replayed_on_the_same_devices_bitwise(self):  # GF-1
        self.train(distillation_graph(steps=4, out="graph"))
        replayed = self.call("replay", "graph", "--steps", "1..4", "--check")
        self.assertEqual(replayed.status, 0, replayed.describe())
        self.assertIn("the same to the bit", replayed.out)
        self.assertNotIn("warning", replayed.out + replayed.err)


class VisionLanguage(VisionLanguageTest):
    def test_as_a_graph_has_bitwise_the_losses_of_the_bundled_app(self):  # GF-1
        for processes in (1, 2):
            with self.subTest(processes=processes):
                bundled = self.train(vision_language(), "--processes", processes)
                graph = self.train(as_graph(vision_language(), "vlm.toml"), "--processes", processes)
                self.assertEqual(graph.curve(), bundled.curve())
                self.assertEqual(self.sections_with_steps(graph), {"vision", "projector", "llm"})


class Refusals(SystemTest):
    def refuse(self, job, *wanted):
        finished = self.call("check", self.write_job(job))
        self.assertEqual(finished.status, 2, finished.describe())
        self.assertEqual(len(finished.err.splitlines()), 1, finished.describe())
        for text in wanted:
            self.assertIn(text, finished.err)

    def edge(self, old, new):
        job = distillation_graph()
        self.assertIn(old, job["edges"])
        return job | {"edges": [new if edge == old else edge for edge in job["edges"]]}

    def test_of_an_unknown_section_name_the_nearest(self):
        self.refuse(self.edge("teacher.hidden -> student.teacher_hidden", "teecher.hidden -> student.teacher_hidden"),
                    'job.toml:3: edges: "teecher.hidden -> student.teacher_hidden": there is no section \'teecher\'; did '
                    "you mean 'teacher'?")
        self.refuse(self.edge("teacher.hidden -> student.teacher_hidden", "teacher.hidden -> zzzzzzz.teacher_hidden"),
                    "there is no section 'zzzzzzz'; sections are corpus, teacher, student, plain")
        self.refuse(self.edge("corpus.tokens -> plain.tokens", "data.tokens -> plain.tokens"),
                    "data: lacks a `type`, but", "sections are corpus, teacher, student, plain")

    def test_of_an_unknown_port_list_those_of_the_section(self):
        self.refuse(self.edge("teacher.hidden -> student.teacher_hidden", "teacher.hiden -> student.teacher_hidden"),
                    "job.toml:3: edges: section 'teacher' has no output port 'hiden'; did you mean 'hidden'? there are hidden "
                    "(fp32, 48 columns)")
        self.refuse(self.edge("corpus.tokens -> plain.tokens", "corpus.tokens -> plain.zzzzzz"),
                    "edges: section 'plain' has no input port 'zzzzzz'; there are tokens (i32, 1 column), targets (i32, 1 "
                    "column)")
        self.refuse(self.edge("corpus.tokens -> plain.tokens", "corpus.targets -> plain.targets"),
                    "edges: input plain.targets (i32, 1 column) is connected twice")
        self.refuse(self.edge("corpus.tokens -> plain.tokens", "teacher.hidden -> plain.tokens"),
                    "edges: ports do not fit: teacher.hidden (fp32, 48 columns) -> plain.tokens (i32, 1 column)")

    def test_of_text_that_is_no_edge_show_the_form(self):
        for text in ("corpus.tokens", "corpus.tokens > plain.tokens", "corpus.tokens -> plain", "-> plain.tokens",
                     "corpus.tokens ->", "corpus.tokens -> plain.", "corpus.tokens -> a.b -> plain.tokens", "", "->",
                     "corpus.tokens -> plain.tokens plain.targets"):
            with self.subTest(text):
                self.refuse(self.edge("corpus.tokens -> plain.tokens", text),
                            f'job.toml:3: edges: "{text}" is not an edge; write SECTION.PORT -> SECTION.PORT, as in "')
        for edges, wanted in (([], "edges: is not given; list the edges of the graph"), ("corpus.tokens -> plain.tokens",
                              "edges: expected a list of strings"), ([4], "element 1 is the integer 4")):
            self.refuse(distillation_graph() | {"edges": edges}, wanted)

    def test_of_sections_that_the_edges_leave_out(self):
        job = distillation_graph()
        self.refuse(job | {"edges": [edge for edge in job["edges"] if "plain" not in edge]},
                    "job.toml:31: plain: no edge names this section; add one to `edges`, or remove the table")
        self.refuse(job | {"edges": [edge for edge in job["edges"] if "corpus" not in edge] + ["teacher.hidden -> plain.tokens"]},
                    "edges: no edge begins at the source 'corpus'")
        self.refuse(job | {"corpus": {"type": "decoder_lm"}}, "corpus: is the name of the source, which [data] describes")
        self.refuse(job | {"edges": [edge for edge in job["edges"] if edge != "corpus.targets -> plain.targets"]},
                    "job.toml:3: edges: input plain.targets (i32, 1 column) is not connected")
        loop = [edge for edge in job["edges"] if edge != "corpus.tokens -> student.tokens"] + ["student.none -> student.tokens"]
        self.refuse(job | {"edges": loop}, "edges: section 'student' has no output port 'none'; it has none")

    def test_of_types_and_tables_that_are_not_there(self):
        job = distillation_graph()
        self.refuse(job | {"plain": job["plain"] | {"type": "decoder_ml"}},
                    'plain.type: "decoder_ml" is not one of', "did you mean 'decoder_lm'?")
        self.refuse(job | {"plian": {"layers": 2}}, "plian: unknown table; did you mean 'plain'?")
        untyped = dict(job["plain"])
        del untyped["type"]
        self.refuse(job | {"plain": untyped}, "plain: lacks a `type`, but \"corpus.tokens -> plain.tokens\" names it")
        self.refuse(distillation() | {"edges": job["edges"]}, "edges: unknown key")


if __name__ == "__main__":
    if len(os.sched_getaffinity(0)) < 2:
        raise SystemExit("these tests place sections on two cores, and only one may be used here")
    unittest.main(verbosity=2)
