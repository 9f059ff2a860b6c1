// SPDX-License-Identifier: Apache-2.0
// Counters and gauges of a process, by section and replica, without any network. Kept for the issue on operating (a
// metrics endpoint and live records), not used yet.
//
// MR-1 (monotonic): a counter never falls.
// MR-2 (one kind per name): a name is either a counter or a gauge, with a single help text.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/core/ids.hpp"

namespace maestro {

using CounterId = Id<struct CounterTag>;
using GaugeId = Id<struct GaugeTag>;

/// The owner of a value; an empty section means the whole process.
struct MetricLabels {
  std::string section;
  std::optional<ReplicaIndex> replica;
  friend auto operator<=>(const MetricLabels&, const MetricLabels&) = default;
};

struct MetricSample {
  std::string name;
  MetricLabels labels;
  std::variant<std::uint64_t, double> value;  ///< of a counter, of a gauge
};

/// Thread-safe. Ids are valid only for the registry that returned them.
class MetricRegistry {
 public:
  static constexpr std::string_view content_type = "text/plain; version=0.0.4; charset=utf-8";

  /// Registers a metric, or finds it again. Names match [a-zA-Z_:][a-zA-Z0-9_:]*, counters by custom ending in _total.
  /// Throws JobError(internal) on another name and on a name that is the other kind (MR-2).
  [[nodiscard]] CounterId counter(std::string_view name, std::string_view help);
  [[nodiscard]] GaugeId gauge(std::string_view name, std::string_view help);

  void add(CounterId counter, const MetricLabels& labels, std::uint64_t amount = 1);
  void set(GaugeId gauge, const MetricLabels& labels, double value);
  /// Returns 0 for labels never counted.
  [[nodiscard]] std::uint64_t value(CounterId counter, const MetricLabels& labels) const;
  [[nodiscard]] std::optional<double> value(GaugeId gauge, const MetricLabels& labels) const;

  /// Returns all values, in order of registration and then of labels.
  [[nodiscard]] std::vector<MetricSample> samples() const;
  /// Returns the Prometheus text exposition format 0.0.4; metrics without values are omitted.
  [[nodiscard]] std::string prometheus_text() const;

 private:
  template <class Value>
  struct Family {
    std::string name;
    std::string help;
    std::map<MetricLabels, Value> values;
  };
  template <class Value>
  static void append_text(std::string& out, const Family<Value>& family, std::string_view kind);

  mutable std::mutex mutex_;
  std::vector<Family<std::uint64_t>> counters_;
  std::vector<Family<double>> gauges_;
};

}  // namespace maestro
