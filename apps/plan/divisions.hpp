// SPDX-License-Identifier: Apache-2.0
// Divisions of a job's sections into groups that share devices, and the devices that each group gets by the bounds of
// ClusterLanes. Deterministic, without rehearsals; not thread-safe, as ClusterLanes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/plan/allocator.hpp"
#include "apps/plan/cluster_job.hpp"
#include "apps/plan/cluster_lanes.hpp"

namespace maestro {

inline constexpr double alike_costs = 1.01;  // ratio up to which costs and bounds count as equal

struct Division {
  std::vector<std::vector<std::string>> groups;  ///< sections that share devices
  Sharing sharing = {};
};

/// A division with its devices.
struct DivisionCandidate {
  Division division = {};
  Allocation allocation;          ///< the fastest allocation, or the cheapest if the options ask for it
  double least_bound_ms = 0;      ///< bound of the fastest allocation
  std::vector<Allocation> front;  ///< allocations by price and time; empty: a pool without a price, or a kept section
};

/// Returns "teacher and student together, without stages", "all apart".
[[nodiscard]] std::string text_of(const Division& division);

class Divisions {
 public:
  /// Divides so many devices of the cluster: choices on many have equal parts (ClusterLanes). Both outlive the object.
  Divisions(const ClusterJob& job, const LayoutCatalogue& catalogue, std::int64_t devices);

  /// Returns every division that fits, the one without shared devices first; of more than five sections only this one
  /// and the one that shares all devices. `devices`: most devices of each pool.
  [[nodiscard]] std::vector<DivisionCandidate> candidates(const std::vector<std::int64_t>& devices) const;
  /// Returns the candidates that are worth a rehearsal, in order; the first of all is among them.
  [[nodiscard]] std::vector<const DivisionCandidate*> promising(const std::vector<DivisionCandidate>& candidates) const;
  /// Returns the division without shared devices with which, by bounds, the kept section waits for no other.
  [[nodiscard]] std::optional<DivisionCandidate> hidden_by_kept() const;
  /// Returns a division once for each Sharing to rehearse; one without shared devices is returned unchanged.
  [[nodiscard]] std::vector<Division> variants_of(const Division& division) const;
  /// Returns the fastest allocation, or the cheapest if the options ask for it; nothing if none fits.
  [[nodiscard]] std::optional<Allocation> allocated(const Division& division,
                                                    const std::vector<std::int64_t>& devices) const;
  /// Returns an allocation's layouts on these devices.
  [[nodiscard]] ClusterLayouts layouts_of(const Division& division, const Allocation& allocation,
                                          const std::vector<std::int64_t>& devices) const;
  /// Returns the layouts of a group on the fewest devices of a pool for a step of at most `most_ms`.
  [[nodiscard]] std::optional<SharedDevices> shared_by(const Division& division, std::size_t group, std::size_t pool,
                                                       double most_ms, const std::vector<std::int64_t>& devices) const;
  [[nodiscard]] const ClusterLanes& lanes() const { return lanes_; }

 private:
  [[nodiscard]] std::vector<Division> all() const;
  /// Returns the layout of the kept section on the pool that runs it fastest.
  [[nodiscard]] std::optional<ClusterLayout> kept_layout(const std::vector<std::int64_t>& devices) const;
  [[nodiscard]] Allocator allocator(const Division& division, const std::vector<std::int64_t>& devices) const;

  const ClusterJob* job_;
  ClusterLanes lanes_;
};

}  // namespace maestro
