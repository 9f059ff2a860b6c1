// SPDX-License-Identifier: Apache-2.0
// Where a process of a job takes connections for the actors' messages, and how it makes them: a connection is handed on
// only when its other end is a process of this job.
//
// PG-1: a connection reaches `admitted` only after its peer has shown the job's secret, and over TLS only after both
//       certificates were accepted. Until then it is a stranger (CN-1, CN-2), which holds up no other connection.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "actors/rpc/connection_acceptor.hpp"
#include "actors/rpc/tls_context.hpp"

namespace maestro {

/// What all gates of a job have in common.
struct GateKeys {
  std::shared_ptr<const KeySet> keys;  ///< TLS with mutual certificates; null: plain
  std::string secret;                  ///< of the job
};

class PeerAcceptor {
 public:
  /// Listens at `host`:`port`, or at "unix:/path" without a port. `admitted` is called by any thread. Throws JobError.
  PeerAcceptor(const std::string& host, std::uint16_t port, const GateKeys& keys,
               std::function<void(PeerSocket)> admitted);

  /// That was chosen; 0 of a local socket.
  [[nodiscard]] std::uint16_t port() const;
  /// Idempotent.
  void stop() { door_.stop(); }

 private:
  ConnectionAcceptor door_;
};

/// A connection to the gate there, of a process of the same job. Throws JobError of one line: nobody listens, no route,
/// certificate refused, no answer within `patience` for each of connecting and introducing.
[[nodiscard]] PeerSocket connect_to_gate(const std::string& host, std::uint16_t port, const GateKeys& keys,
                                         std::chrono::milliseconds patience);

}  // namespace maestro
