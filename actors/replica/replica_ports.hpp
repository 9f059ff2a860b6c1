// SPDX-License-Identifier: Apache-2.0
// The ports of a rank of a section replica: rings it receives into, buffer pools it sends from, links to its receivers.
// Plain class; the actor passes messages in, and sends those that `Outbox` receives.
//
// RB-1 (returned buffers): a buffer returns to its pool when every piece of it was received (in-process) or has left
//       (WP-1).
// RB-2 (no waiting): sequence numbers and credits come from plans and messages alone; this class never waits.
// RB-3 (one credit): when a sequence enters the window and its work item has arrived, each of its senders receives
//       exactly one credit. The cost of a work item does not depend on the number of replicas at the other end.
// RB-4 (device memory): output of a device leaves from its memory, unless a CPU of the process reads it too. If a
//       receiver offers memory of its device and the sender can write there (PieceTarget), pieces go there; else they
//       go to host memory.
// RB-5 (begun anew): after renew_inputs() nothing that senders of an earlier epoch sent changes a ring.
// RB-6 (pinned): host memory that devices of this process copy to and from is pinned. Other memory is not, since
//       pinned memory is resident in full.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/messages/message_types.hpp"
#include "actors/plan/transfer_paths.hpp"
#include "actors/replica/piece_writer.hpp"
#include "actors/services/network.hpp"
#include "runtime/core/pinned_block.hpp"
#include "runtime/device/backend.hpp"
#include "runtime/graph/section_graph.hpp"
#include "runtime/schedule/port_sizes.hpp"
#include "sections/section_runner.hpp"
#include "transport/ring/input_ring.hpp"
#include "transport/ring/output_link.hpp"

namespace maestro {

/// The device of a rank, as its ports use it.
struct PortDevice {
  Device* device = nullptr;              ///< of copies; where `memory` is its own
  MemorySpace* memory = &host_memory();  ///< of the section's tensors
  MemorySpace* pins = nullptr;           ///< pins host memory; null: there is no gain
  TransferPaths paths;
  /// As in DeviceBackend. May be empty: nothing is shared.
  std::function<std::string(const std::byte* block)> export_memory;
  std::function<std::weak_ptr<ImportedMemory>(std::string_view exported, std::string& why_not)> import_memory;
  /// For writes by the network; an error has the reason in a few words. May be empty: no memory is registered.
  std::function<Result<std::unique_ptr<Region>>(std::byte* block, std::size_t bytes)> register_memory;
  std::function<void(const std::string& line)> log;  ///< may be empty
  [[nodiscard]] bool apart() const { return !memory->host(); }
};

/// Events outside of calls of ReplicaPorts: called from any thread, and must only enqueue.
struct PortEvents {
  std::function<void()> buffer_free;                                             ///< a send buffer has come back
  std::function<void(std::uint64_t cookie, const std::string& failure)> copied;  ///< for ReplicaPorts::copied()
};

struct ReplicaPortsOptions {
  const SectionGraph* graph = nullptr;
  SectionId section;
  ReplicaIndex replica;
  LayoutRank layout_rank;
  ProcessId process;
  SampleRef largest{SampleId(0), 1};  ///< the most rows that a sample has, by axis
  FlowLimits limits;
  Epoch epoch;
  bool again = false;   ///< the replica began anew: its receivers may hold sequences of its predecessor
  bool remote = false;  ///< some peer is in another process, or RMA is forced
  PortDevice device;
};

/// Sends a replica's messages; set by the actor.
struct Outbox {
  std::function<void(const caf::actor&, PieceHandOver)> hand_over;
  std::function<void(const caf::actor&, Credit)> credit;
  std::function<void(const Transfer&)> transferred;  ///< may be empty
};

/// A tensor of a pass in a buffer of its own.
struct SendBuffer {
  Channel channel;  ///< any of the port
  Buffer buffer;
  Tensor tensor;
  [[nodiscard]] MemoryKind memory_kind() const { return buffer.space().host() ? MemoryKind::host : MemoryKind::device; }
};

/// Not thread-safe; belongs to the replica's actor. connect() may call the device's driver.
class ReplicaPorts {
 public:
  ReplicaPorts(const ReplicaPortsOptions& options, Network& network, PortEvents events);

  [[nodiscard]] std::vector<RingAddress> rings() const;
  [[nodiscard]] std::vector<std::uint32_t> ring_numbers() const;
  /// Returns the client number of this rank's writes.
  [[nodiscard]] std::uint32_t client() const { return client_; }
  void connect(const Directory& directory, Outbox outbox);
  /// Repeatable sections begin anew, under this epoch: their rings get new memory and numbers. Returns what the rings
  /// hold. Former memory stays until the next call, as writes may still be on their way.
  std::vector<RingArrivals> renew_inputs(Epoch epoch);
  /// Connects to the new senders of those rings.
  void connect_renewed(const Directory& directory);
  /// Drops the handles of peers, at the actor's end: they hold handles of this actor, and neither would be freed.
  void leave();

  [[nodiscard]] BuffersFree buffers_free() const;
  /// Returns the tensors that arrived for a micro-batch: inputs, or gradients of outputs.
  Result<std::vector<std::pair<PortTensor, std::vector<ArrivedTensor::Copy>>>> open(const MicroBatchPlan& plan,
                                                                                    Direction direction);
  /// Returns buffers for the tensors that a pass sends: outputs, or gradients of inputs.
  std::vector<SendBuffer> acquire(const MicroBatchPlan& plan, Direction direction);
  /// The pass is done: its pieces leave as credits allow.
  Status send(const MicroBatchPlan& plan, std::vector<SendBuffer> buffers);
  /// The micro-batch has retired: slots become credits.
  Status release(const MicroBatchPlan& plan);

