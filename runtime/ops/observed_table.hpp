// SPDX-License-Identifier: Apache-2.0
// An operator table that reports its calls: those of another table, with their times, or calls of which nothing is
// computed (a dry pass).
//
// OB-1 (same calls): without a table behind it, it accepts every call that a table of the CPU accepts, or of a GPU
//       where its space is no memory of the host; it returns zeros where a value is expected, and neither reads nor
//       writes the memory of tensors, but for targets of losses in host memory.
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
  /// Receives each call, with the milliseconds in which it returned; 0 where nothing is computed.
  std::function<void(const OperatorCall& call, double ms)> called;
  MsClock now = steady_ms;  ///< of the times
};

/// Belongs to a single thread. Table and space outlive it.
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
  [[nodiscard]] bool takes_plain_weights() const override {
    return table_ == nullptr ? !space_->host() : table_->takes_plain_weights();
  }
  [[nodiscard]] std::string attention_refusal(const AttentionShape& shape) const override {
    return table_ == nullptr ? std::string() : table_->attention_refusal(shape);
  }

  /// Returns whether a call runs: calls that it makes itself, such as collectives of a group, are a part of it.
  [[nodiscard]] bool running() const { return running_; }

  /// While not observing, calls and repeated passes go to the table as they come.
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

  const OperatorTable* table_ = nullptr;  // null: nothing is computed
  MemorySpace* space_;
  TableObserver observer_;
  bool observing_ = true;
  mutable bool running_ = false;  // calls are constant
};

}  // namespace maestro
