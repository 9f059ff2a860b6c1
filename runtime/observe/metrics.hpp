// SPDX-License-Identifier: Apache-2.0
// Counters, gauges and histograms of a process by their labels, without network, and their text for Prometheus.
//
// MR-1 (monotonic): a counter never falls.
// MR-2 (one kind per name): a name is a counter, a gauge or a histogram, with a single help text.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/core/ids.hpp"

namespace maestro {

using CounterId = Id<struct CounterTag>;
using GaugeId = Id<struct GaugeTag>;
using HistogramId = Id<struct HistogramTag>;

/// Owner of a value; an empty section means the complete process.
struct MetricLabels {
  std::string section;
  std::optional<ReplicaIndex> replica;
  std::vector<std::pair<std::string, std::string>> others = {};  ///< names of letters and '_', values
  friend auto operator<=>(const MetricLabels&, const MetricLabels&) = default;
};

/// Numbers of observations up to each bound and beyond the last, and their sum.
struct Histogram {
  std::vector<double> bounds;          ///< rising
  std::vector<std::uint64_t> buckets;  ///< one more than bounds; each observation is in a single bucket
  double sum = 0;

  Histogram() = default;
  explicit Histogram(std::vector<double> rising_bounds)
      : bounds(std::move(rising_bounds)), buckets(bounds.size() + 1) {}
  void observe(double value);
  [[nodiscard]] std::uint64_t count() const;
};

/// Thread-safe. Ids are valid only for the registry that returned them.
class MetricRegistry {
 public:
  static constexpr std::string_view content_type = "text/plain; version=0.0.4; charset=utf-8";

  /// Registers a metric, or finds it again. Names match [a-zA-Z_:][a-zA-Z0-9_:]*, counters by custom ending in _total.
  /// Throws JobError(internal) on another name and on a name of another kind (MR-2).
  [[nodiscard]] CounterId counter(std::string_view name, std::string_view help);
  [[nodiscard]] GaugeId gauge(std::string_view name, std::string_view help);
  [[nodiscard]] HistogramId histogram(std::string_view name, std::string_view help);

  void add(CounterId counter, const MetricLabels& labels, double amount = 1);
  void set(GaugeId gauge, const MetricLabels& labels, double value);
  /// Replaces a histogram whose observations were counted elsewhere.
  void set(HistogramId histogram, const MetricLabels& labels, Histogram value);
  /// Returns 0 for labels never counted.
  [[nodiscard]] double value(CounterId counter, const MetricLabels& labels) const;
  [[nodiscard]] std::optional<double> value(GaugeId gauge, const MetricLabels& labels) const;

  /// Returns the Prometheus text exposition format 0.0.4; metrics without values are omitted.
  [[nodiscard]] std::string prometheus_text() const;

 private:
  template <class Value>
  struct Family {
    std::string name;
    std::string help;
    std::map<MetricLabels, Value> values;
  };
  /// Returns the index of the family `name` in `mine`, added if new (MR-2).
  template <class Value>
  std::uint32_t register_family(std::vector<Family<Value>>& mine, std::string_view name, std::string_view help);
  template <class Value>
  static void append_text(std::string& out, const Family<Value>& family, std::string_view kind);

  mutable std::mutex mutex_;
  std::vector<Family<double>> counters_;
  std::vector<Family<double>> gauges_;
  std::vector<Family<Histogram>> histograms_;
};

}  // namespace maestro
