// SPDX-License-Identifier: Apache-2.0
// Small jobs with every bundled section type, used to test probes, prices and searches.
#pragma once

#include <algorithm>
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

/// Composes the app of a job above, with 4 devices on each of `hosts`, such as "a,b"; empty: this host only.
inline ResolvedJob plan_of(const std::string& job, const std::vector<std::string>& settings = {},
                           const std::string& hosts = {}) {
  static std::ostringstream out;
  static Console console({out, out, false, {}});
  RunOptions options;
  options.check_only = true;
  options.quiet = true;
  options.cpu_devices = 4;
  options.hosts = hosts;
  App app(JobDocument::parse(job, "job.toml", settings), options, console);
  app.source("corpus");
  if (app.has("vision")) {
    app.section("vision", "vision_encoder");
    app.section("projector", "projector");
    app.section("llm", "vision_language_decoder");
    for (const char* const port : {"pixels", "places"}) app.connect({"corpus", port}, {"vision", port});
    app.connect({"vision", "features"}, {"projector", "features"});
    app.connect({"projector", "visual"}, {"llm", "visual"});
    for (const char* const port : {"tokens", "targets"}) app.connect({"corpus", port}, {"llm", port});
    return app.plan();
  }
  app.section("teacher", "decoder_trunk").forward_only();
  app.section("student", "distilled_decoder");
  if (app.has("generator")) {
    app.section("generator", "generator");
    app.connect({"student", "weights"}, {"generator", "weights"});
  } else {
    app.section("plain", "decoder_lm");
  }
  app.connect({"corpus", "tokens"}, {"teacher", "tokens"});
  app.connect({"teacher", "hidden"}, {"student", "teacher_hidden"});
  for (const char* const port : {"tokens", "targets"}) {
    app.connect({"corpus", port}, {"student", port});
    if (app.has("plain")) app.connect({"corpus", port}, {"plain", port});
  }
  return app.plan();
}

/// Composes a distillation whose sections are on emulated devices unless the settings name others.
inline ResolvedJob plan_on_emulated(const std::string& job, std::vector<std::string> settings) {
  for (const char* const section : {"teacher", "student", "plain"}) {
    const std::string key = std::string(section) + ".devices=";
    const bool set = std::ranges::any_of(settings, [&](const auto& each) { return each.starts_with(key); });
    if (!set) settings.push_back(key + "[\"emulated\"]");
  }
  return plan_of(job, settings);
}

}  // namespace maestro::testing
