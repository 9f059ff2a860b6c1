// SPDX-License-Identifier: Apache-2.0
#include "apps/plan/planned_app.hpp"

#include "runtime/job/job_reader.hpp"
#include "sections/served/served_section.hpp"

namespace maestro {

PlannedApp::PlannedApp(ComposeApp compose, Console& console) : compose_(std::move(compose)), console_(&console) {
  RunOptions options;
  options.check_only = true;
  const App composed = app({}, std::move(options), console);
  settings_ = composed.document().settings();
  for (const auto& [section, type] : composed.section_types()) {
    const std::string read = read_type(composed.table(section), type);
    if (read == generator_type) generator_ = section;
    if (read == served_type) {
      throw JobError(section + ".type = \"" + served_type + "\": another process computes it, which plan cannot price");
    }
    sections_.push_back(section);
  }
}

ResolvedJob PlannedApp::resolve(const std::vector<std::string>& settings, std::int64_t cpu_devices) {
  RunOptions options;
  options.check_only = true;
  options.quiet = true;
  options.cpu_devices = cpu_devices;
  App composed = app(settings, std::move(options), *console_);
  composed.reuse_corpus(corpus_);
  composed.default_to_one_replica();  // an app's default may be too many for the global batch
  ResolvedJob plan = composed.plan();
  if (plan.rollouts && !plan.rollouts->section) {
    throw JobError(plan.rollouts->name + ".rollouts: plan prices samples that are made, and not those that are read " +
                   "back; leave the key out");
  }
  plan.samples = samples_;
  corpus_ = plan.corpus;
  return plan;
}

}  // namespace maestro
