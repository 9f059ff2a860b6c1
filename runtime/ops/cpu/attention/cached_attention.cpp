// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/attention/cached_attention.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <vector>

#include "runtime/ops/element_math.hpp"

namespace maestro::cpu {

namespace {

template <class T>
class CachedRow {
 public:
  CachedRow(const CachedAttention& op, std::int64_t row) : op_(op), row_(row) {
    const std::int64_t width = op.shape.kv_heads * op.shape.head_size;
    const T* keys = query(op.shape.heads);
    const std::int64_t place = (op.first + row) * width;
    std::copy_n(keys, width, op.keys.data<T>() + place);
    std::copy_n(keys + width, width, op.values.data<T>() + place);
  }

  void attend(std::int64_t head) {
    const AttentionShape& shape = op_.shape;
    const std::int64_t size = shape.head_size;
    const std::int64_t width = shape.kv_heads * size;
    const std::int64_t column = head / (shape.heads / shape.kv_heads) * size;
    const std::int64_t end = op_.first + row_ + 1;
    const std::int64_t begin = shape.window > 0 ? std::max<std::int64_t>(0, end - shape.window) : 0;
    weights_.clear();
    for (std::int64_t key = begin; key < end; ++key) {
      weights_.push_back(score(query(head), op_.keys.data<T>() + key * width + column));
    }
    const float top = *std::max_element(weights_.begin(), weights_.end());
    float sum = 0;
    for (float& weight : weights_) sum += weight = std::exp(weight - top);
    T* out = op_.out.data<T>() + row_ * shape.out_columns() + head * size;
    for (std::int64_t i = 0; i < size; ++i) {
      float mixed = 0;
      const T* value = op_.values.data<T>() + begin * width + column + i;
      for (std::size_t key = 0; key < weights_.size(); ++key, value += width) {
        mixed += weights_[key] * static_cast<float>(*value);
      }
      out[i] = T(mixed / sum);
    }
  }

 private:
  [[nodiscard]] const T* query(std::int64_t head) const {
    return op_.qkv.data<T>() + row_ * op_.shape.qkv_columns() + head * op_.shape.head_size;
  }
  [[nodiscard]] float score(const T* query, const T* key) const {
    float sum = 0;
    for (std::int64_t i = 0; i < op_.shape.head_size; ++i) {
      sum += static_cast<float>(query[i]) * static_cast<float>(key[i]);
    }
    sum *= static_cast<float>(op_.shape.score_scale());
    if (op_.shape.softcap == 0) return sum;
    return element::Softcap::value(sum, static_cast<float>(op_.shape.softcap));
  }

  const CachedAttention& op_;
  std::int64_t row_;
  std::vector<float> weights_;
};

template <class T>
void attend(const CachedAttention& op) {
  for (std::int64_t row = 0; row < op.qkv.rows(); ++row) {
    CachedRow<T> cached(op, row);
    for (std::int64_t head = 0; head < op.shape.heads; ++head) cached.attend(head);
  }
}

}  // namespace

void cached_attention(const CachedAttention& op) {
  assert(op.shape.causal && op.first + op.qkv.rows() <= op.keys.rows());
  if (op.qkv.dtype() == DType::bf16) {
    attend<bfloat16>(op);
  } else {
    attend<float>(op);
  }
}

}  // namespace maestro::cpu
