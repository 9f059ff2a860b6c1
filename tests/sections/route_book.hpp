// SPDX-License-Identifier: Apache-2.0
// Experts of each layer, sample and row, in whatever layout the rows are computed.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <tuple>
#include <vector>

#include "sections/expert_routes.hpp"
#include "tests/ops/owned_tensor.hpp"

namespace maestro::testing {

/// Records the experts that rows take, or names them as written. Expects that all ranks and repetitions take the same.
class RouteBook final : public RouteHook {
 public:
  /// Returns a book that lets routers choose and records their choice.
  static RouteBook of_routers() { return RouteBook(std::nullopt); }
  /// Returns a book that names random experts, whatever the scores are.
  static RouteBook of_chance(std::uint32_t seed) { return RouteBook(seed); }

  /// Names the experts written so far from now on; a row that is not in the book throws std::out_of_range.
  void replay() { mode_ = Mode::replay; }
  /// Returns how many rows of layers have taken experts, on all ranks together.
  [[nodiscard]] std::int64_t rows_taken() const { return rows_taken_; }
  /// Returns the part of this book's entries whose experts are others in the other book.
  [[nodiscard]] double differing(const RouteBook& other) const {
    std::int64_t differ = 0;
    for (const auto& [row, experts] : entries_) differ += sorted(other.entries_.at(row)) == sorted(experts) ? 0 : 1;
    return static_cast<double>(differ) / static_cast<double>(entries_.size());
  }

  std::vector<std::int32_t> named(const RoutedRows& rows) override {
    const std::lock_guard lock(mutex_);
    std::vector<std::int32_t> all;
    if (mode_ == Mode::record) return all;
    for (const Row& row : rows_of(rows)) {
      if (mode_ == Mode::draw && !entries_.contains(row)) entries_[row] = drawn(row, rows);
      const std::vector<std::int32_t>& experts = entries_.at(row);
      all.insert(all.end(), experts.begin(), experts.end());
    }
    return all;
  }
  void taken(const RoutedRows& rows, const OperatorTable& ops, const Tensor& experts) override {
    const OwnedTensor host(DType::i32, experts.shape());
    ops.download(experts, host);
    const std::span<const std::int32_t> ids = host.tensor().span<std::int32_t>();
    const std::lock_guard lock(mutex_);
    auto at = ids.begin();
    for (const Row& row : rows_of(rows)) {
      const std::vector<std::int32_t> own(at, at + rows.per_token);
      EXPECT_EQ(entries_.try_emplace(row, own).first->second, own);
      at += rows.per_token;
      ++rows_taken_;
    }
    EXPECT_EQ(at, ids.end());
  }

 private:
  enum class Mode : std::uint8_t { record, draw, replay };
  using Row = std::tuple<std::int64_t, std::uint64_t, std::int64_t>;  // layer, sample, row of the sample

  explicit RouteBook(std::optional<std::uint32_t> seed)
      : mode_(seed ? Mode::draw : Mode::record), seed_(seed.value_or(0)) {}

  static std::vector<Row> rows_of(const RoutedRows& rows) {
    std::vector<Row> own;
    std::size_t sample = 0;
    for (std::int64_t row = rows.own.first; row < rows.own.end(); ++row) {
      while (rows.layout.offsets[sample + 1] <= row) ++sample;
      own.emplace_back(rows.layer, rows.samples[sample].value(), row - rows.layout.offsets[sample]);
    }
    return own;
  }
  [[nodiscard]] std::vector<std::int32_t> drawn(const Row& row, const RoutedRows& rows) const {
    const auto [layer, sample, place] = row;
    std::seed_seq sequence{seed_, static_cast<std::uint32_t>(layer), static_cast<std::uint32_t>(sample),
                           static_cast<std::uint32_t>(place)};
    std::mt19937 random(sequence);
    std::vector<std::int32_t> experts(static_cast<std::size_t>(rows.experts));
    std::iota(experts.begin(), experts.end(), 0);
    std::ranges::shuffle(experts, random);
    experts.resize(static_cast<std::size_t>(rows.per_token));
    return experts;
  }
  static std::vector<std::int32_t> sorted(std::vector<std::int32_t> experts) {
    std::ranges::sort(experts);
    return experts;
  }

  Mode mode_;
  std::uint32_t seed_;
  std::mutex mutex_;  // over the members below
  std::map<Row, std::vector<std::int32_t>> entries_;
  std::int64_t rows_taken_ = 0;
};

}  // namespace maestro::testing
