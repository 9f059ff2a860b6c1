// SPDX-License-Identifier: Apache-2.0
// Divides pools of unlike devices among a job's sections, which share no devices: chooses each section's pool and its
// number of devices. Pure; not thread-safe.
//
// AL-1 (within the pools): no allocation has more devices of a pool than the pool has, and none costs more than `most`
//       an hour.
// AL-2 (cheapest): within(T) is the cheapest allocation that gives each section, in one pool, the fewest devices for a
//       step of T; if several are equally cheap, it has the fewest devices.
// AL-3 (front): the allocations of front() are ordered by time, and a step's cost falls from each to the next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

namespace maestro {

struct DevicePool {
  std::int64_t devices = 0;
  std::int64_t devices_of_host = 1;
  double price_per_hour = 0;  ///< price of a host; only full hosts are rented
};

/// The devices of a section.
struct Allotment {
  std::size_t pool = 0;
  std::int64_t devices = 0;
  double bound_ms = 0;  ///< bound of the section's step
};

struct Allocation {
  std::vector<Allotment> sections;
  double most_ms = 0;   ///< step limit that it was made for
  double bound_ms = 0;  ///< bound of the slowest section
  double price_per_hour = 0;
  std::int64_t devices = 0;
  std::vector<std::int64_t> hosts;  ///< hosts by pool
  /// Returns the cost of a step that takes bound_ms, in units of the price.
  [[nodiscard]] double price_of_step() const { return price_per_hour * bound_ms / 3.6e6; }
};

class Allocator {
 public:
  /// Returns the fewest devices of a pool on which a step of a section takes at most so many milliseconds; nothing
  /// if all devices are too few.
  using Fewest = std::function<std::optional<Allotment>(std::size_t section, std::size_t pool, double most_ms)>;
  Allocator(std::vector<DevicePool> pools, std::size_t sections, Fewest fewest,
            double most_per_hour = std::numeric_limits<double>::infinity());

  [[nodiscard]] std::optional<Allocation> within(double most_ms) const;
  /// Returns the allocation with the least bound; nothing if none fits.
  [[nodiscard]] std::optional<Allocation> fastest() const;
  /// Returns allocations from the fastest to the cheapest per step. Their times are searched in steps of a twentieth.
  [[nodiscard]] std::vector<Allocation> front() const;

 private:
  using Options = std::vector<std::vector<std::optional<Allotment>>>;  // by section and pool
  /// Tries every pool for the sections from `made.sections.size()` on.
  void extend(const Options& options, Allocation& made, std::vector<std::int64_t>& used,
              std::optional<Allocation>& best) const;
  [[nodiscard]] std::int64_t hosts_of(std::size_t pool, std::int64_t devices) const;
  [[nodiscard]] double price_of(const std::vector<std::int64_t>& used) const;

  std::vector<DevicePool> pools_;
  std::size_t sections_;
  Fewest fewest_;
  double most_per_hour_;
};

/// Merges fronts: returns the allocations for which no other is as fast and as cheap, in order (AL-3).
[[nodiscard]] std::vector<Allocation> common_front(std::vector<Allocation> points);

}  // namespace maestro