  /// Completed sequences are reported through `arrived`.
  using Arrived = std::function<void(Channel, std::uint64_t sequence)>;
  Status expect(const MicroBatchPlan& plan, const Arrived& arrived);
  Status landed(std::uint32_t immediate, const Arrived& arrived);
  Status handed_over(const PieceHandOver& piece, const Arrived& arrived);
  Status credit(const Credit& credit);
  /// A write of this replica has ended.
  void write_finished(std::uint64_t cookie) { writer_->write_finished(cookie); }
  /// A copy has ended (PortEvents::copied).
  Status copied(std::uint64_t cookie, const std::string& failure) { return writer_->copied(cookie, failure); }
  /// Returns the piece that waits for a credit, if any, for "who waits for whom".
  struct WaitingSend {
    SectionId receiver;
    ReplicaIndex replica;
    StepId step;
  };
  [[nodiscard]] std::optional<WaitingSend> waiting_send() const;
  /// Adds the bytes of the tensors sent since the last call.
  void take_sent(SentBytes& sum);
  /// Adds the times of the pieces that have arrived since the last call, as far as this replica sent them.
  void take_transfers(ChannelTimes& sum);
  [[nodiscard]] bool owns_ring(std::uint32_t ring) const { return ring_index_.count(ring) != 0; }

 private:
  struct Link {
    OutputLink credits;
    SectionId section;  // of the receiver
    caf::actor actor;
    bool local = true;
    PieceTarget target = {};
  };
  struct Ring {
    std::unique_ptr<InputRing> slots;
    std::unique_ptr<Region> region;         // of its host memory
    std::unique_ptr<Region> device_region;  // of its memory of the device
    std::string exported;                   // likewise
    // Of the former epoch:
    std::shared_ptr<AlignedMemory> former_memory = {};
    std::unique_ptr<Region> former_region = {};
    PinnedBlock former_pinned = {};
    PinnedBlock pinned = {};
  };
  struct Pool {
    BufferPool buffers;
    PinnedBlock pinned;
    std::unique_ptr<Region> region;
    std::string why_not;  // of a device's memory without region
    std::size_t payload_bytes = 0;
    std::int64_t columns = 1;
    DType dtype = DType::f32;
  };
  using PortKey = std::pair<std::string, Direction>;
  using LinkKey = std::tuple<Channel, ReplicaIndex, LayoutRank>;  // ..., of the receiver, and its rank
  void add_ring(Channel channel);
  void add_pool(Channel channel);
  /// Registers the pool with the network, if some receiver can be reached by RMA from memory of the device.
  void register_on_device(Pool& made, Channel channel) const;
  void add_staging();
  [[nodiscard]] EdgeEnd self() const { return {options_.section, options_.replica, options_.layout_rank}; }
  /// Returns whether other processes may be able to write pieces into memory of this device.
  [[nodiscard]] bool offers_device_memory(Channel channel) const;
  void offer_device_memory(Ring& ring, Channel channel) const;
  /// Pins a ring that other processes write into, if a device reads it.
  void pin(Ring& ring, Channel channel) const;
  [[nodiscard]] Link link_to(const ReplicaAddress& peer, const RingAddress& address);
  /// Chooses how pieces of a pool in memory of the device are sent, and logs the choice where the plan left it open or
  /// could not be kept.
  void choose_method(Link& link, const Pool& from, TransferPath planned);
  void log(const std::string& line);
  /// Returns the most pieces of a micro-batch, over all edges.
  [[nodiscard]] std::size_t most_pieces_sent() const;
  /// Returns whether the sender's section is repeatable.
  [[nodiscard]] bool renewable(Channel channel) const;
  InputRing& ring(Channel channel) { return *rings_.at(channel).slots; }
  Pool& pool(Channel channel) { return *pool_of_.at(channel); }
  Status flush(Link& link);
  [[nodiscard]] Credit credit_of(const InputRing& ring) const;
  /// Sends credits to the senders of these sequences, which have entered the window (RB-3).
  void grant(const InputRing& ring, std::uint64_t first, std::uint64_t end);
  ReplicaPortsOptions options_;
  PortSizes sizes_;
  Network* network_;
  std::function<void()> on_buffer_free_;
  Outbox outbox_;
  std::uint32_t client_;
  std::map<Channel, Ring> rings_;
  std::map<std::uint32_t, InputRing*> ring_index_;  // by both numbers of a ring
  std::map<PortKey, std::unique_ptr<Pool>> pools_;
  std::map<Channel, Pool*> pool_of_;
  std::map<LinkKey, Link> links_;
  std::map<Channel, std::vector<caf::actor>> senders_;  // into this ring, by replica
  std::vector<Credit> early_credits_;                   // before connect(): of receivers that are connected already
  SentBytes sent_;
  ChannelTimes handed_over_;
  std::set<std::string> logged_;
  std::unique_ptr<BufferPool> staging_;  // of the writer; null if no pool lies in memory of a device
  PinnedBlock staging_pinned_;
  std::unique_ptr<Region> staging_region_;
  std::unique_ptr<PieceWriter> writer_;  // after links_, which its pieces refer to
};

}  // namespace maestro
