// SPDX-License-Identifier: Apache-2.0
// Formats answers of the control service as text for users and JSON for programs. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace maestro {

/// A section's figures for a step or a validation.
struct MetricsRow {
  bool validation = false;
  std::string section;
  std::int64_t step = 0;
  std::map<std::string, double> metrics;
};

// Generated, see control.thrift.
namespace control {
class Checkpoint;
class Leaving;
class Plan;
class ReplicaFigures;
class Standing;
class Status;
}  // namespace control

/// Return lines without a break at the end.
[[nodiscard]] std::string plain_text(const control::Status& status);
[[nodiscard]] std::string plain_text(const control::Plan& plan);
[[nodiscard]] std::string plain_text(const control::Checkpoint& checkpoint);
[[nodiscard]] std::string plain_text(const control::Standing& standing);
[[nodiscard]] std::string plain_text(const control::Leaving& leaving);

/// Returns "running", "paused", ...
[[nodiscard]] std::string state_text(const control::Status& status);
/// Returns "forward, step 7, micro-batch 2", "waits for ...", or "no answer".
[[nodiscard]] std::string doing_text(const control::ReplicaFigures& replica);

/// Return a single line; members are named as in control.thrift, values of enumerations in lower case.
[[nodiscard]] std::string json_text(const control::Status& status);
[[nodiscard]] std::string json_text(const control::Plan& plan);
[[nodiscard]] std::string json_text(const control::Checkpoint& checkpoint);
[[nodiscard]] std::string json_text(const control::Standing& standing);
[[nodiscard]] std::string json_text(const control::Leaving& leaving);
/// Returns a line with the members section, step, kind ("train" or "validation") and metrics; null: not a finite
/// number.
[[nodiscard]] std::string json_text(const MetricsRow& row);
[[nodiscard]] std::string plain_text(const MetricsRow& row);

/// Returns a curve of up to `width` characters, each the mean of equally many values; omits values that are not finite.
[[nodiscard]] std::string sparkline(const std::vector<double>& values, std::size_t width);

}  // namespace maestro
