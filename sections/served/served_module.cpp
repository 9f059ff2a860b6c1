// SPDX-License-Identifier: Apache-2.0
#include "sections/served/served_module.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "runtime/core/printable.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

namespace {

std::string text_of(const Port& port) {
  return std::string(name_of(port.dtype)) + " x " + std::to_string(port.columns) +
         (port.axis == Axis::tokens ? "" : ", " + std::string(name_of(port.axis))) +
         (port.differentiable ? ", differentiable" : "");
}

/// A module's named parts as text, in their order.
using Parts = std::vector<std::pair<std::string, std::string>>;

Parts parts_of(const ServedModule& module, bool frozen) {
  Parts parts;
  for (const Port& port : module.ports.inputs) parts.emplace_back("input '" + port.name + "'", text_of(port));
  for (const Port& port : module.ports.outputs) parts.emplace_back("output '" + port.name + "'", text_of(port));
  if (frozen) {
    parts.emplace_back("the fingerprint of its values", printable(module.fingerprint));
    return parts;
  }
  for (const ServedParameter& parameter : module.parameters) {
    parts.emplace_back("parameter '" + parameter.name + "'",
                       parameter.shape.to_string() + (parameter.decayed ? ", decayed" : ""));
  }
  return parts;
}

}  // namespace

std::string difference(const ServedModule& is, const ServedModule& was, bool frozen) {
  const Parts now = parts_of(is, frozen), before = parts_of(was, frozen);
  for (std::size_t at = 0; at < std::max(now.size(), before.size()); ++at) {
    if (at >= now.size()) return before[at].first + " is missing";
    if (at >= before.size()) return now[at].first + " is new";
    if (now[at].first != before[at].first) return now[at].first + " is there instead of " + before[at].first;
    if (now[at].second != before[at].second) {
      return now[at].first + " is " + now[at].second + ", was " + before[at].second;
    }
  }
  return {};
}

}  // namespace maestro
