// SPDX-License-Identifier: Apache-2.0
// One process's door to the network: one-sided writes out, completions of peers' writes in.
//
// EP-1: every write() leads to exactly one WriteDone or WriteFailed with its cookie, unless EndpointFailed comes first:
//       that one stands for all writes not reported yet.
// EP-2: events come from one thread, the progress thread, one at a time; only a write() refused because the endpoint is
//       already stopped or broken is reported on the caller's own thread.
// EP-3: a write fails at the latest `timeout_ms` after its peer last finished one of this endpoint's writes (give or
//       take 5%, at most 100 ms); the error names the peer.
// EP-4: a peer's death never fails another peer's writes; on tcp it never fails the endpoint either.
// EP-5: libfabric 1.17's shm provider keeps spin locks in memory that processes share, and a process killed in the
//       wrong microsecond takes one to its grave. Its peers' endpoints then report EndpointFailed after `timeout_ms`
//       (at least 1 s), stop() still returns, and those processes want a restart. Where processes must outlive the
//       death of others, use tcp.
// EP-6: RemoteWrite means the same for memory of devices: work that is given to the device from then on sees the bytes,
//       those of this one write. Relied on for it: a completion at the target has delivery semantics also where FI_HMEM
//       is in use (fi_cq(3)), and CUDA orders RDMA that is complete before work that is submitted later (GPUDirect
//       RDMA, "Synchronization and Memory Ordering"). A write without an immediate promises nothing at the target.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/core/result.hpp"
#include "transport/region.hpp"
#include "transport/transfer_types.hpp"

namespace maestro {

struct EndpointOptions {
  std::string provider = "auto";             ///< see choose_provider(); MAESTRO_PROVIDER overrides
  std::string listen_address = "127.0.0.1";  ///< IP address of this machine; a loopback address allows shm for "auto"
  std::int64_t timeout_ms = 5000;            ///< at least 1
  EndpointHandler handler;                   ///< must be set
  bool device_memory = false;                ///< register_memory() is to take memory of devices, where the provider can
};

/// Thread-safe, except that the destructor must be the last call. Not to be stopped or destroyed from the handler.
/// One connection queue and one thread each; an idle endpoint costs less than 1% of a core.
class Endpoint {
 public:
  static Result<std::unique_ptr<Endpoint>> open(EndpointOptions options);
  /// Stops.
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  /// What a peer passes to connect(): opaque bytes, any value, about 30 of them.
  [[nodiscard]] std::string address() const;
  /// libfabric's name of the provider in use.
  [[nodiscard]] std::string provider() const;

  /// Makes a peer known, this endpoint itself included; the connection is made by the first write. `name` is how errors
  /// call the peer ("student replica 1"). Errors: the peer uses another provider; the address is malformed.
  Result<PeerHandle> connect(std::string_view address, std::string_view name = {});
  /// Gives up a peer that is known to be dead: its writes fail now and for ever. A peer that comes back connects anew.
  void abandon(PeerHandle peer);

  /// Registers memory for reading by own writes and for writing by peers. `bytes` is at least 1. Memory of a device is
  /// registered by a thread that has the device current; where it cannot be, the error says why in a few words
  /// ("provider tcp has no FI_HMEM"), and its tensors have to go another way.
  Result<Region> register_memory(std::byte* data, std::size_t bytes, const MemoryLocation& place = {});

  /// Queues one write; never blocks. All outcomes, invalid requests included, come as events (EP-1).
  void write(const WriteRequest& request);

  /// Lets accepted writes finish or run into their deadline, then closes. No event follows, save those of EP-2.
  /// Idempotent. Regions stay valid objects, but peers can no longer reach them.
  void stop();

  [[nodiscard]] TransferStats stats() const;

 private:
  struct State;
  explicit Endpoint(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace maestro
