// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/row_table.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <numeric>

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

namespace {

/// Sorts entries by id, stably, by digits of 11 bits: the time depends on the entries alone (TB-3).
template <class Entry>
void sort_by_id(std::vector<Entry>& entries) {
  constexpr std::uint32_t digit_bits = 11, digits = 1U << digit_bits;
  std::vector<Entry> next(entries.size());
  for (std::uint32_t shift = 0; shift < 32; shift += digit_bits) {
    const auto digit = [&](const Entry& entry) { return static_cast<std::uint32_t>(entry.id) >> shift & (digits - 1); };
    std::array<std::size_t, digits + 1> ends{};
    for (const Entry& entry : entries) ++ends[digit(entry) + 1];
    if (std::ranges::find(ends, entries.size()) != ends.end()) continue;  // all have the same digit
    std::partial_sum(ends.begin(), ends.end(), ends.begin());
    for (const Entry& entry : entries) next[ends[digit(entry)]++] = entry;
    entries.swap(next);
  }
}

}  // namespace

const RowGradients::Merged& RowGradients::merged() const {
  if (!merged_.ids.empty() || entries_.empty()) return merged_;
  std::vector<Entry> sorted = entries_;  // in the order of rows
  if (!std::ranges::is_sorted(sorted, {}, &Entry::micro_batch)) {
    std::ranges::stable_sort(sorted, {}, &Entry::micro_batch);
  }
  sort_by_id(sorted);
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
  const std::vector<float>& sums = merged().sums;
  const std::size_t columns = sums.size() / merged().ids.size();
  for (std::size_t row = 0; row < sums.size(); row += columns) {
    double squares = 0;  // of each row apart: a processor works on several at once
    for (std::size_t i = row; i < row + columns; ++i) squares += double{sums[i]} * double{sums[i]};
    sum += squares;
  }
  return sum;
}

void RowGradients::clear() {
  entries_.clear();
  values_.clear();
  merged_.ids.clear();
  copies_ = 1;
}

namespace {

/// Fetches a row that is stepped soon: rows of a large table are in no cache.
void prefetch_row(const float* value, std::size_t columns) {
  constexpr std::size_t line = 64 / sizeof(float);
  for (std::size_t i = 0; i < columns; i += line) __builtin_prefetch(value + i, 1);
}

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
  constexpr std::size_t ahead = 8;  // rows
  for (std::size_t at = 0, next = 0; at < merged.ids.size(); ++at) {
    if (at + ahead < merged.ids.size()) {
      const auto later = static_cast<std::size_t>(merged.ids[at + ahead]);
      prefetch_row(values.data<float>() + later * columns, columns);
      __builtin_prefetch(sums.data<float>() + later, 1);
    }
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
