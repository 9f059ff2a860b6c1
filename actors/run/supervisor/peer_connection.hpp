// SPDX-License-Identifier: Apache-2.0
// Passes connections from PeerAcceptor or connect_to_gate() to CAF. CAF 0.17 does not listen itself: it would accept
// TLS in blocking mode on the single thread that serves all connections, heartbeats included.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "actors/launch/peer_acceptor.hpp"
#include "actors/messages/caf_compat.hpp"
#include "actors/rpc/tls_context.hpp"

namespace maestro {

/// Publishes `actor` to the other ends of accepted connections. Returns a thread-safe function that passes an accepted
/// connection to CAF. Blocks briefly; do not call from an actor.
[[nodiscard]] std::function<void(PeerSocket)> make_reachable(caf::actor_system& system, const caf::actor& actor);

/// Request to a connector: the process to connect to.
struct ConnectPeer {
  std::string host;  ///< address in PeerAcceptor's form
  std::uint16_t port = 0;
};
/// Answer to ConnectPeer.
struct PeerConnected {
  caf::actor actor;     ///< actor published by the other process; null: no connection
  std::string problem;  ///< reason of the last failed attempt
};

/// Spawns an actor on a separate thread that answers ConnectPeer. It retries a refused, cut or silent connection for
/// `patience`.
[[nodiscard]] caf::actor spawn_connector(caf::actor_system& system, const GateKeys& keys,
                                         std::chrono::milliseconds patience);

}  // namespace maestro

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::ConnectPeer)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::PeerConnected)
