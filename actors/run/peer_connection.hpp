// SPDX-License-Identifier: Apache-2.0
// Gives connections that a PeerAcceptor has admitted, or connect_to_gate() has made, to CAF. CAF 0.17 itself listens
// nowhere: it would accept TLS in blocking mode on the one thread that serves all connections, heartbeats included.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "actors/launch/peer_acceptor.hpp"
#include "actors/messages/caf_compat.hpp"
#include "actors/rpc/tls_context.hpp"

namespace maestro {

/// Makes `actor` the one that the other end of an accepted connection finds; the returned function, of any thread,
/// hands a connection to CAF. Blocks for a moment; not from an actor.
[[nodiscard]] std::function<void(PeerSocket)> make_reachable(caf::actor_system& system, const caf::actor& actor);

/// To a connector: the process to connect to.
struct ConnectPeer {
  std::string host;  ///< as PeerAcceptor takes it
  std::uint16_t port = 0;
};
/// Its answer.
struct PeerConnected {
  caf::actor actor;     ///< that the other process made reachable; none: there is no connection
  std::string problem;  ///< the last one
};

/// Spawns an actor, on a thread of its own, that answers ConnectPeer. A connection that is refused, cut or silent is
/// tried again until `patience` is over.
[[nodiscard]] caf::actor spawn_connector(caf::actor_system& system, const GateKeys& keys,
                                         std::chrono::milliseconds patience);

}  // namespace maestro

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::ConnectPeer)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::PeerConnected)
