// SPDX-License-Identifier: Apache-2.0
// Other names for a plan's hosts, and for the devices inside them, so that as much of a job as possible keeps its place
// in an earlier plan. Pure; thread-safe.
//
// RZ-1 (same plan): a renaming is a permutation of the hosts and, on each, of its devices: parts that shared a host or
//       a device still do.
// RZ-2 (fewest bytes): hosts are matched first and devices inside each pair of hosts, both by Assignment, so that up to
//       its exact size no renaming keeps more bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace maestro {

/// A part of a job on a device, such as a replica's stage. Parts with equal names hold the same: section replicas that
/// stand in for each other share a name.
struct PlacedPart {
  std::string name;  ///< "student.replica3.stage0", or "student.stage0"
  std::int64_t host = 0;
  std::int64_t device = 0;  ///< device of the host
  double bytes = 0;         ///< bytes that would have to move
};

struct RenamedPlaces {
  std::vector<std::int64_t> hosts;                 ///< names by host of the plan
  std::vector<std::vector<std::int64_t>> devices;  ///< names by host and device of the plan
};

/// Returns the names for `next`. Hosts are 0 .. hosts - 1, their devices 0 .. devices_of_host - 1; throws
/// std::out_of_range for a part elsewhere.
[[nodiscard]] RenamedPlaces renamed_places(std::span<const PlacedPart> old, std::span<const PlacedPart> next,
                                           std::int64_t hosts, std::int64_t devices_of_host);
/// Returns the plan under other names.
[[nodiscard]] std::vector<PlacedPart> renamed(std::vector<PlacedPart> plan, const RenamedPlaces& names);
/// Returns the bytes of the parts of `next` that `old` has, but not on that device.
[[nodiscard]] double moved_bytes(std::span<const PlacedPart> old, std::span<const PlacedPart> next);

}  // namespace maestro
