// SPDX-License-Identifier: Apache-2.0
// Addresses of memory that replicas write for each other: rings of slots, and buffers of reductions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/graph/channel.hpp"
#include "transport/region.hpp"

namespace maestro {

/// A ring of receive slots for the tensors of a replica's rank.
struct RingAddress {
  Channel channel;
  ReplicaIndex receiver;
  LayoutRank layout_rank;
  std::uint32_t ring = 0;  ///< number inside the receiving process: the immediate's edge bits
  std::uint32_t slots = 1;
  std::uint32_t max_pieces = 1;
  std::uint64_t payload_bytes = 0;
  std::uint64_t released = 0;  ///< sequences that senders need not fill any more
  RemoteRegion region;         ///< region for remote writes; empty: nothing writes remotely
  // If slots also have a payload in device memory (LY-4):
  std::uint32_t device_ring = 0;  ///< the ring's second number, for complete pieces in device memory
  std::string device_memory;   ///< memory for processes of this host (DeviceBackend::export_memory); empty: not shared
  RemoteRegion device_region;  ///< region for remote writes; empty: the network does not reach the device
};

/// Data that ranks exchange: gradients of a section's replicas; gradients for a parameter that two stages hold; sharded
/// optimizer state for a checkpoint; rows of tables that are trained by rows.
enum class ReductionKind : std::uint8_t { replicas, tie, moments, rows };
constexpr std::size_t reduction_kinds = 4;

/// Memory for gradients from a reduction's other members, or the communicator of their devices.
struct ReductionAddress {
  std::uint32_t parts_ring = 0;     ///< immediate of a part of the shard; slot = sending member
  std::uint32_t sums_ring = 0;      ///< immediate of a finished sum; slot = sending member
  RemoteRegion parts;               ///< a shard, or gradients of rows, per sending member
  RemoteRegion gradients;           ///< the flat gradient
  RemoteRegion sums;                ///< encoded sums (WireSlots), or stepped rows: a slot for each member
  std::vector<std::uint8_t> group;  ///< DeviceBackend::make_group_id() of member 0; empty for other members
};

}  // namespace maestro
