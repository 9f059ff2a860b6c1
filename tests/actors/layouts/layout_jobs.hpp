// SPDX-License-Identifier: Apache-2.0
// Small jobs with every bundled section type, for tests of probes, prices and searches.
#pragma once

#include <sstream>
#include <string>
#include <vector>

#include "actors/process/app.hpp"
#include "runtime/job/job_document.hpp"

namespace maestro::testing {

inline const std::string distillation_job = R"(
[train]
global_batch = 8
[data]
kind = "synthetic"
vocabulary = 40
sequence = 12
[teacher]
family = "llama"
layers = 2
width = 16
heads = 4
kv_heads = 2
vocabulary = 40
positions = 12
weights = "random"
micro_batch = 2
[student]
family = "gpt2"
layers = 2
width = 16
heads = 4
vocabulary = 40
positions = 12
micro_batch = 4
[plain]
family = "llama"
layers = 2
width = 16
heads = 4
vocabulary = 40
positions = 12
micro_batch = 4
)";

inline const std::string vision_job = R"(
[train]
global_batch = 8
[data]
kind = "synthetic_images"
vocabulary = 40
sequence = 24
image_size = 16
patch = 8
[vision]
layers = 2
width = 16
heads = 4
patch = 8
positions = "2d"
max_grid = 16
micro_batch_tokens = 24
max_in_flight = 4
[projector]
decoder = "llm"
micro_batch_tokens = 24
max_in_flight = 4
[llm]
family = "llama"
layers = 2
width = 16
heads = 4
vocabulary = 40
positions = 40
micro_batch = 4
)";

/// Composes the app of one of the jobs above.
inline JobPlan plan_of(const std::string& job, const std::vector<std::string>& settings = {}) {
  static std::ostringstream out;
  static Console console({out, out, false, {}});
  RunOptions options;
  options.check_only = true;
  options.quiet = true;
  options.cpu_devices = 4;
  App app(JobDocument::parse(job, "job.toml", settings), options, console);
  if (app.has("vision")) {
    auto corpus = app.source("corpus");
    auto vision = app.section("vision", "vision_encoder");
    auto projector = app.section("projector", "projector");
    auto llm = app.section("llm", "vision_language_decoder");
    app.connect(corpus.port("pixels"), vision.port("pixels"));
    app.connect(corpus.port("places"), vision.port("places"));
    app.connect(vision.port("features"), projector.port("features"));
    app.connect(projector.port("visual"), llm.port("visual"));
    app.connect(corpus.port("tokens"), llm.port("tokens"));
    app.connect(corpus.port("targets"), llm.port("targets"));
    return app.plan();
  }
  auto corpus = app.source("corpus");
  auto teacher = app.section("teacher", "decoder_trunk").forward_only();
  auto student = app.section("student", "distilled_decoder");
  auto plain = app.section("plain", "decoder_lm");
  app.connect(corpus.port("tokens"), teacher.port("tokens"));
  app.connect(corpus.port("tokens"), student.port("tokens"));
  app.connect(corpus.port("targets"), student.port("targets"));
  app.connect(teacher.port("hidden"), student.port("teacher_hidden"));
  app.connect(corpus.port("tokens"), plain.port("tokens"));
  app.connect(corpus.port("targets"), plain.port("targets"));
  return app.plan();
}

}  // namespace maestro::testing
