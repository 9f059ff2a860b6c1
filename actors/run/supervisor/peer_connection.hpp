// SPDX-License-Identifier: Apache-2.0
// Passes connections to CAF that a PeerAcceptor has admitted or connect_to_gate() has made. CAF 0.17 itself does not
// listen: it would accept TLS in blocking mode on the single thread that serves all connections, heartbeats included.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "actors/launch/peer_acceptor.hpp"
#include "actors/messages/caf_compat.hpp"
#include "actors/rpc/tls_context.hpp"

namespace maestro {

/// Makes `actor` the actor that the other end of an accepted connection finds. The returned function, of any thread,
/// passes a connection to CAF. Blocks briefly; not from an actor.
[[nodiscard]] std::function<void(PeerSocket)> make_reachable(caf::actor_system& system, const caf::actor& actor);

/// Sent to a connector: the process to connect to.
struct ConnectPeer {
  std::string host;  ///< as PeerAcceptor takes it
  std::uint16_t port = 0;
};
/// Its answer.
struct PeerConnected {
  caf::actor actor;     ///< published by the other process; null: no connection
  std::string problem;  ///< of the last attempt
};

/// Spawns an actor on its own thread that answers ConnectPeer. It retries a refused, cut or silent connection until
/// `patience` is over.
[[nodiscard]] caf::actor spawn_connector(caf::actor_system& system, const GateKeys& keys,
                                         std::chrono::milliseconds patience);

}  // namespace maestro

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::ConnectPeer)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::PeerConnected)
