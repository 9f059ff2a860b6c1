// SPDX-License-Identifier: Apache-2.0
// Mixes: replicas of a section that differ in context, for samples of unlike lengths. A mix needs as many devices as
// the layout that it replaces. Pure.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace maestro {

/// Returns the mixes of two of `contexts` with `parts` context parts in all, as context degrees by replica, the wide
/// replicas first. The number of wide replicas is a power of two: they are for the few longest samples.
[[nodiscard]] std::vector<std::vector<std::int64_t>> possible_mixes(std::int64_t parts,
                                                                    const std::set<std::int64_t>& contexts);

/// Returns settings, as for --set, with a mix in place of the section's replicas and context.
[[nodiscard]] std::vector<std::string> with_mix(std::vector<std::string> settings, const std::string& section,
                                                const std::vector<std::int64_t>& contexts);

}  // namespace maestro
