// SPDX-License-Identifier: Apache-2.0
// Options of a rank's ports, and the functions that they call to reach the rank's actor.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "actors/job/transfer_paths.hpp"
#include "actors/messages/message_types.hpp"
#include "actors/replica/piece_writer.hpp"
#include "runtime/core/memory_space.hpp"
#include "runtime/device/backend.hpp"
#include "runtime/graph/section_graph.hpp"
#include "runtime/schedule/port_sizes.hpp"
#include "transport/region.hpp"

namespace maestro {

/// A rank's device as its ports use it.
struct PortDevice {
  Device* device = nullptr;              ///< device that copies, if `memory` is its own
  MemorySpace* memory = &host_memory();  ///< memory of the section's tensors
  MemorySpace* pins = nullptr;           ///< pins host memory; null: pinning gains nothing
  TransferPaths paths;
  /// Share memory as in DeviceBackend. If empty, nothing is shared.
  std::function<std::string(const std::byte* block)> export_memory;
  std::function<std::weak_ptr<ImportedMemory>(std::string_view exported, std::string& why_not)> import_memory;
  /// Registers memory for writes by the network; an error has the reason in a few words. If empty, nothing is
  /// registered.
  std::function<Result<std::unique_ptr<Region>>(std::byte* block, std::size_t bytes)> register_memory;
  std::function<void(const std::string& line)> log;  ///< may be empty
  [[nodiscard]] bool apart() const { return !memory->host(); }
};

/// Events outside of calls to ReplicaPorts. Called from any thread; must only enqueue.
struct PortEvents {
  std::function<void()> buffer_free;                                             ///< a send buffer has returned
  std::function<void(std::uint64_t cookie, const std::string& failure)> copied;  ///< for ReplicaPorts::copied()
};

struct ReplicaPortsOptions {
  const SectionGraph* graph = nullptr;
  SectionId section;
  ReplicaIndex replica;
  LayoutRank layout_rank;
  ProcessId process;
  SampleRef largest{SampleId(0), 1};  ///< a sample's largest number of rows, by axis
  FlowLimits limits;
  Epoch epoch;
  bool again = false;   ///< the replica replaces another: its receivers may hold sequences of that one
  bool remote = false;  ///< some peer is in another process, or RMA is forced
  PortDevice device;
  [[nodiscard]] EdgeEnd self() const { return {section, replica, layout_rank}; }
};

/// Functions that send a replica's messages; set by the actor.
struct Outbox {
  std::function<void(const caf::actor&, PieceHandOver)> hand_over;
  std::function<void(const caf::actor&, Credit)> credit;
  std::function<void(const Transfer&)> transferred;  ///< may be empty
};

/// The sender of a piece.
struct PieceSender {
  ReplicaIndex replica;
  Epoch epoch;
};
/// Hands a piece over to a replica of the same process.
inline void hand_over(const Outbox& outbox, const caf::actor& to, const OutgoingPiece& outgoing,
                      const PieceSender& sender) {
  const PieceOut& piece = outgoing.piece;
  PieceHandOver hand;
  hand.channel = piece.channel;
  hand.sequence = piece.sequence;
  hand.index = piece.index;
  hand.target_row = piece.target_row;
  hand.rows = piece.rows;
  hand.sender = sender.replica;
  hand.layout_rank = piece.target_rank;
  hand.epoch = sender.epoch;
  hand.buffer = outgoing.buffer;
  hand.offset = outgoing.offset;
  const Transfer transfer{piece, outgoing.step, false, std::chrono::steady_clock::now()};
  outbox.hand_over(to, std::move(hand));
  if (outbox.transferred) outbox.transferred(transfer);
}

}  // namespace maestro
