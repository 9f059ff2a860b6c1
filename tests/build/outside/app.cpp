// SPDX-License-Identifier: Apache-2.0
// An app outside this repository: trains the section named [model] of a job file.
//
// usage: app JOB.toml [PROCESSES]
#include <maestro/app.hpp>
#include <string>

#include "section.hpp"

namespace {

/// Registers the type `bigram` for job files. `vocabulary` defaults to the data source's vocabulary.
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
  options.command.assign(argv + 1, argv + argc);  // command that starts the run's other processes
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
  for (const auto& [section, metrics] : result.validation) {  // filled only in process 0
    console.note(section + ": validation ce " + std::to_string(metrics.at("ce")));
  }
  return result.status;
}

}  // namespace

int main(int argc, char** argv) {
  maestro::prepare_signals();  // first: threads inherit its effects
  maestro::Console console(maestro::standard_streams());
  try {
    return train(argc, argv, console);
  } catch (const std::exception& problem) {
    console.error(problem.what());
    return 2;
  }
}
