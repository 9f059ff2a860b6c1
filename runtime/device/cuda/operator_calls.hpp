// SPDX-License-Identifier: Apache-2.0
// A pass' operator calls as values: collected first, then issued in order, or as a graph recorded from an equal pass.
//
// OC-1 (equality by value): a pass replays only the graph of an equal pass: the same operators in the same order, with
//       the same memory, shapes, dtypes and scalars, and the same contents of lists on the host.
// OC-2 (own copies): the pass holds copies of the host memory that its calls refer to; the caller may change or free
//       the originals when the call has returned.
// OC-3 (figures of replays): a figure of a replayed pass has separate memory, as for an issued call.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <type_traits>
#include <variant>
#include <vector>

#include "runtime/device/cuda/graph_cache.hpp"
#include "runtime/ops/cuda/products/plain_weight.hpp"
#include "runtime/ops/operator_table.hpp"

namespace maestro::cuda {

template <class List>
struct VariantOf;
template <class... Ops>
struct VariantOf<OperatorList<Ops...>> {
  using Type = std::variant<Ops...>;
};
using AnyOperator = VariantOf<Operators>::Type;

/// The calls of a pass, with the host memory that they refer to (OC-2).
class OperatorPass {
 public:
  OperatorPass() = default;
  OperatorPass(const OperatorPass&) = delete;
  OperatorPass& operator=(const OperatorPass&) = delete;
  void add(AnyOperator call);
  [[nodiscard]] const std::vector<AnyOperator>& calls() const { return calls_; }
  /// Compares the calls member by member, floats by their bits.
  friend bool operator==(const OperatorPass& a, const OperatorPass& b) { return a.words_ == b.words_; }
  /// Returns a hash of the values; equal passes have equal keys.
  [[nodiscard]] GraphKey key() const;
  void clear();

 private:
  template <class T>
  void hold(T& member);
  template <class T>
  void write(const T& member);
  void write_contents(std::span<const std::byte> bytes);

  std::vector<AnyOperator> calls_;
  std::vector<std::uint64_t> words_;  // the calls in order: different calls have different words
  std::deque<PlainWeight> weights_;
  std::deque<std::vector<std::int32_t>> offsets_;
  std::deque<RotaryFrequencies> frequencies_;
  std::deque<std::vector<std::byte>> lists_;
};

/// Belongs to the device's thread.
class OperatorCalls final : public GraphWork {
 public:
  /// `table` issues the calls on `stream`, its weights are PlainWeights; all outlive the calls and their figures.
  OperatorCalls(const OperatorTable& table, MemorySpace& pinned, cudaStream_t stream)
      : table_(&table), pinned_(&pinned), stream_(stream) {}

  /// Returns a promise of the result for an operator that has one. Only LossSums are figures of passes.
  template <class Op>
  ResultOf<Op> add(const Op& op) {
    if constexpr (std::is_same_v<Op, Put>) {
      if (op.values.empty()) return;  // nothing to put, and no memory to record it with
    }
    pass_->add(op);
    if constexpr (!std::is_void_v<ResultOf<Op>>) return promise();
  }

  void clear();
  [[nodiscard]] bool empty() const { return pass_->calls().empty(); }
  [[nodiscard]] GraphKey key() const { return pass_->key(); }

  void issue() override;
  void prepare() override;
  [[nodiscard]] std::shared_ptr<void> record() override;
  [[nodiscard]] bool equals(const void* kept) const override;
  void replayed(void* kept) override;

 private:
  /// Memory that a graph refers to, and the pass that it was recorded from.
  struct Kept {
    std::shared_ptr<const OperatorPass> pass;
    std::deque<SpaceMemory> lists;
    std::vector<Pending<LossSums>> figures;
  };
  [[nodiscard]] Pending<LossSums> promise();
  [[nodiscard]] std::shared_ptr<const LossSums> copy_of(const LossSums& figure) const;

  const OperatorTable* table_;
  MemorySpace* pinned_;
  cudaStream_t stream_;
  std::shared_ptr<OperatorPass> pass_ = std::make_shared<OperatorPass>();
  std::vector<std::shared_ptr<Pending<LossSums>>> figures_;  // promised figures
  std::shared_ptr<Kept> recording_;                          // state of the graph that is being made
};

}  // namespace maestro::cuda
