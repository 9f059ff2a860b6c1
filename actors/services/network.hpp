// SPDX-License-Identifier: Apache-2.0
// The network state that a process' actors share: the endpoint, its peers by process, and the tables that route
// completions to replicas.
//
// The progress thread routes completions only by table lookups; handlers only enqueue messages.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "actors/messages/caf_compat.hpp"
#include "runtime/core/ids.hpp"
#include "transport/fabric/endpoint.hpp"

namespace maestro {

struct NetworkOptions {
  std::string provider = "auto";
  std::string listen_address = "127.0.0.1";
  std::int64_t timeout_ms = 5000;
  SharedMemoryUse shared_memory = SharedMemoryUse::where_offered;
  bool force_rma = false;
  std::size_t chunk_bytes = 0;
  bool device_memory = false;  ///< some tensors of this process are in device memory
};

/// Thread-safe.
class Network {
 public:
  /// Opens the endpoint if `needed` (several processes, or forced RMA). Throws JobError.
  Network(const NetworkOptions& options, bool needed);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  [[nodiscard]] bool open() const { return endpoint_ != nullptr; }
  [[nodiscard]] const NetworkOptions& options() const { return options_; }
  [[nodiscard]] std::string address() const;
  [[nodiscard]] std::string provider() const;
  /// Counts of all requests to write(); a count of acknowledged writes would miss the writes in progress.
  struct Written {
    std::uint64_t writes = 0;
    std::uint64_t bytes = 0;
  };
  [[nodiscard]] Written written() const { return {writes_.load(), bytes_.load()}; }

  /// Registers memory for writes from this process and from peers; null without an endpoint. Throws JobError.
  std::unique_ptr<Region> register_memory(std::byte* data, std::size_t bytes);
  /// Registers memory of the calling thread's current device. If that is impossible, a short error gives the reason,
  /// and the caller uses another path.
  Result<std::unique_ptr<Region>> register_device_memory(std::byte* data, std::size_t bytes, int cuda_device);
  /// Returns an unused number for a ring of this process.
  std::uint32_t next_ring() { return next_ring_++; }
  /// Returns an unused number for a replica's rank in this process (WriteCookie::client).
  std::uint32_t next_client() { return next_client_++; }
  void route_ring(std::uint32_t ring, const caf::actor& receiver);
  void route_client(std::uint32_t client, const caf::actor& receiver);
  void route_failures(const caf::actor& supervisor);
  /// Makes a process reachable at this address, which may be new. Throws JobError.
  void connect(ProcessId process, const std::string& address, const std::string& name);

  /// Queues a write to a process. Its cookie is a WriteCookie, whose client receives WriteFinished or WriteBroken.
  void write(ProcessId to, WriteRequest request);
  /// Ends the writes to a dead process.
  void abandon(ProcessId process);
  /// Ends all writes, which nobody needs any more, and closes the endpoint: its other end may have ended before it.
  void stop();

 private:
  void handle(const EndpointEvent& event) const;
  [[nodiscard]] caf::actor client_of(std::uint64_t cookie) const;

  NetworkOptions options_;
  std::atomic<std::uint64_t> writes_{0};
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<std::uint32_t> next_ring_{0};
  std::atomic<std::uint32_t> next_client_{0};
  mutable std::mutex mutex_;  // guards the tables
  std::vector<caf::actor> rings_;
  std::vector<caf::actor> clients_;
  caf::actor supervisor_;
  std::vector<PeerHandle> peers_;       // by process
  std::unique_ptr<Endpoint> endpoint_;  // last: its thread uses everything above
};

}  // namespace maestro
