// SPDX-License-Identifier: Apache-2.0
// Cuts a row of layers into pipeline stages. Pure.
//
// SC-1: every stage has at least one layer; stages are consecutive and together all layers.
// SC-2: no other cut has a cheaper dearest stage; of equal ones earlier stages take fewer layers (they also keep more
//       micro-batches in flight).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace maestro {

/// Layers of each of `stages` stages. `before` and `after` are costs that the first and the last stage have beside
/// their layers. 1 <= stages <= layers. O(stages x layers^2) time.
[[nodiscard]] std::vector<std::int64_t> cut_stages(std::span<const double> layers, double before, double after,
                                                   std::int64_t stages);

}  // namespace maestro
