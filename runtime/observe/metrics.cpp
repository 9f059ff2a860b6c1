// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/metrics.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

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

/// Returns the index of the family `name` in `mine`, added if new; throws for a name that `others` hold.
template <class Mine, class Others>
std::uint32_t register_family(std::vector<Mine>& mine, std::vector<Others>& others, std::string_view name,
                              std::string_view help) {
  if (!is_metric_name(name)) {
    throw JobError("metric \"" + std::string(name) + "\": a name has letters, digits, '_' and ':' only",
                   ErrorCode::internal);
  }
  if (find_family(others, name) != others.end()) {
    throw JobError("metric " + std::string(name) + ": is a counter and a gauge", ErrorCode::internal);
  }
  const auto known = find_family(mine, name);
  const auto index = static_cast<std::uint32_t>(known - mine.begin());
  if (known == mine.end()) mine.push_back({std::string(name), std::string(help), {}});
  return index;
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

std::string label_text(const MetricLabels& labels) {
  std::string out;
  if (!labels.section.empty()) out += "section=\"" + escaped(labels.section, true) + '"';
  if (labels.replica) {
    out += (out.empty() ? "" : ",") + std::string("replica=\"") + std::to_string(labels.replica->value()) + '"';
  }
  return out.empty() ? out : '{' + out + '}';
}

std::string value_text(std::uint64_t value) {
  return std::to_string(value);
}

std::string value_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  return {digits.data(), end};
}

}  // namespace

CounterId MetricRegistry::counter(std::string_view name, std::string_view help) {
  const std::lock_guard lock(mutex_);
  return CounterId(register_family(counters_, gauges_, name, help));
}

GaugeId MetricRegistry::gauge(std::string_view name, std::string_view help) {
  const std::lock_guard lock(mutex_);
  return GaugeId(register_family(gauges_, counters_, name, help));
}

void MetricRegistry::add(CounterId counter, const MetricLabels& labels, std::uint64_t amount) {
  const std::lock_guard lock(mutex_);
  counters_.at(counter.value()).values[labels] += amount;
}

void MetricRegistry::set(GaugeId gauge, const MetricLabels& labels, double value) {
  const std::lock_guard lock(mutex_);
  gauges_.at(gauge.value()).values[labels] = value;
}

std::uint64_t MetricRegistry::value(CounterId counter, const MetricLabels& labels) const {
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

std::vector<MetricSample> MetricRegistry::samples() const {
  const std::lock_guard lock(mutex_);
  std::vector<MetricSample> out;
  const auto append = [&](const auto& families) {
    for (const auto& family : families) {
      for (const auto& [labels, value] : family.values) out.push_back({family.name, labels, value});
    }
  };
  append(counters_);
  append(gauges_);
  return out;
}

template <class Value>
void MetricRegistry::append_text(std::string& out, const Family<Value>& family, std::string_view kind) {
  if (family.values.empty()) return;
  out += "# HELP " + family.name + ' ' + escaped(family.help, false) + '\n';
  out += "# TYPE " + family.name + ' ' + std::string(kind) + '\n';
  for (const auto& [labels, value] : family.values) {
    out += family.name + label_text(labels) + ' ' + value_text(value) + '\n';
  }
}

std::string MetricRegistry::prometheus_text() const {
  const std::lock_guard lock(mutex_);
  std::string out;
  for (const auto& family : counters_) append_text(out, family, "counter");
  for (const auto& family : gauges_) append_text(out, family, "gauge");
  return out;
}

}  // namespace maestro
