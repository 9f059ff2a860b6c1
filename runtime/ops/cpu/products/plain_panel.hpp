// SPDX-License-Identifier: Apache-2.0
// A weight's panel in its original order: a view of f32 values, or their copy in bf16.
#pragma once

#include "runtime/core/aligned_memory.hpp"
#include "runtime/ops/cpu/products/product_engine.hpp"

namespace maestro::cpu {

/// A panel (N, K) in its original layout: the f32 weight itself, or a bf16 copy of it.
class PlainPanel final : public PackedPanel {
 public:
  PlainPanel(std::int64_t rows, std::int64_t columns, std::size_t copied_bytes)
      : rows_(rows), columns_(columns), memory_(copied_bytes) {}
  [[nodiscard]] std::size_t bytes() const override { return memory_.size(); }
  [[nodiscard]] bool for_every_use() const override { return true; }
  [[nodiscard]] bool columns_readable() const override { return true; }
  [[nodiscard]] std::byte* copy() const { return memory_.data(); }
  void view(std::byte* values) { values_ = values; }
  [[nodiscard]] Matrix matrix() const {
    if (memory_.size() > 0) return {memory_.data(), DType::bf16, rows_, columns_, columns_};
    return {values_, DType::f32, rows_, columns_, columns_};
  }

 private:
  std::int64_t rows_;
  std::int64_t columns_;
  AlignedMemory memory_;
  std::byte* values_ = nullptr;
};

}  // namespace maestro::cpu
