// SPDX-License-Identifier: Apache-2.0
// Finds the layouts of a job's sections whose devices have the least work in a step. Pure.
//
// LB-1 (exhaustive): if at most `most` layouts fit, all are returned; else the first `most`, ordered by the work of the
//       busiest device if replicas share work evenly, then by bound, then by the order of the choices.
// LB-2 (bound): no step of a layout takes less time than its bound at the given prices, however a policy divides a
//       section's work among its replicas. The bound is the longest stage or, if longer for any set of sections, their
//       total work divided by the number of devices (cores, if devices share cores) that they use together.
// LB-3 (fits): no returned layout needs more than `most_bytes` of a device's memory.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace maestro {

/// The keys of a section that a search chooses.
struct SectionLayout {
  std::int64_t replicas = 1;
  std::int64_t tensor = 1;
  std::int64_t context = 1;
  std::int64_t pipeline = 1;
  std::int64_t chunks = 1;  ///< stages on each device of a pipeline
  bool zero = false;
  std::int64_t micro_batch = 1;
  std::int64_t expert = 1;  ///< ranks that share a layer's experts
  [[nodiscard]] std::int64_t devices() const { return replicas * tensor * context * pipeline; }
  [[nodiscard]] std::int64_t stages() const { return pipeline * chunks; }
  friend auto operator<=>(const SectionLayout&, const SectionLayout&) = default;
};

/// The most stages on each device of a pipeline that a plan chooses.
inline constexpr std::int64_t most_planned_chunks = 4;

/// A layout with each device's work in a step, in the order of the section's key `devices`.
struct PricedLayout {
  SectionLayout layout;
  std::vector<double> work_ms;     ///< work by device
  std::vector<double> bytes = {};  ///< device memory, by device; empty: none
};

/// The choices of a search for a section.
struct LayoutChoices {
  std::string section;
  std::vector<PricedLayout> layouts;
  std::vector<int> devices;  ///< devices that the job gives; empty: chosen, consecutive from any device on
  std::optional<std::size_t> follows = {};  ///< an earlier section, whose devices it has; nothing: none
};

/// A choice for every section, in the order of the sections.
struct JobLayout {
  std::vector<std::size_t> layouts;       ///< indices in LayoutChoices::layouts
  std::vector<std::vector<int>> devices;  ///< devices by section
  double bound_ms = 0;
  /// Work of the busiest device (or core, if devices share cores) if replicas share their work evenly.
  double busiest_ms = 0;
  std::vector<double> shares = {};         ///< share of the multiprocessors, by section; empty: all
  std::vector<std::string> settings = {};  ///< settings of other keys, as for --set
  /// Context degrees by replica, by section; empty, or empty for a section: the layout's in each replica.
  std::vector<std::vector<std::int64_t>> contexts = {};
};

struct FoundLayouts {
  std::vector<JobLayout> best;  ///< in order
  double least_bound_ms = 0;    ///< least bound of all layouts
  std::uint64_t compared = 0;   ///< layouts, also those ruled out early by some of their sections
};

/// The devices of a search, equal to each other.
struct SearchedDevices {
  int count = 1;  ///< 64 at most
  int cores = 0;  ///< device k is on core k modulo cores; 0: each device has a core
  [[nodiscard]] int core_of(int device) const { return cores == 0 ? device : device % cores; }
};

/// Searches layouts over these devices. Omits layouts that need more devices than there are, or another number than a
/// section's given devices, and layouts that differ from another only in the names of devices.
[[nodiscard]] FoundLayouts best_layouts(const std::vector<LayoutChoices>& sections, const SearchedDevices& devices,
                                        std::size_t most, double most_bytes = std::numeric_limits<double>::infinity());

/// Returns the bound of a layout (LB-2).
[[nodiscard]] double bound_of(const std::vector<LayoutChoices>& sections, const JobLayout& layout,
                              const SearchedDevices& devices);

/// Returns the layouts that a section may take on so many devices: all SectionLayouts with degrees that are powers of
/// two, or the number of devices itself, and micro-batches that are powers of two up to the samples of a replica. A
/// pipeline has 1, 2 or 4 chunks. Without `trained` no optimizer state is sharded. Of `experts` experts in a layer each
/// rank has a part of each, or all ranks of a replica share them, if they can.
[[nodiscard]] std::vector<SectionLayout> possible_layouts(std::int64_t devices, std::int64_t global_batch, bool trained,
                                                          std::int64_t experts = 0);

}  // namespace maestro
