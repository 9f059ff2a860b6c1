// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/row_table.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <tuple>

namespace maestro {

void RowGradients::add(std::span<const std::int32_t> ids, const Tensor& rows) {
  assert(rows.rows() == std::ssize(ids));
  const std::size_t first = values_.size();
  const auto count = static_cast<std::size_t>(rows.elements());
  for (std::size_t row = 0; row < ids.size(); ++row) {
    entries_.push_back({ids[row], micro_batch_, entries_.size()});
  }
  values_.resize(first + count);
  const auto copy = [&](const auto* from) { std::copy_n(from, count, values_.begin() + std::ptrdiff_t(first)); };
  if (rows.dtype() == DType::bf16) {
    std::transform(rows.data<bfloat16>(), rows.data<bfloat16>() + count, values_.begin() + std::ptrdiff_t(first),
                   [](bfloat16 value) { return static_cast<float>(value); });
  } else {
    copy(rows.data<float>());
  }
  merged_.ids.clear();
}

const RowGradients::Merged& RowGradients::merged() const {
  if (!merged_.ids.empty() || entries_.empty()) return merged_;
  std::vector<Entry> sorted = entries_;
  std::ranges::sort(sorted, {}, [](const Entry& entry) { return std::tuple(entry.id, entry.micro_batch, entry.row); });
  const std::size_t columns = values_.size() / entries_.size();
  merged_.sums.clear();
  for (const Entry& entry : sorted) {
    const float* from = values_.data() + entry.row * columns;
    if (merged_.ids.empty() || merged_.ids.back() != entry.id) {
      merged_.ids.push_back(entry.id);
      merged_.sums.insert(merged_.sums.end(), from, from + columns);
      continue;
    }
    float* sum = merged_.sums.data() + merged_.sums.size() - columns;
    std::transform(from, from + columns, sum, sum, [](float value, float so_far) { return so_far + value; });
  }
  return merged_;
}

double RowGradients::sum_of_squares() const {
  double sum = 0;
  if (entries_.empty()) return sum;
  for (const float value : merged().sums) sum += double{value} * double{value};
  return sum;
}

void RowGradients::clear() {
  entries_.clear();
  values_.clear();
  merged_.ids.clear();
  merged_.sums.clear();
}

void step_rows(const RowGradients::Merged& gradients, const RowAdaGrad& settings, const Tensor& values,
               const Tensor& sums) {
  const auto columns = static_cast<std::size_t>(values.columns());
  const auto scale = static_cast<float>(settings.clip_factor);
  for (std::size_t at = 0; at < gradients.ids.size(); ++at) {
    const float* gradient = gradients.sums.data() + at * columns;
    const auto row = static_cast<std::size_t>(gradients.ids[at]);
    float squares = 0;
    for (std::size_t i = 0; i < columns; ++i) squares += scale * gradient[i] * (scale * gradient[i]);
    float& sum = sums.data<float>()[row];
    sum += static_cast<float>(settings.moment_scale) * squares / static_cast<float>(columns);
    const float rate =
        static_cast<float>(settings.lr) * scale / (std::sqrt(sum) + static_cast<float>(settings.epsilon));
    float* value = values.data<float>() + row * columns;
    for (std::size_t i = 0; i < columns; ++i) value[i] -= rate * gradient[i];
  }
}

}  // namespace maestro
