// SPDX-License-Identifier: Apache-2.0
// Accepts and makes connections for the actors' messages: a connection is passed on only if its other end is a process
// of this job.
//
// PG-1 (strangers wait outside): a connection reaches `admitted` only after its peer has sent the job's secret, and
//       over TLS only after both certificates were accepted. Until then it is a stranger (placements, deadlines: CN-1,
//       CN-2) and delays no other connection.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "actors/rpc/connection_acceptor.hpp"
#include "actors/rpc/tls_context.hpp"

namespace maestro {

/// Settings shared by all gates of a job.
struct GateKeys {
  std::shared_ptr<const KeySet> keys;  ///< TLS with mutual certificates; null: plain
  std::string secret;                  ///< of the job
};

class PeerAcceptor {
 public:
  /// Listens at `host`:`port`, or at "unix:/path" without a port. `admitted` is called by any thread. Throws JobError.
  PeerAcceptor(const std::string& host, std::uint16_t port, const GateKeys& keys,
               std::function<void(PeerSocket)> admitted);

  /// Returns the chosen port; 0 for a local socket.
  [[nodiscard]] std::uint16_t port() const;
  /// Idempotent.
  void stop() { door_.stop(); }

 private:
  ConnectionAcceptor door_;
};

/// Connects to the gate of a process of the same job. Throws JobError, a single line: no listener, no route,
/// certificate refused, no answer within `patience` for each of connecting and introducing.
[[nodiscard]] PeerSocket connect_to_gate(const std::string& host, std::uint16_t port, const GateKeys& keys,
                                         std::chrono::milliseconds patience);

}  // namespace maestro
