// SPDX-License-Identifier: Apache-2.0
// A process's access to the network: one-sided writes out, completions of peers' writes in.
//
// EP-1 (one event per write): every write() leads to exactly one WriteDone or WriteFailed with its cookie, unless
//       EndpointFailed comes first: that event stands for all writes not reported yet.
// EP-2 (one event thread): events come from the progress thread, one at a time; only a write() refused because the
//       endpoint is already stopped or broken is reported on the caller's thread.
// EP-3 (deadline): a write fails at the latest `timeout_ms` after its peer last finished one of this endpoint's writes
//       (give or take 5%, at most 100 ms); the error names the peer.
// EP-4 (isolation): a peer's death never fails another peer's writes; on tcp it never fails the endpoint either.
// EP-5 (dead lock holders): libfabric 1.17's shm provider keeps spin locks in memory that processes share, and a
//       process killed inside a critical section never releases its lock. Its peers' endpoints then report
//       EndpointFailed after `timeout_ms` (at least 1 s; 1 s once a peer was abandoned), stop() still returns, and
//       those processes must be restarted. Use tcp if processes must outlive the death of others.
// EP-6 (dead readers): shm completes writes in their order, so a write to a process that died before it read the bytes
//       keeps back the ends of all later ones. A second after such a peer was abandoned the endpoint reports
//       EndpointFailed. tcp has a connection per peer.
// RemoteWrite means the same for device memory: work that is submitted to the device afterwards sees the bytes of this
// write. This rests on two rules: a completion at the target has delivery semantics also with FI_HMEM (fi_cq(3)), and
// CUDA orders completed RDMA before work that is submitted later (GPUDirect RDMA, "Synchronization and Memory
// Ordering"). A write without an immediate promises nothing at the target.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/core/result.hpp"
#include "transport/fabric/provider.hpp"
#include "transport/region.hpp"
#include "transport/transfer_types.hpp"

namespace maestro {

struct EndpointOptions {
  std::string provider = "auto";             ///< see choose_provider(); MAESTRO_PROVIDER overrides
  std::string listen_address = "127.0.0.1";  ///< IP address of this machine; a loopback address allows shm for "auto"
  std::int64_t timeout_ms = 5000;            ///< at least 1
  EndpointHandler handler;                   ///< must be set
  SharedMemoryUse shared_memory = SharedMemoryUse::where_offered;  ///< for "auto"
  bool device_memory = false;  ///< device memory can be registered, if the provider supports it
};

/// Thread-safe, except that the destructor must be the last call. Not to be stopped or destroyed from the handler.
/// Each endpoint has a connection queue and a thread; an idle endpoint costs less than 1% of a core.
class Endpoint {
 public:
  static Result<std::unique_ptr<Endpoint>> open(EndpointOptions options);
  /// Stops the endpoint.
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  /// Returns a peer's argument for connect(): opaque bytes, any value, about 30 of them.
  [[nodiscard]] std::string address() const;
  /// Returns libfabric's name of the provider in use.
  [[nodiscard]] std::string provider() const;

  /// Adds a peer, this endpoint itself included; the first write makes the connection. `name` is the peer's name in
  /// errors ("student replica 1"). Errors: the peer uses another provider; the address is malformed.
  Result<PeerHandle> connect(std::string_view address, std::string_view name = {});
  /// Gives up a dead peer: its writes fail from now on. A peer that comes back connects anew.
  void abandon(PeerHandle peer);

  /// Registers memory for this endpoint's reads and for peers' writes. `bytes` is at least 1. Device memory is
  /// registered by a thread that has the device current; if that fails, the error states the reason in a few words, and
  /// the device's tensors have to take another path.
  Result<Region> register_memory(std::byte* data, std::size_t bytes, const MemoryLocation& place = {});

  /// Queues a write; never blocks. All outcomes, invalid requests included, come as events (EP-1).
  void write(const WriteRequest& request);

  /// Lets accepted writes finish or reach their deadline, then closes. Only refused writes cause further events (EP-2).
  /// Idempotent. Regions stay valid objects, but peers can no longer reach them.
  void stop();

  [[nodiscard]] TransferStats stats() const;

 private:
  struct State;
  explicit Endpoint(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace maestro
