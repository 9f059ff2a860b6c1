// SPDX-License-Identifier: Apache-2.0
// Sends a replica rank's tensors from buffers over links to receivers. Owns the pools with their registrations, the
// links and the writer of pieces. Not thread-safe; belongs to the replica's actor. connect() may call the device's
// driver.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "actors/replica/port_options.hpp"
#include "actors/services/network.hpp"
#include "runtime/core/pinned_block.hpp"
#include "sections/section_runner.hpp"
#include "transport/ring/output_link.hpp"

namespace maestro {

/// A pass' tensor with its buffer.
struct SendBuffer {
  Channel channel;  ///< any channel of the port
  Buffer buffer;
  Tensor tensor;
  [[nodiscard]] MemoryKind memory_kind() const { return buffer.space().host() ? MemoryKind::host : MemoryKind::device; }
};

/// Keeps the invariants RB-1, RB-4 and RB-6 of ReplicaPorts.
class ReplicaOutputs {
 public:
  /// The first three arguments outlive the pools. `client`: client number of this rank's writes.
  ReplicaOutputs(const ReplicaPortsOptions& options, const PortSizes& sizes, Network& network, std::uint32_t client,
                 PortEvents events);

  void connect(const Directory& directory, Outbox outbox);
  /// Drops the handles of receivers.
  void leave();

  [[nodiscard]] BuffersFree buffers_free() const;
  std::vector<SendBuffer> acquire(const MicroBatchPlan& plan, Direction direction);
  Status send(const MicroBatchPlan& plan, std::vector<SendBuffer> buffers);
  Status credit(const Credit& credit);
  [[nodiscard]] PieceWriter& writer() { return *writer_; }
  /// Returns the piece that waits for a credit, if any, for "who waits for whom".
  struct WaitingSend {
    SectionId receiver;
    ReplicaIndex replica;
    StepId step;
  };
  [[nodiscard]] std::optional<WaitingSend> waiting_send() const;
  /// Adds the bytes of the tensors sent since the last call.
  void take_sent(SentBytes& sum);
  /// Adds the times of this replica's pieces that have arrived since the last call.
  void take_transfers(ChannelTimes& sum);

 private:
  struct Link {
    OutputLink credits;
    SectionId section;  // receiving section
    caf::actor actor;
    bool local = true;
    PieceTarget target = {};
  };
  struct Pool {
    BufferPool buffers;
    PinnedBlock pinned;
    std::unique_ptr<Region> region;
    std::string why_not;  // why `region` is null for device memory
    std::size_t payload_bytes = 0;
    std::int64_t columns = 1;
    DType dtype = DType::f32;
  };
  using PortKey = std::pair<std::string, Direction>;
  using LinkKey = std::tuple<Channel, ReplicaIndex, LayoutRank>;  // channel, receiver and its rank
  void add_pool(Channel channel);
  /// Registers the pool with the network if some receiver can be reached by RMA from device memory.
  void register_on_device(Pool& made, Channel channel) const;
  void add_staging();
  [[nodiscard]] Link link_to(const ReplicaAddress& peer, const RingAddress& address);
  /// Chooses how to send pieces from a pool in device memory. Logs the choice if the plan left it open or could not be
  /// kept.
  void choose_method(Link& link, const Pool& from, TransferPath planned);
  void log(const std::string& line);
  /// Returns a micro-batch's largest number of pieces, over all edges.
  [[nodiscard]] std::size_t most_pieces_sent() const;
  Pool& pool(Channel channel) { return *pool_of_.at(channel); }
  Status flush(Link& link);

  const ReplicaPortsOptions* options_;
  const PortSizes* sizes_;
  Network* network_;
  std::function<void()> on_buffer_free_;
  Outbox outbox_;
  std::map<PortKey, std::unique_ptr<Pool>> pools_;
  std::map<Channel, Pool*> pool_of_;
  std::map<LinkKey, Link> links_;
  std::vector<Credit> early_credits_;  // credits that arrived before connect()
  SentBytes sent_;
  ChannelTimes handed_over_;
  std::set<std::string> logged_;
  std::unique_ptr<BufferPool> staging_;  // blocks of the writer; null without a pool in device memory
  PinnedBlock staging_pinned_;
  std::unique_ptr<Region> staging_region_;
  std::unique_ptr<PieceWriter> writer_;  // after links_, which its pieces refer to
};

}  // namespace maestro
