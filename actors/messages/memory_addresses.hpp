// SPDX-License-Identifier: Apache-2.0
// Addresses of the memory that replicas write to each other: rings of slots, and the buffers of reductions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/graph/channel.hpp"
#include "transport/region.hpp"

namespace maestro {

/// A ring of slots that a rank of a replica receives into.
struct RingAddress {
  Channel channel;
  ReplicaIndex receiver;
  LayoutRank layout_rank;
  std::uint32_t ring = 0;  ///< number inside the receiving process: the immediate's edge bits
  std::uint32_t slots = 1;
  std::uint32_t max_pieces = 1;
  std::uint64_t payload_bytes = 0;
  std::uint64_t released = 0;  ///< sequences that senders need not fill any more
  RemoteRegion region;         ///< empty when no process writes remotely
  // Where slots also have a payload in memory of a device (LY-4):
  std::uint32_t device_ring = 0;  ///< the ring's second number, of whole pieces there
  std::string device_memory;      ///< for processes of this host (DeviceBackend::export_memory); empty: not shared
  RemoteRegion device_region;     ///< for remote writes; empty: the network does not reach the device
};

/// Kinds of exchanges between ranks: gradients of a section's replicas; gradients of a parameter that two stages hold;
/// sharded optimizer state, for a checkpoint.
enum class ReductionKind : std::uint8_t { replicas, tie, moments };
constexpr std::size_t reduction_kinds = 3;

/// Memory that the other members of a reduction write gradients into, or the communicator of their devices.
struct ReductionAddress {
  std::uint32_t parts_ring = 0;     ///< immediate of a part of the shard; slot = sending member
  std::uint32_t sums_ring = 0;      ///< immediate of a finished sum; slot = sending member
  RemoteRegion parts;               ///< a shard per sending member
  RemoteRegion gradients;           ///< the flat gradient itself
  std::vector<std::uint8_t> group;  ///< DeviceBackend::make_group_id() of member 0; empty for other members
};

}  // namespace maestro
