// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/observed_table.hpp"

namespace maestro {

namespace {

/// A placeholder for the packed form of a weight in a dry pass: as large as a CPU table's.
class DryPack final : public PackedWeight {
 public:
  DryPack(const Tensor& w, DType compute, WeightGroup group)
      : bytes_(compute == DType::f32 ? 0 : static_cast<std::size_t>(w.elements() * group.count) * size_of(compute)) {}
  /// The same for rows in blocks.
  DryPack(const Mxfp4Rows& w, WeightGroup group)
      : bytes_(static_cast<std::size_t>(w.rows * w.row_blocks() * (mxfp4_bytes + 1) * group.count)) {}
  [[nodiscard]] std::size_t bytes() const override { return bytes_; }
  [[nodiscard]] bool rows_readable() const override { return true; }

 private:
  std::size_t bytes_;
};

}  // namespace

std::unique_ptr<PackedWeight> ObservedTable::pack(const Tensor& w, DType compute, PackFor use,
                                                  std::unique_ptr<PackedWeight> reuse, WeightGroup group) const {
  if (!observing_ && table_ != nullptr) return table_->pack(w, compute, use, std::move(reuse), group);
  std::unique_ptr<PackedWeight> packed;
  if (table_ == nullptr) packed = std::make_unique<DryPack>(w, takes_plain_weights() ? DType::f32 : compute, group);
  timed(pack_call(w, compute, use == PackFor::backward_input),
        [&] { packed = table_->pack(w, compute, use, std::move(reuse), group); });
  return packed;
}

std::unique_ptr<PackedWeight> ObservedTable::pack_blocks(const Mxfp4Rows& w, std::unique_ptr<PackedWeight> reuse,
                                                         WeightGroup group) const {
  if (table_ != nullptr) return table_->pack_blocks(w, std::move(reuse), group);
  return std::make_unique<DryPack>(w, group);
}

void ObservedTable::timed(const OperatorCall& call, const std::function<void()>& work) const {
  if (table_ == nullptr) return observer_.called(call, 0);
  const double begin_ms = observer_.now();
  running_ = true;
  work();
  running_ = false;
  observer_.called(call, observer_.now() - begin_ms);
}

}  // namespace maestro
