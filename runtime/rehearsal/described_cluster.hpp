// SPDX-License-Identifier: Apache-2.0
// A cluster described by data sheets instead of measurements: pools of equal hosts with equal devices. Pure;
// thread-safe.
//
// An operator call takes launch + max(F / (P e(F)), B / W): F its FLOPs, P the peak of its dtype, e(F) the efficiency
// at F FLOPs, B its bytes, W the memory bandwidth. A collective of k ranks takes (k - 1) latency + n B (k - 1) /
// (k beta), with n = 2 for all-reduce and 1 for all others, beta the bandwidth of a device (the ring algorithm;
// Thakur et al. 2005).
//
// DU-1 (monotone): more FLOPs or bytes, or less peak or bandwidth, never make a call shorter; a group of one rank is
//       free.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/rehearsal/call_prices.hpp"

namespace maestro {

/// A connection between devices.
struct DescribedLink {
  double bytes_per_ms = 0;
  double latency_ms = 0;
};

/// Equal hosts with equal devices.
struct DescribedPool {
  std::string name;
  std::string kind;              ///< kind of its devices
  double memory_bytes = 0;       ///< memory per device
  double bf16_flops_per_ms = 0;  ///< peak of matrix products
  double fp32_flops_per_ms = 0;
  double memory_bytes_per_ms = 0;
  std::vector<std::pair<double, double>> efficiency;  ///< FLOPs per product (rising), share of the peak
  double launch_ms = 0;
  std::int64_t hosts = 1;
  std::int64_t devices_of_host = 1;
  DescribedLink inside;       ///< connection between devices on a host, per device and direction
  DescribedLink network;      ///< connection of a host, for all its devices together
  double price_per_hour = 0;  ///< price per host; 0: unknown
  [[nodiscard]] std::int64_t devices() const { return hosts * devices_of_host; }
};

struct DescribedCluster {
  std::string name;
  std::vector<DescribedPool> pools;      ///< pools in the order of the file
  std::optional<DescribedLink> between;  ///< connection between two pools' hosts; none: the slower network
  [[nodiscard]] std::int64_t devices() const;
  /// Returns whether every pool has a price.
  [[nodiscard]] bool priced() const;
};

/// Parses the text of a TOML file; `name` stands for the file in messages. Throws as read_cluster().
[[nodiscard]] DescribedCluster parse_cluster(std::string text, const std::string& name);
/// Reads a TOML file. Throws JobError, with file and line, for a key that is unknown, missing or out of range.
[[nodiscard]] DescribedCluster read_cluster(const std::filesystem::path& path);

class DescribedPrices final : public CallPricing {
 public:
  explicit DescribedPrices(DescribedPool pool) : pool_(std::move(pool)) {}
  /// Returns the milliseconds of a call; all count as estimated.
  [[nodiscard]] double ms(const OperatorCall& call, PriceSources& sources) const override;
  [[nodiscard]] double glue_ms() const override { return 0; }
  /// Returns the time of a ring over the replicas' equal ranks, replicas in a row on the hosts. Inside a host it takes
  /// the devices' connection. Between hosts it takes the rings' equal parts of a host's network: as many rings pass
  /// there as a replica has devices.
  [[nodiscard]] double exchange_ms(double bytes, std::int64_t replicas, std::int64_t devices) const override;
  [[nodiscard]] double write_ms(double bytes) const override;

 private:
  [[nodiscard]] double efficiency_at(double flops) const;
  [[nodiscard]] double network_bytes_per_ms() const {
    return pool_.network.bytes_per_ms / static_cast<double>(pool_.devices_of_host);
  }
  DescribedPool pool_;
};

}  // namespace maestro
