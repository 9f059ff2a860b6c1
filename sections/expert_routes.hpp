// SPDX-License-Identifier: Apache-2.0
// A hook into the choice of experts (experts.hpp): it receives the experts that each row takes, or names them in the
// router's place. With the same experts, layouts can be compared where a rounding would change a choice between scores
// that are nearly equal; and a policy can be trained with the experts that its samples took when they were generated
// (router replay). Without a hook a layer's cost is the comparison of a pointer.
//
// XR-1 (choice only): named experts replace the router's choice and nothing else. Weights, losses of loads, counts of
//       routes and all gradients follow from the router's scores and the named experts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/core/range.hpp"
#include "runtime/ops/operator_table.hpp"

namespace maestro {

/// Rows that a layer sends to experts: M_c rows of the micro-batch's M, a rank's context part, or only the rank's rows
/// if ranks share the experts (routed_rows).
struct RoutedRows {
  std::int64_t layer = 0;             ///< number of the layer in the complete model
  std::int64_t per_token = 0;         ///< k, the experts that a row takes
  std::int64_t experts = 0;           ///< E, the layer's experts
  std::span<const SampleId> samples;  ///< the micro-batch's samples, in row order
  SequenceLayout layout;              ///< layout of all M rows
  RowRange own;                       ///< the M_c rows among them
};

/// Called on the section's device thread, by all ranks of a replica at the same time. Each layer with experts calls
/// named() and then taken() in the forward pass, and again if the backward pass computes the layer again. Cached passes
/// of a generation do not call it.
class RouteHook {
 public:
  virtual ~RouteHook() = default;
  /// Returns k different experts in [0, E) for each of the rows, (M_c k); or nothing, and the router chooses. Returns
  /// the same on all ranks that have a row, and whenever a layer is computed again.
  [[nodiscard]] virtual std::vector<std::int32_t> named(const RoutedRows& rows) = 0;
  /// Receives the experts that the rows take, (M_c, k) i32 in memory of `ops`, best first if the router chose. The
  /// memory is valid during the call.
  virtual void taken(const RoutedRows& rows, const OperatorTable& ops, const Tensor& experts) = 0;
};

/// The hook of a pass, and the pass's rows.
struct PassRoutes {
  RouteHook* hook = nullptr;  ///< null: none
  RoutedRows rows = {};       ///< layer, per_token and experts are the layer's
};

}  // namespace maestro
