// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/losses/top_k.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "runtime/ops/cpu/losses/top_k_kernels.hpp"

namespace maestro::cpu {

namespace {

struct Entry {
  float value;
  std::int32_t index;
};

bool better(const Entry& a, const Entry& b) {
  if (std::isnan(a.value) || std::isnan(b.value)) {
    if (std::isnan(a.value) != std::isnan(b.value)) return std::isnan(a.value);
  } else if (a.value != b.value) {
    return a.value > b.value;
  }
  return a.index < b.index;
}

/// A row's output arrays seen as a binary heap with the worst kept entry at its root.
class WorstFirstHeap {
 public:
  WorstFirstHeap(float* values, std::int32_t* indices) : values_(values), indices_(indices) {}

  [[nodiscard]] Entry worst() const { return get(0); }
  void fill(const float* row, std::int64_t k) {
    for (size_ = 0; size_ < k; ++size_) put(size_, {row[size_], static_cast<std::int32_t>(size_)});
    for (std::int64_t i = size_ / 2; i-- > 0;) sink(i, get(i));
  }
  void replace_worst(Entry entry) { sink(0, entry); }
  /// Moves the worst entry to the end until the heap is empty; the entries are then sorted, best first.
  void sort() {
    while (size_ > 1) {
      const Entry last = get(--size_);
      put(size_, worst());
      sink(0, last);
    }
  }

 private:
  [[nodiscard]] Entry get(std::int64_t i) const { return {values_[i], indices_[i]}; }
  void put(std::int64_t i, Entry entry) {
    values_[i] = entry.value;
    indices_[i] = entry.index;
  }
  void sink(std::int64_t i, Entry entry) {
    for (std::int64_t child = 2 * i + 1; child < size_; child = 2 * i + 1) {
      if (child + 1 < size_ && better(get(child), get(child + 1))) ++child;
      if (!better(entry, get(child))) break;
      put(i, get(child));
      i = child;
    }
    put(i, entry);
  }

  float* values_;
  std::int32_t* indices_;
  std::int64_t size_ = 0;
};

}  // namespace

void top_k(Isa isa, const Tensor& logits, const Tensor& values, const Tensor& indices, std::int64_t columns) {
  const TopKKernels& kernels = top_k_kernels(isa);
  const std::int64_t vocabulary = columns == 0 ? logits.columns() : columns;
  const std::int64_t k = values.columns();
  assert(k >= 1 && k <= vocabulary && indices.shape() == values.shape() && values.rows() == logits.rows());
  for (std::int64_t r = 0; r < logits.rows(); ++r) {
    const float* row = logits.data<float>() + r * logits.columns();
    WorstFirstHeap heap(values.data<float>() + r * k, indices.data<std::int32_t>() + r * k);
    heap.fill(row, k);
    // Later columns lose ties, so only a strictly larger value (or a NaN) can enter.
    for (std::int64_t i = k; i < vocabulary; ++i) {
      i = kernels.next_above(row, i, vocabulary, heap.worst().value);
      if (i == vocabulary) break;
      const Entry entry{row[i], static_cast<std::int32_t>(i)};
      if (better(entry, heap.worst())) heap.replace_worst(entry);
    }
    heap.sort();
  }
}

}  // namespace maestro::cpu
