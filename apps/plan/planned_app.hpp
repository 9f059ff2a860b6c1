// SPDX-License-Identifier: Apache-2.0
// A composed app whose layouts are planned: a job file's, or one that code composes.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "actors/job/resolved_job.hpp"
#include "apps/plan/compose_app.hpp"

namespace maestro {

/// Composes and resolves an app repeatedly, with different settings; opens its corpus once. Not thread-safe.
class PlannedApp {
 public:
  /// Throws the errors of `compose`, and JobError for a section that another process computes. The console outlives
  /// the app.
  PlannedApp(ComposeApp compose, Console& console);

  /// Returns the app with these settings. Throws JobError.
  [[nodiscard]] App app(const std::vector<std::string>& settings, RunOptions options, Console& console) const {
    return compose_(settings, std::move(options), console);
  }
  /// Resolves the app on so many CPU devices (0: any number) without starting it. Throws JobError.
  [[nodiscard]] ResolvedJob resolve(const std::vector<std::string>& settings, std::int64_t cpu_devices);
  /// Returns the settings of the app's job, by key.
  [[nodiscard]] const std::map<std::string, std::string>& settings() const { return settings_; }
  /// Returns the section that makes samples; empty: none.
  [[nodiscard]] const std::string& generator() const { return generator_; }
  /// Returns the names of the sections that have a type.
  [[nodiscard]] const std::vector<std::string>& sections() const { return sections_; }

 private:
  ComposeApp compose_;
  Console* console_;
  std::map<std::string, std::string> settings_;
  std::vector<std::string> sections_;
  std::string generator_;
  std::shared_ptr<const Corpus> corpus_;
  std::shared_ptr<SampleStore> samples_ = std::make_shared<SampleStore>();  // of first_steps(), for every layout
};

}  // namespace maestro
