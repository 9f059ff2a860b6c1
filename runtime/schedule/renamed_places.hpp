// SPDX-License-Identifier: Apache-2.0
// Other names for the hosts of a plan, and for the devices inside them, so that as much as possible of a job stays
// where an earlier plan had it. Pure; thread-safe.
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

/// A part of a job on a device, such as a stage of a replica. Parts of equal names hold the same: replicas of a section
/// that stand in for each other have one name.
struct PlacedPart {
  std::string name;  ///< "student.replica3.stage0", or "student.stage0"
  std::int64_t host = 0;
  std::int64_t device = 0;  ///< of the host
  double bytes = 0;         ///< that would have to move
};

struct RenamedPlaces {
  std::vector<std::int64_t> hosts;                 ///< by host of the plan
  std::vector<std::vector<std::int64_t>> devices;  ///< by host and device of the plan
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
