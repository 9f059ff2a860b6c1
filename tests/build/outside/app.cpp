// SPDX-License-Identifier: Apache-2.0
// An app outside this repository: trains the section named [model] of a job file.
//
// usage: app JOB.toml [PROCESSES]
#include <string>

#include "actors/process/app.hpp"
#include "actors/process/signal_watcher.hpp"
#include "runtime/core/result.hpp"
#include "section.hpp"

namespace {

/// Registers the type `bigram` for job files. The data source's vocabulary is the default of the section's.
void add_bigram(maestro::SectionRegistry& registry) {
  registry.add("bigram", "language model that sees one token", [](const maestro::SectionTable& section) {
    auto options = outside::BigramModel::Options::read(section.table);
    if (!section.table.has("vocabulary")) options.vocabulary = section.data.vocabulary;
    return maestro::SectionFactory([options](const maestro::SectionContext& context) {
      return std::make_unique<outside::BigramModel>(context, options);
    });
  });
}

int train(int argc, char** argv, maestro::Console& console) {
  if (argc < 2) throw maestro::JobError("usage: app JOB.toml [PROCESSES]");
  maestro::RunOptions options;
  options.command.assign(argv + 1, argv + argc);  // how the other processes of the run are started
  if (argc > 2) options.processes = std::stoll(argv[2]);
  options.report = "report.json";
  options.fresh = true;  // an earlier run in train.out is moved aside

  maestro::App app(maestro::JobDocument::load(argv[1]), options, console);
  add_bigram(app.registry());
  auto& data = app.source("corpus");
  auto& model = app.section("model", "bigram").replicas(1).micro_batch(4);
  app.connect(data.port("tokens"), model.port("tokens"));
  app.connect(data.port("targets"), model.port("targets"));

  const maestro::RunResult result = app.run();
  for (const auto& [section, metrics] : result.validation) {  // empty but in process 0
    console.note(section + ": validation ce " + std::to_string(metrics.at("ce")));
  }
  return result.status;
}

}  // namespace

int main(int argc, char** argv) {
  maestro::prepare_signals();  // first: threads inherit the effects
  maestro::Console console(maestro::standard_streams());
  try {
    return train(argc, argv, console);
  } catch (const std::exception& problem) {
    console.error(problem.what());
    return 2;
  }
}
