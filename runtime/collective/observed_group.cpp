// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective/observed_group.hpp"

namespace maestro {

void ObservedGroup::timed(std::string_view name, DType dtype, std::size_t bytes, const std::function<void()>& work) {
  const GroupCall call{name, dtype, static_cast<std::int64_t>(bytes), size_};
  if (group_ == nullptr) return observer_(call, 0);
  const double begin_ms = now_();
  work();
  observer_(call, now_() - begin_ms);
}

void ObservedGroup::all_reduce_sum(std::span<float> values) {
  timed("all_reduce", DType::f32, values.size_bytes(), [&] { group_->all_reduce_sum(values); });
}

void ObservedGroup::all_reduce_max(std::span<float> values) {
  timed("all_reduce", DType::f32, values.size_bytes(), [&] { group_->all_reduce_max(values); });
}

void ObservedGroup::all_gather_rows(const Tensor& part, const Tensor& whole) {
  timed("all_gather", whole.dtype(), whole.bytes(), [&] { group_->all_gather_rows(part, whole); });
}

void ObservedGroup::reduce_scatter_rows(const Tensor& whole, const Tensor& part) {
  timed("reduce_scatter", whole.dtype(), whole.bytes(), [&] { group_->reduce_scatter_rows(whole, part); });
}

void ObservedGroup::reduce_to_shards(std::span<float> values) {
  timed("reduce_scatter", DType::f32, values.size_bytes(), [&] { group_->reduce_to_shards(values); });
}

void ObservedGroup::gather_shards(std::span<float> values) {
  timed("all_gather", DType::f32, values.size_bytes(), [&] { group_->gather_shards(values); });
}

void ObservedGroup::exchange(const Tensor& from, std::span<const BlockTransfer> sends, const Tensor& to,
                             std::span<const BlockTransfer> receives) {
  std::size_t elements = 0;
  for (const BlockTransfer& send : sends) elements += static_cast<std::size_t>(send.block.rows * send.block.columns);
  timed("exchange", from.dtype(), elements * size_of(from.dtype()),
        [&] { group_->exchange(from, sends, to, receives); });
}

}  // namespace maestro
