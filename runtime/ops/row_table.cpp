// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/row_table.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <tuple>

namespace maestro {

void RowGradients::add(std::span<const std::int32_t> ids, const ConstTensor& rows) {
  assert(rows.rows() == std::ssize(ids));
  const auto columns = static_cast<std::size_t>(rows.columns());
  const auto copy = [&](const auto* from) {
    for (std::size_t row = 0; row < ids.size(); ++row, from += columns) {
      if (ids[row] < 0) continue;
      entries_.push_back({ids[row], micro_batch_, entries_.size()});
      values_.resize(values_.size() + columns);
      std::transform(from, from + columns, values_.end() - static_cast<std::ptrdiff_t>(columns),
                     [](auto value) { return static_cast<float>(value); });
    }
  };
  if (rows.dtype() == DType::bf16) {
    copy(rows.data<bfloat16>());
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
  merged_.apart.clear();
  merged_.ends.clear();
  for (const Entry& entry : sorted) {
    const float* from = values_.data() + entry.row * columns;
    if (copies_ > 1) merged_.apart.insert(merged_.apart.end(), from, from + columns);
    if (merged_.ids.empty() || merged_.ids.back() != entry.id) {
      merged_.ids.push_back(entry.id);
      merged_.sums.insert(merged_.sums.end(), from, from + columns);
      merged_.ends.push_back(merged_.ends.empty() ? 1 : merged_.ends.back() + 1);
      continue;
    }
    float* sum = merged_.sums.data() + merged_.sums.size() - columns;
    std::transform(from, from + columns, sum, sum, [](float value, float so_far) { return so_far + value; });
    ++merged_.ends.back();
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
  copies_ = 1;
}

namespace {

/// Returns the gradients that a step takes, row after row.
const std::vector<float>& stepped_gradients(const RowGradients& gradients) {
  const RowGradients::Merged& merged = gradients.merged();
  return gradients.copies() > 1 ? merged.apart : merged.sums;
}

}  // namespace

std::vector<float> row_squares(const RowGradients& gradients, double clip_factor) {
  const RowGradients::Merged& merged = gradients.merged();
  if (merged.ids.empty()) return {};
  const std::size_t columns = merged.sums.size() / merged.ids.size();
  const std::vector<float>& all = stepped_gradients(gradients);
  const auto scale = static_cast<float>(clip_factor * static_cast<double>(gradients.copies()));
  std::vector<float> squares(all.size() / columns);
  for (std::size_t at = 0; at < squares.size(); ++at) {
    const float* gradient = all.data() + at * columns;
    for (std::size_t i = 0; i < columns; ++i) squares[at] += scale * gradient[i] * (scale * gradient[i]);
  }
  return squares;
}

void step_rows(const RowGradients& gradients, const RowAdaGrad& settings, std::span<const float> squares,
               const Tensor& values, const Tensor& sums) {
  const RowGradients::Merged& merged = gradients.merged();
  const std::vector<float>& all = stepped_gradients(gradients);
  const auto columns = static_cast<std::size_t>(values.columns());
  const auto copies = static_cast<float>(gradients.copies());
  const auto clip = static_cast<float>(settings.clip_factor), lr = static_cast<float>(settings.lr);
  for (std::size_t at = 0, next = 0; at < merged.ids.size(); ++at) {
    const auto row = static_cast<std::size_t>(merged.ids[at]);
    float& sum = sums.data<float>()[row];
    float* value = values.data<float>() + row * columns;
    float added = 0;
    for (const std::size_t end = gradients.copies() > 1 ? merged.ends[at] : at + 1; next < end; ++next) {
      const float* gradient = all.data() + next * columns;
      const float own =
          static_cast<float>(settings.moment_scale) * squares[next] / static_cast<float>(settings.columns);
      const float rate = lr * clip / (std::sqrt(sum + own) + static_cast<float>(settings.epsilon));
      for (std::size_t i = 0; i < columns; ++i) value[i] -= rate * gradient[i];
      added += own;
    }
    sum += added / copies;
  }
}

}  // namespace maestro
