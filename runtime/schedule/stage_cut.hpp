// SPDX-License-Identifier: Apache-2.0
// Partitions consecutive layers into pipeline stages. Pure.
//
// TC-1 (partition): every stage has at least one layer; stages are consecutive and together hold all layers.
// TC-2 (balance): no other partition has a cheaper most expensive stage; among equal partitions earlier stages take
//       fewer layers (they also keep more micro-batches in flight).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace maestro {

/// Returns the layers of each of `stages` stages. `before` and `after` are additional costs in the first and the last
/// stage. 1 <= stages <= layers. O(stages x layers^2) time.
[[nodiscard]] std::vector<std::int64_t> cut_stages(std::span<const double> layers, double before, double after,
                                                   std::int64_t stages);

}  // namespace maestro
