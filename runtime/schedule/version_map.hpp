// SPDX-License-Identifier: Apache-2.0
// How a version of a section's weights travels from the ranks that train it to a generator, which holds them whole.
// Pure; the same in every process, since it is made from what each rank states about itself.
//
// A rank in the first context part holds some parameters, or some rows and columns of a parameter: its
// block. A version is all blocks, one after another, in the order of stages and tensor ranks. Each replica sends its
// shard of every block.
//
// WG-1 (each once): every element of the receiver's parameters comes from exactly one place in a version.
// WG-2 (no more): a version has as many elements as the receiver's parameters.
// WG-3 (layouts alone): the map depends on layouts and shapes, not on processes or on the order of addresses.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/core/range.hpp"

namespace maestro {

/// The values of a parameter that a rank holds. The parameter counts as a matrix, whose columns are all dimensions but
/// the first.
struct WeightPart {
  std::string name;
  std::int64_t rows = 1;            ///< rows of the whole parameter
  std::int64_t columns = 1;         ///< columns of the whole parameter
  std::vector<RowRange> held_rows;  ///< consecutive in the rank's values, in this order
  RowRange held_columns;
  [[nodiscard]] std::int64_t elements() const;
};

/// A rank's block.
struct WeightBlock {
  SectionId section;  ///< stage
  LayoutRank rank;
  std::int64_t replicas = 1;  ///< replicas that share the sending
  std::vector<WeightPart> parts;
  [[nodiscard]] std::int64_t elements() const;
};

/// A shard of a block that a replica sends.
struct WeightPiece {
  SectionId section;
  LayoutRank rank;
  ReplicaIndex replica;
  RowRange own;             ///< elements of the block
  std::int64_t target = 0;  ///< first element in the version
};

/// Neighbouring elements in a version and in the whole parameter.
struct WeightRun {
  std::int64_t in_version = 0;
  std::int64_t in_parameter = 0;
  std::int64_t count = 0;
};

class VersionMap {
 public:
  VersionMap() = default;
  VersionMap(VersionMap&&) = default;
  VersionMap& operator=(VersionMap&&) = default;
  /// `blocks`: of all stages and ranks, in any order.
  explicit VersionMap(std::vector<WeightBlock> blocks);

  [[nodiscard]] std::int64_t elements() const { return elements_; }
  /// Returns the pieces in the order of their targets. None is empty.
  [[nodiscard]] const std::vector<WeightPiece>& pieces() const { return pieces_; }
  /// Returns the elements of each parameter that a version has, by name.
  [[nodiscard]] std::map<std::string, std::int64_t> parameters() const;
  /// Throws JobError, naming the first difference, unless the version holds every element of these parameters once, and
  /// nothing else (WG-1). `expected`: elements by name.
  void require(const std::map<std::string, std::int64_t>& expected) const;
  /// Calls `use` for every run of a parameter's elements in a version; never for an unknown name.
  void for_each_run(std::string_view name, const std::function<void(const WeightRun&)>& use) const;

 private:
  struct Place {
    const WeightPart* part = nullptr;  // of blocks_
    std::int64_t first = 0;            // in the version
  };
  std::vector<WeightBlock> blocks_;
  std::vector<WeightPiece> pieces_;
  std::map<std::string, std::vector<Place>, std::less<>> places_;  // by parameter
  std::int64_t elements_ = 0;
};

/// Calls `use` for every run of a part's elements, counted from the part's first.
void for_each_run(const WeightPart& part, const std::function<void(const WeightRun&)>& use);

/// Returns the most pieces of a version.
[[nodiscard]] constexpr std::int64_t most_weight_pieces(std::int64_t stages, std::int64_t tensor,
                                                        std::int64_t replicas) {
  return stages * tensor * replicas;
}

}  // namespace maestro
