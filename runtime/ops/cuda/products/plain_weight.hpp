// SPDX-License-Identifier: Apache-2.0
// A weight in the form that products on a device take.
#pragma once

#include "runtime/core/memory_space.hpp"
#include "runtime/ops/operator_table.hpp"

namespace maestro::cuda {

/// A view: (N, K) in the dtype of the products, in its parameters' memory; or, for grouped products, blocks in MXFP4.
class PlainWeight : public PackedWeight {
 public:
  explicit PlainWeight(const Tensor& weight) : weight_(weight) {}
  /// `blocks` (N, K / 32, 16) u8 and `scales` (N, K / 32) u8, in device memory.
  PlainWeight(const Tensor& blocks, const Tensor& scales)
      : weight_(nullptr, DType::bf16, Shape{scales.rows(), scales.columns() * mxfp4_block}),
        blocks_(blocks),
        scales_(scales) {}
  [[nodiscard]] std::size_t bytes() const override { return 0; }  // in addition to the parameters' memory
  [[nodiscard]] bool rows_readable() const override { return !in_blocks(); }
  /// Returns the values; with blocks only their shape.
  [[nodiscard]] const Tensor& tensor() const { return weight_; }
  [[nodiscard]] bool in_blocks() const { return blocks_.defined(); }
  [[nodiscard]] const Tensor& blocks() const { return blocks_; }
  [[nodiscard]] const Tensor& scales() const { return scales_; }

 private:
  Tensor weight_;
  Tensor blocks_;
  Tensor scales_;
};

/// Blocks with their memory.
class OwnedBlocks final : public PlainWeight {
 public:
  /// Holds `rows` rows of all groups, `columns` values each.
  OwnedBlocks(MemorySpace& space, std::int64_t rows, std::int64_t columns)
      : OwnedBlocks(space, SpaceMemory(space, static_cast<std::size_t>(rows * columns / mxfp4_block * 17)), rows,
                    columns / mxfp4_block) {}
  [[nodiscard]] std::size_t bytes() const override { return memory_.size(); }
  /// Copies a group's rows to their place.
  void write(const Mxfp4Rows& rows, std::int64_t group) {
    const std::int64_t count = rows.rows * rows.row_blocks();
    const auto copy = [&](const Tensor& to, const std::uint8_t* from, std::int64_t bytes) {
      space_.write(to.raw() + group * bytes, reinterpret_cast<const std::byte*>(from), static_cast<std::size_t>(bytes));
    };
    copy(blocks(), rows.blocks, count * mxfp4_bytes);
    copy(scales(), rows.scales, count);
  }

 private:
  OwnedBlocks(MemorySpace& space, SpaceMemory memory, std::int64_t rows, std::int64_t row_blocks)
      : PlainWeight(Tensor(memory.data(), DType::u8, Shape{rows, row_blocks, mxfp4_bytes}),
                    Tensor(memory.data() + rows * row_blocks * mxfp4_bytes, DType::u8, Shape{rows, row_blocks})),
        space_(space),
        memory_(std::move(memory)) {}
  MemorySpace& space_;
  SpaceMemory memory_;
};

/// Return what pack() and pack_blocks() of a table of this kind made; the second, its values, which are not in blocks.
[[nodiscard]] inline const PlainWeight& plain_weight(const PackedWeight& packed) {
  return static_cast<const PlainWeight&>(packed);
}
[[nodiscard]] inline const Tensor& plain(const PackedWeight& packed) {
  return plain_weight(packed).tensor();
}

}  // namespace maestro::cuda
