// SPDX-License-Identifier: Apache-2.0
// A communicator that reports its calls: either the calls of another communicator, with their times, or calls that move
// nothing (a dry pass, with one rank and without its peers).
#pragma once

#include <functional>
#include <string_view>

#include "runtime/collective/communicator.hpp"
#include "runtime/core/ms_clock.hpp"

namespace maestro {

/// A collective call of a rank.
struct GroupCall {
  std::string_view name;  ///< "all_reduce", "all_gather", "reduce_scatter", "exchange"
  DType dtype = DType::f32;
  std::int64_t bytes = 0;  ///< size of the full tensor; for an exchange, the size of the blocks that the rank sends
  std::int64_t ranks = 1;
};

class ObservedGroup final : public Communicator {
 public:
  /// Receives each call and its duration in milliseconds, including the wait for other ranks; 0 in a dry pass.
  using Observer = std::function<void(const GroupCall& call, double ms)>;
  /// Calls `group`, which outlives it. `now`: clock of the times.
  ObservedGroup(Communicator& group, Observer observer, MsClock now = steady_ms)
      : group_(&group), size_(group.size()), rank_(group.rank()), observer_(std::move(observer)), now_(now) {}
  /// Represents rank `rank` of `size`, without the others.
  ObservedGroup(std::int64_t size, std::int64_t rank, Observer observer)
      : size_(size), rank_(rank), observer_(std::move(observer)) {}

  [[nodiscard]] std::int64_t size() const override { return size_; }
  [[nodiscard]] std::int64_t rank() const override { return rank_; }
  void all_reduce_sum(std::span<float> values) override;
  void all_reduce_max(std::span<float> values) override;
  void all_gather_rows(const Tensor& part, const Tensor& whole) override;
  void reduce_scatter_rows(const Tensor& whole, const Tensor& part) override;
  void reduce_to_shards(std::span<float> values) override;
  void gather_shards(std::span<float> values) override;
  void exchange(const Tensor& from, std::span<const BlockTransfer> sends, const Tensor& to,
                std::span<const BlockTransfer> receives) override;
  void abort(const std::string& why) override {
    if (group_ != nullptr) group_->abort(why);
  }
  [[nodiscard]] std::string failure() const override { return group_ == nullptr ? std::string() : group_->failure(); }

 private:
  void timed(std::string_view name, DType dtype, std::size_t bytes, const std::function<void()>& work);

  Communicator* group_ = nullptr;  // null: nothing moves
  std::int64_t size_;
  std::int64_t rank_;
  Observer observer_;
  MsClock now_ = steady_ms;
};

}  // namespace maestro
