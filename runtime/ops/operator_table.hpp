// SPDX-License-Identifier: Apache-2.0
// The interface of compute backends: every operator a section needs (operators.hpp), on plain tensors, without
// autograd. OperatorTable has a run() for each operator of the list; a class that leaves an operator out is abstract.
//
// Memory: a call may return before its work is complete. Work runs in the order of the calls, and Device::finish()
// returns when it is complete. The memory that a call refers to stays allocated until then.
// Thread-safety: a table of the CPU is stateless apart from per-thread scratch; calls from several device threads
// may run at once. A table of another device belongs to a single thread.
// Errors: shapes and dtypes are the caller's contract (asserted); no operator allocates results.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "runtime/core/memory_space.hpp"
#include "runtime/core/mxfp4.hpp"
#include "runtime/ops/operators.hpp"

namespace maestro {

enum class PackFor : std::uint8_t {
  forward,        ///< y = x w^T
  backward_input  ///< dx = dy w
};

/// A matrix among the equal groups of rows of a weight, for grouped products.
struct WeightGroup {
  std::int64_t index = 0;
  std::int64_t count = 1;
};

/// Declares a pure virtual run() for each operator in a list.
template <class List>
class RunsAll;
template <>
class RunsAll<OperatorList<>> {
 public:
  virtual ~RunsAll() = default;
  void run() const = delete;  // begins the overload chain
};
template <class Op, class... Rest>
class RunsAll<OperatorList<Op, Rest...>> : public RunsAll<OperatorList<Rest...>> {
 public:
  using RunsAll<OperatorList<Rest...>>::run;
  virtual ResultOf<Op> run(const Op& op) const = 0;
};

class OperatorTable : public RunsAll<Operators> {
 public:
  using RunsAll<Operators>::run;
  // The memory operators of host memory; tables of devices override them.
  void run(const Zero& op) const override;
  void run(const Copy& op) const override;
  void run(const Upload& op) const override;
  void run(const Download& op) const override;
  void run(const Put& op) const override;

  // Shorthands.
  void zero(const Tensor& to) const { run(Zero{to}); }
  void copy(const Tensor& from, const Tensor& to) const { run(Copy{from, to}); }
  void upload(const ConstTensor& from, const Tensor& to) const { run(Upload{from, to}); }
  void download(const ConstTensor& from, const Tensor& to) const { run(Download{from, to}); }
  void put(std::span<const std::byte> values, const Tensor& to) const { run(Put{values, to}); }

  /// Returns the memory space of this table's tensors; it outlives the table.
  [[nodiscard]] virtual MemorySpace& memory() const { return host_memory(); }

  /// Runs `calls` once: a pass that may repeat with the same operators, tensors and scalars. The table may defer the
  /// calls until all have been made, or replay a recording of equal calls instead; so the pass contains nothing else on
  /// the device that depends on their order: no collectives, no release of memory of the table's space (releases to
  /// arenas are allowed), no reads of results. Rethrows an exception of `calls`; the pass' calls may then be left out.
  /// `place` identifies passes of the same kind.
  virtual void repeat(std::uint64_t /*place*/, const std::function<void()>& calls) const { calls(); }

  /// Repacks f32 `w` (N, K) for products in `compute` (f32 or bf16). `reuse` may be an older pack of the same weight. A
  /// pack of 0 bytes() in f32 refers to w, which then outlives it and keeps its values. A weight of several groups is
  /// packed group by group, in order: w is one of them, and `reuse` the pack of those before it. If packs refer to w,
  /// the groups are adjacent in memory.
  virtual std::unique_ptr<PackedWeight> pack(const Tensor& w, DType compute, PackFor use,
                                             std::unique_ptr<PackedWeight> reuse, WeightGroup group = {}) const = 0;
  /// Returns whether pack_blocks() makes packs for grouped products.
  [[nodiscard]] virtual bool takes_blocks() const { return false; }
  /// Does the same as pack() for a group's rows in MXFP4, host memory: the pack is a copy of the blocks, for every use
  /// and dtype of the product, which widens them as it reads them.
  virtual std::unique_ptr<PackedWeight> pack_blocks(const Mxfp4Rows& w, std::unique_ptr<PackedWeight> reuse,
                                                    WeightGroup group) const;
  /// Returns true if products take a weight in its original layout, (N, K) in the dtype of the product, for every use:
  /// then Parameters keep a single bf16 copy of all values, and pack() is called once for it and costs nothing.
  [[nodiscard]] virtual bool takes_plain_weights() const { return false; }

  /// Returns whether a pack in `compute` serves every use: then Parameters keep one.
  [[nodiscard]] virtual bool packs_once(DType /*compute*/) const { return takes_plain_weights(); }

  /// Returns the reason why this table does not support attention of a shape, with the nearest supported shape; empty
  /// if it does.
  [[nodiscard]] virtual std::string attention_refusal(const AttentionShape& /*shape*/) const { return {}; }
};

/// A table whose run() passes each operator to `Self::handle(op)`.
template <class Self, class List = Operators>
class DispatchingTable;
template <class Self>
class DispatchingTable<Self, OperatorList<>> : public OperatorTable {
 public:
  using OperatorTable::run;
};
template <class Self, class Op, class... Rest>
class DispatchingTable<Self, OperatorList<Op, Rest...>> : public DispatchingTable<Self, OperatorList<Rest...>> {
 public:
  using DispatchingTable<Self, OperatorList<Rest...>>::run;
  ResultOf<Op> run(const Op& op) const final { return static_cast<const Self&>(*this).handle(op); }
};

}  // namespace maestro
