// SPDX-License-Identifier: Apache-2.0
// Replicas of a section with context degrees of their own. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace maestro {

/// Returns context degrees by replica as in a job file: "[{context = 4}, {count = 2, context = 1}]".
[[nodiscard]] std::string text_of_mix(const std::vector<std::int64_t>& contexts);

/// Returns the nearest mix that fits on `devices` devices, or a single replica with context 1 if none fits. A context
/// part takes `part` devices, 1 or more. The widest replicas become narrower, by divisors of their degree; if all have
/// context 1, the last replicas are left out.
[[nodiscard]] std::vector<std::int64_t> nearest_mix(std::vector<std::int64_t> contexts, std::int64_t part,
                                                    std::int64_t devices);

}  // namespace maestro
