// SPDX-License-Identifier: Apache-2.0
// Accepts and makes connections for the actors' messages. A connection is passed on only if its other end is a process
// of this job.
//
// PG-1 (strangers wait outside): a connection reaches `admitted` only after its peer has sent the job's secret, and
//       over TLS only after both certificates were accepted. Until then the peer is a stranger (placements, deadlines:
//       CN-1, CN-2) and does not delay other connections.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "actors/rpc/connection_acceptor.hpp"
#include "actors/rpc/tls_context.hpp"

namespace maestro {

/// Keys that all gates of a job share. A gate is a process' PeerAcceptor.
struct GateKeys {
  std::shared_ptr<const KeySet> keys;  ///< TLS with mutual certificates; null: plain
  std::string secret;                  ///< secret of the job
};

class PeerAcceptor {
 public:
  /// Listens at `host`:`port`, or at "unix:/path" without a port. `admitted` is called by any thread. Throws JobError.
  PeerAcceptor(const std::string& host, std::uint16_t port, const GateKeys& keys,
               std::function<void(PeerSocket)> admitted);

  /// Returns the chosen port; 0 for a local socket.
  [[nodiscard]] std::uint16_t port() const;
  /// Stops listening. Idempotent.
  void stop() { door_.stop(); }

 private:
  ConnectionAcceptor door_;
};

/// Connects to the gate of another process of the job. Throws JobError, a single line: no listener, no route,
/// certificate refused, or no answer within `patience`, which bounds connecting and introducing separately.
[[nodiscard]] PeerSocket connect_to_gate(const std::string& host, std::uint16_t port, const GateKeys& keys,
                                         std::chrono::milliseconds patience);

}  // namespace maestro
