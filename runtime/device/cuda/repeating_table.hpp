// SPDX-License-Identifier: Apache-2.0
// An operator table that replays repeated passes.
//
// RT-1 (same work): a pass (OperatorTable::repeat) queues the same work in the same order as its calls would if
//       they were issued separately.
// RT-2 (calls that cannot wait): a call that cannot wait until the pass has made all of its calls ends the collecting:
//       the collected calls are issued, and every later call at once. So does a question for the stream (OQ-1).
// RT-3 (plain calls): if nothing repeats, or graphs do not pay, calls are issued as they come (GP-1, GP-4).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "runtime/device/cuda/operator_calls.hpp"
#include "runtime/device/graph_policy.hpp"
#include "runtime/ops/device_queue.hpp"

namespace maestro::cuda {

struct RepeatingSite {
  GraphCache& graphs;
  MemorySpace& pinned;  ///< outlives the figures, too
  cudaStream_t stream = nullptr;
  std::size_t most_plain = GraphPolicyOptions().most_plain;
};

/// Wraps a table with a queue whose weights are PlainWeights; has its threads and errors.
class RepeatingTable final : public DispatchingTable<RepeatingTable>, public DeviceQueue {
 public:
  RepeatingTable(std::unique_ptr<const OperatorTable> table, const RepeatingSite& site)
      : table_(std::move(table)),
        queue_(*queue_of(*table_)),
        graphs_(site.graphs),
        calls_(*table_, site.pinned, site.stream),
        places_(site.most_plain) {}
  RepeatingTable(const RepeatingTable&) = delete;
  RepeatingTable& operator=(const RepeatingTable&) = delete;

  void repeat(std::uint64_t place, const std::function<void()>& calls) const override;
  [[nodiscard]] MemorySpace& memory() const override { return table_->memory(); }
  [[nodiscard]] bool takes_plain_weights() const override { return table_->takes_plain_weights(); }
  std::unique_ptr<PackedWeight> pack(const Tensor& w, DType compute, PackFor use, std::unique_ptr<PackedWeight> reuse,
                                     WeightGroup group = {}) const override {
    return table_->pack(w, compute, use, std::move(reuse), group);
  }
  [[nodiscard]] bool takes_blocks() const override { return table_->takes_blocks(); }
  std::unique_ptr<PackedWeight> pack_blocks(const Mxfp4Rows& w, std::unique_ptr<PackedWeight> reuse,
                                            WeightGroup group) const override {
    return table_->pack_blocks(w, std::move(reuse), group);
  }
  [[nodiscard]] std::string attention_refusal(const AttentionShape& shape) const override {
    return table_->attention_refusal(shape);
  }
  [[nodiscard]] int device() const override { return queue_.device(); }
  [[nodiscard]] void* stream() const override {
    issue_collected();
    return queue_.stream();
  }
  void wait() const override {
    issue_collected();
    queue_.wait();
  }
  void make_current() const noexcept override { queue_.make_current(); }

  /// Collects the call during a pass, or passes it to the table.
  template <class Op>
  ResultOf<Op> handle(const Op& op) const {
    if constexpr (collectable<Op>) {
      if (collecting_ && !of_group(op)) return calls_.add(op);
    }
    issue_collected();
    return table_->run(op);
  }

 private:
  /// Returns false for operators on flat vectors, and for operators that refer to host memory without a copy (OC-2).
  template <class Op>
  static constexpr bool collectable =
      !(std::is_same_v<Op, Upload> || std::is_same_v<Op, Download> || std::is_same_v<Op, AdamW> ||
        std::is_same_v<Op, SumOfSquares> || std::is_same_v<Op, AddInto>);
  template <class Op>
  static bool of_group(const Op& op) {
    if constexpr (requires { op.part.group; }) return op.part.group != nullptr;
    return false;
  }
  void issue_collected() const {
    if (std::exchange(collecting_, false)) calls_.issue();  // RT-2
  }
  void end() const;

  std::unique_ptr<const OperatorTable> table_;
  const DeviceQueue& queue_;  // the table's
  // State that passes change through the constant interface.
  GraphCache& graphs_;
  mutable OperatorCalls calls_;
  mutable RepeatingPlaces places_;
  mutable bool inside_ = false;      // a pass
  mutable bool collecting_ = false;  // its calls
};

}  // namespace maestro::cuda
