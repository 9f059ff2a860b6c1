// SPDX-License-Identifier: Apache-2.0
// Sources of a mixture whose samples a section runs for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace maestro {

/// A set of data sources, by number; all samples of a corpus without a mixture are from source 0.
class SourceSet {
 public:
  /// Holds every source.
  SourceSet() = default;
  /// Holds the sources whose entry is true.
  explicit SourceSet(std::vector<bool> held) : held_(std::move(held)) {
    if (std::ranges::find(held_, false) == held_.end()) held_.clear();
  }
  [[nodiscard]] bool all() const { return held_.empty(); }
  [[nodiscard]] bool has(std::uint32_t source) const {
    return held_.empty() || (source < held_.size() && held_[source]);
  }
  friend bool operator==(const SourceSet&, const SourceSet&) = default;

 private:
  std::vector<bool> held_;  // empty: all
};

}  // namespace maestro
