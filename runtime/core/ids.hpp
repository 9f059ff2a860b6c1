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

/// A sample that a generator made: its step, and its number among the step's samples. A bit that no position in a
/// corpus has tells such ids apart.
struct MadeSampleId {
  StepId step;               ///< below 2^43
  std::uint32_t number = 0;  ///< below most_made_samples
  friend constexpr auto operator<=>(const MadeSampleId&, const MadeSampleId&) = default;
};
inline constexpr int made_number_bits = 20;
inline constexpr std::uint32_t most_made_samples = std::uint32_t{1}
                                                   << made_number_bits;  ///< samples of a step, at most
inline constexpr std::uint64_t made_bit = std::uint64_t{1} << 63;
[[nodiscard]] constexpr bool is_made(SampleId sample) {
  return (sample.value() & made_bit) != 0;
}
[[nodiscard]] constexpr SampleId sample_id(const MadeSampleId& made) {
  return SampleId(made_bit | (made.step.value() << made_number_bits) | made.number);
}
/// Returns the parts of an id that is_made().
[[nodiscard]] constexpr MadeSampleId made_sample_id(SampleId sample) {
  return {StepId((sample.value() & ~made_bit) >> made_number_bits),
          static_cast<std::uint32_t>(sample.value() & (most_made_samples - 1))};
}

}  // namespace maestro

template <class Tag, class Integer>
struct std::hash<maestro::Id<Tag, Integer>> {
  std::size_t operator()(maestro::Id<Tag, Integer> id) const noexcept { return std::hash<Integer>{}(id.value()); }
};
