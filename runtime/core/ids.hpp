// SPDX-License-Identifier: Apache-2.0
// Strong integer ids. An id never converts to an id of another kind, nor to an integer without `.value()`.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <ostream>

namespace maestro {

template <class Tag, class Integer = std::uint32_t>
class Id {
 public:
  using value_type = Integer;
  constexpr Id() = default;
  constexpr explicit Id(Integer value) : value_(value) {}
  [[nodiscard]] constexpr Integer value() const { return value_; }
  friend constexpr auto operator<=>(Id, Id) = default;
  friend std::ostream& operator<<(std::ostream& out, Id id) { return out << +id.value_; }

 private:
  Integer value_ = 0;
};

using SectionId = Id<struct SectionTag>;               ///< index of a section in the graph, sources included
using ReplicaIndex = Id<struct ReplicaTag>;            ///< data-parallel rank inside a section
using LayoutRank = Id<struct LayoutRankTag>;           ///< device of a replica, counted in its layout
using EdgeId = Id<struct EdgeTag>;                     ///< index of an edge in the graph
using ProcessId = Id<struct ProcessTag>;               ///< process of the job; rank 0 hosts the coordinator
using SampleId = Id<struct SampleTag, std::uint64_t>;  ///< position in the corpus, the same in every epoch
using StepId = Id<struct StepTag, std::uint64_t>;      ///< optimizer step, counted from 1
using Epoch = Id<struct EpochTag>;                     ///< incarnation of a run's slots: old writes carry an old epoch

}  // namespace maestro

template <class Tag, class Integer>
struct std::hash<maestro::Id<Tag, Integer>> {
  std::size_t operator()(maestro::Id<Tag, Integer> id) const noexcept { return std::hash<Integer>{}(id.value()); }
};
