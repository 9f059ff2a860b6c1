// SPDX-License-Identifier: Apache-2.0
// Plans an app that code composes: the layouts of its sections with which a step takes the least time on this machine.
// `maestro plan` does the same for a job file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "apps/plan/compose_app.hpp"
#include "apps/plan/layout_keys.hpp"  // IWYU pragma: export

namespace maestro {

/// The values of the options of `maestro plan` with the same names.
struct AppPlanOptions {
  std::vector<std::string> varied;  ///< keys that are chosen even if the app gives them: "head.micro_batch", "all"
  std::string profile;              ///< file of prices that is read, and written with new measurements; empty: none
  std::int64_t cpu_devices = 0;     ///< CPU devices of the app; 0: one per core
  std::int64_t gpus = 0;            ///< GPUs; 0: all, unless CPUs are meant or there are none
  std::int64_t measure_ms = 60;     ///< least time for each layout of a section
  std::int64_t top = 5;             ///< layouts in the answer
  std::int64_t trials = 0;          ///< layouts that are also run
  std::int64_t steps = 20;          ///< steps of each trial run
};

/// A layout of all sections.
struct PlannedLayout {
  double step_ms = 0;                        ///< predicted
  double samples_per_s = 0;                  ///< predicted
  std::optional<double> tried_step_ms;       ///< median of the trial runs
  std::map<std::string, double> bytes;       ///< memory by device, "cpu:0", estimated
  std::map<std::string, std::string> texts;  ///< text by section: "2 x m4 cpu:0,1"
  std::vector<std::string> settings;         ///< chosen keys, as App::set() takes them
  std::vector<std::string> prediction;       ///< the table [plan] of the prediction, as App::set() takes it
};

struct AppPlan {
  std::vector<PlannedLayout> layouts;          ///< the best first
  std::size_t chosen = 0;                      ///< the fastest layout that was tried, else the first
  double bound_ms = 0;                         ///< no layout that was compared has a shorter step
  std::map<std::string, double> alternatives;  ///< step by change: {"head.micro_batch = 4": 12.5}
  std::string text;                            ///< lines of `maestro plan`
};

/// Measures the sections of an app on the devices of this machine, and ranks layouts. Passes run on new replicas, so
/// neither the app nor anything that it trains changes. `console` receives a line for each measurement, and a warning
/// if other processes load the machine. Throws JobError, and what `compose` throws. Not thread-safe.
[[nodiscard]] AppPlan plan_app(const ComposeApp& compose, const AppPlanOptions& options, Console& console);

}  // namespace maestro
