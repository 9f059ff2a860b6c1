// SPDX-License-Identifier: Apache-2.0
// The ports of section types. Pure.
//
// SP-1 (as it is built): the ports come from a meta section that the registry builds, and a key is named if the columns
//       change with its value.
#pragma once

#include <string>
#include <vector>

#include "apps/maestro/help/job_reference.hpp"
#include "runtime/graph/port.hpp"

namespace maestro {

struct TypePort {
  Port port;
  bool input = true;
  std::vector<std::string> keys;  ///< keys that set the columns: "width", or another section's "teacher.width"
};

/// Ports of a type with the options of `setting`.
struct TypePorts {
  std::string setting;  ///< `boundary = "logits"`; empty: the defaults
  std::vector<TypePort> ports;
};

/// Returns a registered type's ports with its defaults, then for each choice among its keys the ports that this choice
/// adds.
[[nodiscard]] std::vector<TypePorts> ports_of_type(const SectionRegistry& registry, const JobReference& reference,
                                                   const std::string& type);

}  // namespace maestro
