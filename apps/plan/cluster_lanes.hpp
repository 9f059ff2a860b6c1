// SPDX-License-Identifier: Apache-2.0
// Chooses layouts of a job's sections by bounds: the fewest devices of a pool for a step of a given time, for one
// section, for sections that share devices, and for a section on several pools. Deterministic; not thread-safe, because
// layouts of shared devices are cached.
//
// A section's step on n devices of a pool is bounded by T(n) = min over its layouts of
// max(W / r + F, ceil(B / r) S + F, L) + R(r), with r lanes of the layout on n devices: B micro-batches, S the shortest
// of them, W the work of a step on its slowest stage, F the time until a micro-batch has reached that stage, L the
// longest micro-batch, R the end of a step.
//
// Replicas of a section may be on several pools, all with the same tensor, context, pipeline and micro_batch. With r_g
// lanes on pool g, max(W / r, ceil(B / r) S) becomes max(U / sum(r_g / W_g), T'). A micro-batch with the times t_g adds
// its least t_g / W_g to U (1 if pools differ only by a factor). T' is the least time for all lanes together to do
// B micro-batches of S_g each. F and L are the values of the faster pool, and R has the exchange over the slowest of
// all networks between the replicas.
//
// LX-1 (memory): no returned layout needs more than the stated share of a device's memory, and neither do all layouts
//       together that share a device.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "apps/plan/layout_catalogue.hpp"

namespace maestro {

/// How the layouts of sections on the same devices are chosen. The default gives the least bound. A bound leaves out
/// that a stage waits for the turns of other sections, and that devices may be idle during exchanges.
struct Sharing {
  bool staged = true;    ///< sections may have stages
  double exchanges = 0;  ///< share of a section's exchanges during which its devices count as idle
  friend bool operator==(const Sharing&, const Sharing&) = default;
};

/// Sections on the same devices.
struct SharedDevices {
  std::vector<ClusterLayout> layouts;  ///< layouts in the order of the sections
  std::int64_t devices = 0;
  double bound_ms = 0;     ///< the longest step of a section, or the work of all on a device
  double expected_ms = 0;  ///< bound_ms with the exchanges of Sharing; devices are given out by it
};

class ClusterLanes {
 public:
  /// `parts`: equal parts into which chosen layouts can be divided. Replica counts are multiples of it, or of its
  /// largest divisor that leaves 32 counts to choose from on a pool. The catalogue outlives the lanes, and is complete.
  ClusterLanes(const LayoutCatalogue& catalogue, std::int64_t parts) : catalogue_(&catalogue), parts_(parts) {}

  /// Returns the layout with the fewest devices of a pool on which a step takes at most so long, within `most_devices`.
  [[nodiscard]] std::optional<ClusterLayout> fewest(const std::string& section, std::size_t pool, double most_ms,
                                                    std::int64_t most_devices) const;
  /// Returns the layouts of sections that share the fewest devices of a pool on which a step is expected to take at
  /// most so long.
  [[nodiscard]] std::optional<SharedDevices> fewest(const std::vector<std::string>& sections, std::size_t pool,
                                                    double most_ms, std::int64_t most_devices,
                                                    const Sharing& sharing) const;
  /// Returns the layout with a sixteenth more replicas (at least one), on at most so many more devices, and with the
  /// same micro-batches in flight. If all micro-batches take equally long, replicas are added until each has one less
  /// to do.
  [[nodiscard]] std::optional<ClusterLayout> grown(const std::string& section, const ClusterLayout& on,
                                                   std::int64_t more_devices) const;
  /// Returns the layout with other micro-batches or chunks; nothing if it was not priced, has replicas without work, or
  /// needs too much memory.
  [[nodiscard]] std::optional<ClusterLayout> changed(const std::string& section, const ClusterLayout& on,
                                                     const SectionLayout& layout) const;
  /// Returns the layout with the least bound, at most `most_ms`, whose replicas are on two pools or more, on up to so
  /// many devices of each; nothing if there is none. `allowed` decides whether a layout may be returned. Every number
  /// of few replicas is tried, and eighths of many; each number is a multiple, as the constructor describes.
  [[nodiscard]] std::optional<ClusterLayout> spread(const std::string& section, std::span<const std::int64_t> devices,
                                                    double most_ms,
                                                    const std::function<bool(const ClusterLayout&)>& allowed) const;

 private:
  /// Returns the layout on so many replicas with its bound; nothing if the memory is too small.
  [[nodiscard]] std::optional<ClusterLayout> on(const ClusterLane& lane, std::int64_t replicas, bool zero) const;
  /// A layout of a section among others on its devices.
  struct Sharer {
    ClusterLayout on;
    double busy_ms = 0;  // work and the share of the exchanges
  };
  /// Returns the layouts of a section on up to so many devices, the least busy first. Omits a layout if another one is
  /// at most as busy, with at most its bound and its bytes.
  [[nodiscard]] const std::vector<Sharer>& worthwhile(const std::string& section, std::size_t pool,
                                                      std::int64_t devices, const Sharing& sharing) const;
  /// Returns layouts of sections that share up to so many devices, with the least work on these devices or, if a
  /// section's step takes longer, with the shortest such step.
  [[nodiscard]] std::optional<SharedDevices> together(const std::vector<std::string>& sections, std::size_t pool,
                                                      std::int64_t devices, const Sharing& sharing) const;
  /// Returns the lane of a layout's degrees on the pool of its first replicas, or null.
  [[nodiscard]] const ClusterLane* lane_of(const std::string& section, const ClusterLayout& on) const;
  /// Returns the divisor of the parts that divides the lane's replicas.
  [[nodiscard]] std::int64_t multiple_of(const ClusterLane& lane) const;

  const LayoutCatalogue* catalogue_;
  std::int64_t parts_;
  using SharersOf = std::tuple<std::string, std::size_t, std::int64_t, bool, double>;  // arguments of worthwhile()
  mutable std::map<SharersOf, std::vector<Sharer>> sharers_;
};

}  // namespace maestro
