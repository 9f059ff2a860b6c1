// SPDX-License-Identifier: Apache-2.0
// The devices of layouts on a described cluster. Sections of a group share devices; groups share none. Pure.
//
// CB-1 (whole stages): the ranks of a stage are on one host.
// CB-2 (no gaps): the devices of a pool are taken from the first host on without a gap. The replicas of a section on
//       several pools follow each other in the order of ClusterLayout::shares().
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "apps/plan/cluster_layout.hpp"

namespace maestro {

class ClusterPlaces {
 public:
  /// Sections with equal `group` numbers share devices from the group's first on.
  ClusterPlaces(const DescribedCluster& cluster, const ClusterLayouts& layouts);

  /// Returns how many devices of each pool are taken, and how many hosts they are on.
  [[nodiscard]] const std::vector<std::int64_t>& devices() const { return devices_; }
  [[nodiscard]] const std::vector<std::int64_t>& hosts() const { return hosts_; }
  /// Returns how many devices of all pools are taken.
  [[nodiscard]] std::int64_t all_devices() const;
  [[nodiscard]] double price_per_hour() const { return price_per_hour_; }
  [[nodiscard]] bool shared(const std::string& section) const { return shared_.at(section); }
  /// Returns the TOML of a section's key `devices`, by replica, stage and rank: "emulated:K" numbers the devices of the
  /// cluster, "cuda:K" the devices of a host.
  [[nodiscard]] std::string emulated_devices(const std::string& section) const;
  [[nodiscard]] std::string cuda_devices(const std::string& section) const;
  /// Returns the TOML of a section's key `processes`: the host of each replica's stages, counted over all pools.
  [[nodiscard]] std::string processes(const std::string& section) const;

 private:
  struct Place {
    std::int64_t host = 0;    // index among the hosts of all pools
    std::int64_t device = 0;  // index in the host
    std::int64_t number = 0;  // index in the cluster
  };
  /// Calls `seen(place, is_first_of_stage)` for every rank.
  template <class Seen>
  void every(const std::string& section, const Seen& seen) const;

  const DescribedCluster* cluster_;
  const ClusterLayouts* layouts_;
  std::map<std::string, std::vector<std::int64_t>> first_;  // first device in each of its pools, by section
  std::map<std::string, bool> shared_;
  std::vector<std::int64_t> devices_;
  std::vector<std::int64_t> hosts_;
  double price_per_hour_ = 0;
};

/// Returns the devices that sections take together: the devices of the largest, rounded up to full stages.
[[nodiscard]] std::int64_t devices_together(const std::vector<const SectionLayout*>& layouts);

}  // namespace maestro
