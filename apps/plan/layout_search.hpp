// SPDX-License-Identifier: Apache-2.0
// Finds the layouts of a job's sections whose devices have the least work in a step. Pure.
//
// LB-1 (exhaustive): where there are `most` layouts that fit or fewer, all are returned; else those in which the
//       busiest device has least work if replicas share theirs evenly, then by bound, then in the order of the choices.
// LB-2 (bound): no step of a layout takes less time than its bound at the given prices, however a policy shares the
//       work of a section out among its replicas: the longest stage, and for any sections the work of them all over the
//       number of devices, or of cores where devices share them, that they have between them.
// LB-3 (fits): no returned layout needs more than `most_bytes` of a device's memory.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace maestro {

/// The keys of a section that a search chooses.
struct SectionLayout {
  std::int64_t replicas = 1;
  std::int64_t tensor = 1;
  std::int64_t context = 1;
  std::int64_t pipeline = 1;
  bool zero = false;
  std::int64_t micro_batch = 1;
  [[nodiscard]] std::int64_t devices() const { return replicas * tensor * context * pipeline; }
  friend auto operator<=>(const SectionLayout&, const SectionLayout&) = default;
};

/// A layout with the work of a step on each of its devices, in the order of the section's key `devices`.
struct PricedLayout {
  SectionLayout layout;
  std::vector<double> work_ms;     ///< by device of the layout
  std::vector<double> bytes = {};  ///< likewise, in memory of the device; empty: none
};

/// The choices of a search for a section.
struct LayoutChoices {
  std::string section;
  std::vector<PricedLayout> layouts;
  std::vector<int> devices;  ///< given by the job; empty: chosen, in a row from any device on
};

/// A choice for every section, in the order of the sections.
struct JobLayout {
  std::vector<std::size_t> layouts;       ///< numbers in LayoutChoices::layouts
  std::vector<std::vector<int>> devices;  ///< of each section
  double bound_ms = 0;
  /// The work of the busiest device, or core where devices share them, where replicas share their work evenly.
  double busiest_ms = 0;
  std::vector<double> shares = {};  ///< of each section, of its devices' multiprocessors; empty: all have all of them
  std::vector<std::string> settings = {};  ///< of other keys, as for --set
};

struct FoundLayouts {
  std::vector<JobLayout> best;  ///< in order
  double least_bound_ms = 0;    ///< of all layouts
  std::uint64_t compared = 0;   ///< layouts, those that a part of their sections ruled out included
};

/// The devices of a search, equal to each other.
struct SearchedDevices {
  int count = 1;  ///< 64 at most
  int cores = 0;  ///< over which they are laid, device k on core k modulo cores; 0: each has its own
  [[nodiscard]] int core_of(int device) const { return cores == 0 ? device : device % cores; }
};

/// Searches layouts over such devices. Layouts of more devices than there are, or than a
/// section's given devices are, are left out; so are those that differ from another in the names of devices alone.
[[nodiscard]] FoundLayouts best_layouts(const std::vector<LayoutChoices>& sections, const SearchedDevices& devices,
                                        std::size_t most, double most_bytes = std::numeric_limits<double>::infinity());

/// Returns the bound of a layout (LB-2).
[[nodiscard]] double bound_of(const std::vector<LayoutChoices>& sections, const JobLayout& layout,
                              const SearchedDevices& devices);

/// Returns the layouts that a section may take on so many devices: all SectionLayouts with degrees that are powers of
/// two, or the number of devices itself, and micro-batches that are powers of two up to the samples of a replica.
/// Without `trained` no optimizer state is sharded.
[[nodiscard]] std::vector<SectionLayout> possible_layouts(std::int64_t devices, std::int64_t global_batch,
                                                          bool trained);

}  // namespace maestro
