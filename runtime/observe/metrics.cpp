// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/metrics.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numeric>

#include "runtime/core/result.hpp"

namespace maestro {
namespace {

bool is_metric_name(std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == ':';
  };
  if (name.empty() || (name.front() >= '0' && name.front() <= '9')) return false;
  return std::all_of(name.begin(), name.end(), allowed);
}

template <class Family>
auto find_family(std::vector<Family>& families, std::string_view name) {
  return std::find_if(families.begin(), families.end(), [&](const auto& family) { return family.name == name; });
}

std::string escaped(std::string_view text, bool quotes) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '\\' || (quotes && c == '"')) out += '\\';
    out += c;
  }
  return out;
}

std::string label(const std::string& name, std::string_view value) {
  return name + "=\"" + escaped(value, true) + '"';
}

/// Returns the text of labels; `more`: a further label, or empty.
std::string label_text(const MetricLabels& labels, const std::string& more = {}) {
  std::vector<std::string> parts;
  if (!labels.section.empty()) parts.push_back(label("section", labels.section));
  if (labels.replica) parts.push_back(label("replica", std::to_string(labels.replica->value())));
  for (const auto& [name, value] : labels.others) parts.push_back(label(name, value));
  if (!more.empty()) parts.push_back(more);
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : ",") + part;
  return out.empty() ? out : '{' + out + '}';
}

std::string value_text(std::uint64_t value) {
  return std::to_string(value);
}

std::string value_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  constexpr double exact = 9007199254740992.0;  // 2^53
  if (value == std::trunc(value) && std::abs(value) < exact) return std::to_string(static_cast<std::int64_t>(value));
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  return {digits.data(), end};
}

template <class Value>
void append_values(std::string& out, const std::string& name, const MetricLabels& labels, const Value& value) {
  out += name + label_text(labels) + ' ' + value_text(value) + '\n';
}

void append_values(std::string& out, const std::string& name, const MetricLabels& labels, const Histogram& value) {
  std::uint64_t up_to = 0;
  for (std::size_t at = 0; at < value.buckets.size(); ++at) {
    up_to += value.buckets[at];
    const std::string bound = at < value.bounds.size() ? value_text(value.bounds[at]) : "+Inf";
    out += name + "_bucket" + label_text(labels, label("le", bound)) + ' ' + value_text(up_to) + '\n';
  }
  out += name + "_sum" + label_text(labels) + ' ' + value_text(value.sum) + '\n';
  out += name + "_count" + label_text(labels) + ' ' + value_text(up_to) + '\n';
}

}  // namespace

void Histogram::observe(double value) {
  ++buckets[static_cast<std::size_t>(std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin())];
  sum += value;
}

std::uint64_t Histogram::count() const {
  return std::accumulate(buckets.begin(), buckets.end(), std::uint64_t{0});
}

template <class Value>
std::uint32_t MetricRegistry::register_family(std::vector<Family<Value>>& mine, std::string_view name,
                                              std::string_view help) {
  if (!is_metric_name(name)) {
    throw JobError("metric \"" + std::string(name) + "\": a name has letters, digits, '_' and ':' only",
                   ErrorCode::internal);
  }
  const auto known = find_family(mine, name);
  const auto index = static_cast<std::uint32_t>(known - mine.begin());
  if (known != mine.end()) return index;
  if (find_family(counters_, name) != counters_.end() || find_family(gauges_, name) != gauges_.end() ||
      find_family(histograms_, name) != histograms_.end()) {
    throw JobError("metric " + std::string(name) + ": is of two kinds", ErrorCode::internal);
  }
  mine.push_back({std::string(name), std::string(help), {}});
  return index;
}

CounterId MetricRegistry::counter(std::string_view name, std::string_view help) {
  const std::lock_guard lock(mutex_);
  return CounterId(register_family(counters_, name, help));
}

GaugeId MetricRegistry::gauge(std::string_view name, std::string_view help) {
  const std::lock_guard lock(mutex_);
  return GaugeId(register_family(gauges_, name, help));
}

HistogramId MetricRegistry::histogram(std::string_view name, std::string_view help) {
  const std::lock_guard lock(mutex_);
  return HistogramId(register_family(histograms_, name, help));
}

void MetricRegistry::add(CounterId counter, const MetricLabels& labels, double amount) {
  const std::lock_guard lock(mutex_);
  counters_.at(counter.value()).values[labels] += amount;
}

void MetricRegistry::set(GaugeId gauge, const MetricLabels& labels, double value) {
  const std::lock_guard lock(mutex_);
  gauges_.at(gauge.value()).values[labels] = value;
}

void MetricRegistry::set(HistogramId histogram, const MetricLabels& labels, Histogram value) {
  const std::lock_guard lock(mutex_);
  histograms_.at(histogram.value()).values[labels] = std::move(value);
}

double MetricRegistry::value(CounterId counter, const MetricLabels& labels) const {
  const std::lock_guard lock(mutex_);
  const auto& values = counters_.at(counter.value()).values;
  const auto found = values.find(labels);
  return found == values.end() ? 0 : found->second;
}

std::optional<double> MetricRegistry::value(GaugeId gauge, const MetricLabels& labels) const {
  const std::lock_guard lock(mutex_);
  const auto& values = gauges_.at(gauge.value()).values;
  const auto found = values.find(labels);
  if (found == values.end()) return std::nullopt;
  return found->second;
}

template <class Value>
void MetricRegistry::append_text(std::string& out, const Family<Value>& family, std::string_view kind) {
  if (family.values.empty()) return;
  out += "# HELP " + family.name + ' ' + escaped(family.help, false) + '\n';
  out += "# TYPE " + family.name + ' ' + std::string(kind) + '\n';
  for (const auto& [labels, value] : family.values) append_values(out, family.name, labels, value);
}

std::string MetricRegistry::prometheus_text() const {
  const std::lock_guard lock(mutex_);
  std::string out;
  for (const auto& family : counters_) append_text(out, family, "counter");
  for (const auto& family : gauges_) append_text(out, family, "gauge");
  for (const auto& family : histograms_) append_text(out, family, "histogram");
  return out;
}

}  // namespace maestro
