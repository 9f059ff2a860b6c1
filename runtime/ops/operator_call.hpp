// SPDX-License-Identifier: Apache-2.0
// A call of an operator without its tensors: everything that its time depends on. Pure.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/core/dtype.hpp"
#include "runtime/ops/operators.hpp"

namespace maestro {

/// Calls with equal name, dtype and sizes do the same work.
struct OperatorCall {
  std::string op;                       ///< "linear", "attention_backward"; for a group "all_gather"
  DType dtype = DType::f32;             ///< dtype of the arithmetic
  std::array<std::int64_t, 7> sizes{};  ///< rows first, then all that distinguishes the operator's calls; rest 0
  double flops = 0;
  double bytes = 0;  ///< bytes read and written, if nothing is in a cache
  friend bool operator==(const OperatorCall& a, const OperatorCall& b) { return (a <=> b) == 0; }
  friend std::strong_ordering operator<=>(const OperatorCall& a, const OperatorCall& b) {
    if (const auto order = a.op <=> b.op; order != 0) return order;
    if (const auto order = a.dtype <=> b.dtype; order != 0) return order;
    return a.sizes <=> b.sizes;
  }
};

/// Returns the call. `readable`: the CPU may read the tensors, so that rows without a target, which losses skip, are
/// not counted. With mixed dtypes, `dtype` is the products' dtype.
template <class Op>
[[nodiscard]] OperatorCall call_of(const Op& op, bool readable);

/// Returns the call that packs a weight (OperatorTable::pack).
[[nodiscard]] OperatorCall pack_call(const Tensor& w, DType compute, bool backward);

/// Returns "linear 1024x384x1152 fp32".
[[nodiscard]] std::string text_of(const OperatorCall& call);

}  // namespace maestro
