// SPDX-License-Identifier: Apache-2.0
// Progress of a run, as numbers and as a line of text. Pure: console.hpp owns the terminal.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace maestro {

using SteadyTime = std::chrono::steady_clock::time_point;

struct Progress {
  std::int64_t step = 0;  ///< optimizer steps done
  std::int64_t total = 0;
  std::optional<double> loss;
  std::optional<double> samples_per_s;
  std::optional<double> seconds_left;
  std::map<std::string, double> parts = {};  ///< parts of the loss, ce and kl, and further figures of the step
};

/// Returns "step  12/100  loss 2.3456  ce 2.1000  kl 0.2000  512 samples/s  3m05s left"; unknown parts are omitted,
/// counters keep their width.
[[nodiscard]] std::string format_progress(const Progress& progress);
/// Returns "loss 2.3000, ce 2.1000, kl 0.2000": the loss first.
[[nodiscard]] std::string format_figures(const std::map<std::string, double>& figures);
/// Returns "42s", "3m05s", "2h07m", "3d04h", rounded to the nearest second; "?" for negative and not finite values.
[[nodiscard]] std::string format_duration(double seconds);
/// Returns the first `columns` characters (UTF-8 code points) of `line`.
[[nodiscard]] std::string truncated(std::string_view line, std::size_t columns);

/// Converts finished steps into speed and time left. Recent steps weigh more, so that the estimate follows a change of
/// pace within some tens of steps. Single thread.
class ProgressMeter {
 public:
  /// `done`: steps finished before this run, after a resume.
  ProgressMeter(std::int64_t done, std::int64_t total, std::int64_t samples_per_step, SteadyTime start);
  /// Records a finished step; steps may be skipped, and a repeated step changes nothing but the loss.
  Progress finished(std::int64_t step, std::optional<double> loss, SteadyTime now);

 private:
  std::int64_t step_;
  std::int64_t total_;
  std::int64_t samples_per_step_;
  SteadyTime time_;
  double weighted_steps_ = 0;
  double weighted_seconds_ = 0;
};

}  // namespace maestro
