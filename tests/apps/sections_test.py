#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`maestro sections` lists the section types; for a type, its keys and the ports that edges can name."""

import re
import unittest

from graph_test import distillation_graph
from maestro_program import SystemTest

TYPES = ("audio_encoder", "audio_projector", "decoder_lm", "decoder_trunk", "distilled_decoder", "generator",
         "language_model_head", "ngram_memory", "projector", "recorded_teacher", "served", "vision_encoder",
         "vision_language_decoder")


class Sections(SystemTest):
    def lines(self, *arguments):
        finished = self.call("sections", *arguments)
        self.assertEqual(finished.status, 0, finished.describe())
        return finished.out.splitlines()

    def ports(self, name):
        """Returns {(setting, direction, port): text}, a line for each."""
        found, setting = {}, ""
        for line in self.lines(name)[2:]:
            if not line.startswith("  "):
                break
            if line.startswith("  with "):
                setting = line.removeprefix("  with ")
            else:
                direction, port, text = line.split(maxsplit=2)
                found[setting, direction, port] = text
        return found

    def test_are_listed_with_a_line_each(self):
        lines = self.lines()[1:]
        self.assertEqual(tuple(line.split()[0] for line in lines), TYPES)
        for line in lines:
            self.assertGreater(len(line.split()), 3, line)

    def test_have_their_ports_with_dtype_columns_and_the_keys_that_set_them(self):  # SP-1
        self.assertEqual(self.ports("decoder_trunk"), {
            ("", "input", "tokens"): "i32 x 1, tokens",
            ("", "output", "hidden"): "fp32 x 128 (width), tokens, differentiable",
            ('boundary = "logits", frozen', "output", "logits"): "fp32 x 256 (vocabulary), tokens",
            ('boundary = "top_k", frozen', "output", "top_values"): "fp32 x 64 (top_k), tokens",
            ('boundary = "top_k", frozen', "output", "top_indices"): "i32 x 64 (top_k), tokens",
            ('boundary = "top_k_rest", frozen', "output", "top_values"): "fp32 x 64 (top_k), tokens",
            ('boundary = "top_k_rest", frozen', "output", "top_indices"): "i32 x 64 (top_k), tokens",
            ('boundary = "top_k_rest", frozen', "output", "rest"): "fp32 x 1, tokens"})
        self.assertEqual(self.ports("projector"), {
            ("", "input", "features"): "fp32 x 256 (vision_width), patches, differentiable",
            ("", "output", "visual"): "fp32 x 128 (width), visual, differentiable"})
        self.assertEqual(self.ports("ngram_memory"), {
            ("", "input", "tokens"): "i32 x 1, tokens",
            ("", "output", "memory"): "fp32 x 128 (orders, heads, dim), tokens, differentiable"})
        self.assertEqual(self.ports("vision_language_decoder")["", "input", "visual"],
                         "fp32 x 128 (width), visual, differentiable, optional")
        self.assertEqual(self.ports("distilled_decoder")["", "input", "teacher_hidden"], "fp32 x 128 (teacher.width), tokens")
        self.assertEqual(self.ports("recorded_teacher")["", "output", "rest"], "fp32 x 1, tokens")
        self.assertEqual(self.ports("recorded_teacher")["", "output", "top_values"], "fp32 x columns of its files, tokens")

    def test_ports_are_those_that_an_edge_can_name(self):  # SP-1
        job = distillation_graph()
        for name in ("decoder_lm", "distilled_decoder", "decoder_trunk"):
            section = next(key for key, table in job.items() if isinstance(table, dict) and table.get("type") == name)
            changed = job | {"edges": [*job["edges"], f"corpus.tokens -> {section}.zzzzzzzzz"]}
            error = self.call("check", self.write_job(changed)).err
            offered = set(re.findall(r"(\w+) \(\w+, \d+ columns?\b", error.partition("there are ")[2]))
            listed = {port for setting, direction, port in self.ports(name) if direction == "input" and not setting}
            self.assertEqual(listed, offered, error)

    def test_have_the_keys_that_the_help_prints(self):
        for name in TYPES:
            with self.subTest(name):
                text = self.call("sections", name).out
                self.assertTrue(text.endswith(self.call("help", name).out), text)

    def test_that_are_unknown_are_refused_with_the_nearest(self):
        self.assert_refused("unknown section type 'decoder_trnk'; did you mean 'decoder_trunk'?", "sections", "decoder_trnk")
        self.assert_refused("unknown section type 'zzzz'; maestro sections lists them", "sections", "zzzz")


if __name__ == "__main__":
    unittest.main(verbosity=2)
