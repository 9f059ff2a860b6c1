// SPDX-License-Identifier: Apache-2.0
// A pass' calls of operators as a value: collected first, then issued one by one, or as a graph that was recorded of
// equal ones.
//
// OC-1: equal keys mean equal calls: the same operators in the same order, with the same memory, shapes, dtypes and
//       scalars, and where an argument is a list of the host's, the same contents.
// OC-2: what a call refers to on the host is held as a copy: nothing of its caller is looked at when it is issued.
// OC-3: a figure that replay gives lies in memory of its own, as one of a call that is issued.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/device/cuda/graph_cache.hpp"
#include "runtime/ops/cuda/products/plain_weight.hpp"
#include "runtime/ops/operator_table.hpp"

namespace maestro::cuda {

/// A running hash of calls and arguments. Floats count by their bits.
class CallKey {
 public:
  template <class T>
  requires(std::is_integral_v<T> || std::is_enum_v<T>) void add(T value) { word(static_cast<std::uint64_t>(value)); }
  void add(double value) { word(std::bit_cast<std::uint64_t>(value)); }
  void add(const void* address) { word(reinterpret_cast<std::uintptr_t>(address)); }
  template <class T>
  void add(std::span<T> device_memory) {
    add(static_cast<const void*>(device_memory.data()));
    add(device_memory.size());
  }
  void add(const Tensor& tensor);
  void add(const PackedWeight& weight) { add(plain(weight)); }
  void add(const AttentionShape& shape);
  void add(const SequenceLayout& layout);
  void add(const CrossEntropyHead& head);
  void add(const DistillationHead& head);
  void add_contents(std::span<const std::byte> bytes);
  [[nodiscard]] GraphKey value() const { return value_; }

 private:
  void word(std::uint64_t value);
  GraphKey value_ = 0;
};

/// Arguments as calls hold them until they are issued (OC-2).
class HeldArguments {
 public:
  struct Layout {
    std::shared_ptr<const std::vector<std::int32_t>> offsets;  // shared by the calls that have the same
    std::span<const std::int32_t> positions;
    std::span<const std::int32_t> device_offsets;
    operator SequenceLayout() const { return {*offsets, positions, device_offsets}; }  // NOLINT: as an argument
  };
  [[nodiscard]] Layout hold(const SequenceLayout& layout);
  [[nodiscard]] static PlainWeight hold(const PackedWeight& weight) { return PlainWeight(plain(weight)); }
  template <class T>
  [[nodiscard]] static T hold(const T& value) {
    return value;
  }
  void clear() { latest_.reset(); }

 private:
  std::shared_ptr<const std::vector<std::int32_t>> latest_;
};

/// Belongs to the device's thread.
class OperatorCalls final : public GraphWork {
 public:
  /// `table` issues the calls on `stream`, its weights are PlainWeights; all outlive the calls and what they give.
  OperatorCalls(const OperatorTable& table, MemorySpace& pinned, cudaStream_t stream)
      : table_(&table), pinned_(&pinned), stream_(stream) {}

  template <class... Parameters, class... Arguments>
  void add(void (OperatorTable::*method)(Parameters...) const, const Arguments&... arguments) {
    identify(method);
    (key_.add(arguments), ...);
    calls_.push_back(
        [method, ... held = held_.hold(arguments)](const OperatorTable& table) { (table.*method)(held...); });
  }
  void add_put(std::span<const std::byte> values, const Tensor& to);
  [[nodiscard]] Pending<LossSums> add_cross_entropy_head(const CrossEntropyHead& head);
  [[nodiscard]] Pending<LossSums> add_distillation_head(const DistillationHead& head);

  void clear();
  [[nodiscard]] bool empty() const { return calls_.empty(); }
  [[nodiscard]] GraphKey key() const { return key_.value(); }

  /// One by one.
  void issue() override;
  void prepare() override;
  [[nodiscard]] std::shared_ptr<void> record() override;
  void replayed(void* kept) override;

 private:
  using Call = std::function<void(const OperatorTable&)>;
  /// What a graph refers to.
  struct Kept {
    std::vector<SpaceMemory> lists;
    std::vector<Pending<LossSums>> figures;
  };
  template <class Method>
  void identify(Method method) {
    for (const std::uint64_t word :
         std::bit_cast<std::array<std::uint64_t, sizeof method / sizeof(std::uint64_t)>>(method)) {
      key_.add(word);
    }
  }
  template <class Make>
  [[nodiscard]] Pending<LossSums> add_figure(Make make);
  [[nodiscard]] std::shared_ptr<const LossSums> copy_of(const LossSums& figure) const;

  const OperatorTable* table_;
  MemorySpace* pinned_;
  cudaStream_t stream_;
  CallKey key_;
  HeldArguments held_;
  std::vector<Call> calls_;
  std::vector<std::vector<std::byte>> lists_;                // of add_put()
  std::vector<std::shared_ptr<Pending<LossSums>>> figures_;  // promised
  std::shared_ptr<Kept> recording_;                          // of the graph that is being made
};

}  // namespace maestro::cuda
