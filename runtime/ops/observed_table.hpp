// SPDX-License-Identifier: Apache-2.0
// An operator table that reports its calls: those of another table, with their times, or calls of which nothing is
// computed (a dry pass).
//
// OB-1 (same calls): without a table behind it, it accepts every call that a table of the CPU accepts, returns zeros
//       where a value is expected, and neither reads nor writes the memory of tensors, but for targets of losses.
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
  /// Receives each call, with the milliseconds that it took; 0 where nothing is computed.
  std::function<void(const OperatorCall& call, double ms)> called;
  /// Waits for the work of a device that returns from calls before it is complete; empty: calls are complete.
  std::function<void()> finish = {};
  MsClock now = steady_ms;  ///< of the times
};

/// Belongs to a single thread. Table, space and observer outlive it.
class ObservedTable final : public DispatchingTable<ObservedTable> {
 public:
  /// Calls `table`.
  ObservedTable(const OperatorTable& table, TableObserver observer)
      : table_(&table), space_(&table.memory()), observer_(std::move(observer)) {}
  /// Computes nothing, on tensors of `space`.
  ObservedTable(MemorySpace& space, TableObserver observer) : space_(&space), observer_(std::move(observer)) {}

  [[nodiscard]] MemorySpace& memory() const override { return *space_; }
  std::unique_ptr<PackedWeight> pack(const Tensor& w, DType compute, PackFor use,
                                     std::unique_ptr<PackedWeight> reuse) const override;
  [[nodiscard]] bool takes_plain_weights() const override { return table_ != nullptr && table_->takes_plain_weights(); }
  [[nodiscard]] std::string attention_refusal(const AttentionShape& shape) const override {
    return table_ == nullptr ? std::string() : table_->attention_refusal(shape);
  }

  /// Returns whether a call runs: calls that it makes itself, such as collectives of a group, are a part of it.
  [[nodiscard]] bool running() const { return running_; }

  template <class Op>
  ResultOf<Op> handle(const Op& op) const {
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

  const OperatorTable* table_ = nullptr;  // null: nothing is computed
  MemorySpace* space_;
  TableObserver observer_;
  mutable bool running_ = false;  // calls are constant
};

}  // namespace maestro
