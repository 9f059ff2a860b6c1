// SPDX-License-Identifier: Apache-2.0
// An operator table that reports its calls: either the calls of another table, with their times, or calls without any
// computation (a dry pass).
//
// OB-1 (same calls): without a table to call, it accepts every call that a CPU table accepts, or a GPU table if its
//       space is not host memory; it returns zeros if a value is expected, and neither reads nor writes the memory of
//       tensors, except for targets of losses in host memory.
#pragma once

#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include "runtime/core/ms_clock.hpp"
#include "runtime/ops/operator_call.hpp"
#include "runtime/ops/operator_table.hpp"

namespace maestro {

struct TableObserver {
  /// Receives each call, with its duration in milliseconds; 0 in a dry pass.
  std::function<void(const OperatorCall& call, double ms)> called;
  MsClock now = steady_ms;  ///< clock of the times
};

/// Belongs to a single thread. Table and space outlive it.
class ObservedTable final : public DispatchingTable<ObservedTable> {
 public:
  /// Calls and observes `table`.
  ObservedTable(const OperatorTable& table, TableObserver observer)
      : table_(&table), space_(&table.memory()), observer_(std::move(observer)) {}
  /// Makes a dry pass, on tensors of `space`, of a table for which packs_once(bf16) is `packs_once`.
  ObservedTable(MemorySpace& space, bool packs_once, TableObserver observer)
      : space_(&space), packs_once_(packs_once), observer_(std::move(observer)) {}

  [[nodiscard]] MemorySpace& memory() const override { return *space_; }
  std::unique_ptr<PackedWeight> pack(const Tensor& w, DType compute, PackFor use, std::unique_ptr<PackedWeight> reuse,
                                     WeightGroup group = {}) const override;
  [[nodiscard]] bool takes_blocks() const override { return table_ == nullptr || table_->takes_blocks(); }
  std::unique_ptr<PackedWeight> pack_blocks(const Mxfp4Rows& w, std::unique_ptr<PackedWeight> reuse,
                                            WeightGroup group) const override;
  [[nodiscard]] bool takes_plain_weights() const override {
    return table_ == nullptr ? !space_->host() : table_->takes_plain_weights();
  }
  [[nodiscard]] bool packs_once(DType compute) const override {
    return table_ == nullptr ? packs_once_ || compute == DType::f32 : table_->packs_once(compute);
  }
  [[nodiscard]] std::string attention_refusal(const AttentionShape& shape) const override {
    return table_ == nullptr ? std::string() : table_->attention_refusal(shape);
  }

  /// Returns whether a call runs. Calls that it makes itself, such as collectives of a group, are a part of it.
  [[nodiscard]] bool running() const { return running_; }

  /// Sets whether to observe. Otherwise calls and repeated passes go directly to the table.
  void observe(bool on) { observing_ = on; }
  void repeat(std::uint64_t place, const std::function<void()>& calls) const override {
    observing_ || table_ == nullptr ? calls() : table_->repeat(place, calls);
  }

  template <class Op>
  ResultOf<Op> handle(const Op& op) const {
    if (!observing_ && table_ != nullptr) return table_->run(op);
    const OperatorCall call = call_of(op, space_->host());
    if constexpr (std::is_void_v<ResultOf<Op>>) {
      timed(call, [&] { table_->run(op); });
    } else {
      using Value = decltype(std::declval<ResultOf<Op>>().get());
      ResultOf<Op> result = Value();
      timed(call, [&] { result = table_->run(op); });
      return result;
    }
  }

 private:
  void timed(const OperatorCall& call, const std::function<void()>& work) const;

  const OperatorTable* table_ = nullptr;  // null: a dry pass
  MemorySpace* space_;
  bool packs_once_ = false;
  TableObserver observer_;
  bool observing_ = true;
  mutable bool running_ = false;  // mutable, because calls are const
};

}  // namespace maestro
