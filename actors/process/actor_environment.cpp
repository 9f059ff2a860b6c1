// SPDX-License-Identifier: Apache-2.0
#include "actors/process/actor_environment.hpp"

#include <caf/io/all.hpp>
#include <mutex>

#include "actors/job/headroom.hpp"
#include "actors/launch/peer_acceptor.hpp"
#include "actors/messages/ready_queue.hpp"
#include "actors/run/supervisor/peer_connection.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

struct ActorEnvironment::State {
  caf::actor_system_config config;
  std::unique_ptr<caf::actor_system> system;
  GateKeys keys;
  std::chrono::milliseconds start_timeout;
  caf::actor connector;
  std::mutex mutex;
  std::unique_ptr<PeerAcceptor> gate;  // destroyed first: it passes connections to the system
};

ActorEnvironment::ActorEnvironment(const ActorSystemOptions& options) : state_(std::make_unique<State>()) {
  caf::actor_system_config& config = state_->config;
  config.add_message_types<caf::id_block::maestro>();
  use_ready_queue(config, 2);
  config.set("logger.verbosity", caf::atom("quiet"));
  if (options.networked) {
    config.load<caf::io::middleman>();
    config.set("middleman.workers", std::size_t{0});  // the multiplexer reads messages itself
    // Supervisors exchange heartbeats (PeerWatch) instead: CAF treats a new connection as silent until its first
    // message, and all connections after a pause of this process.
    config.set("middleman.heartbeat-interval", caf::timespan(0));
    config.set("middleman.connection-timeout", caf::timespan(0));
    // Automatic connections would listen on all interfaces, without TLS (AE-1, AE-2).
    config.set("middleman.enable-automatic-connections", false);
    config.set("middleman.app-identifiers", std::vector<std::string>{"maestro " + options.application});
  }
  state_->keys = {options.keys, options.application};
  state_->start_timeout = options.start_timeout;
  require_headroom({.threads = threads, .allocating = true});  // CAF aborts if its constructor throws
  state_->system = std::make_unique<caf::actor_system>(config);
  if (options.networked) {
    state_->connector = spawn_connector(*state_->system, state_->keys, options.start_timeout);
  }
}

ActorEnvironment::~ActorEnvironment() {
  stop_listening();
  if (state_->connector) caf::anon_send_exit(state_->connector, caf::exit_reason::user_shutdown);
  state_->connector = nullptr;
}

caf::actor_system& ActorEnvironment::system() {
  return *state_->system;
}

std::uint16_t ActorEnvironment::publish(const caf::actor& actor, const std::string& host, std::uint16_t port) {
  auto gate = std::make_unique<PeerAcceptor>(host, port, state_->keys, make_reachable(system(), actor));
  const std::uint16_t chosen = gate->port();
  const std::lock_guard lock(state_->mutex);
  state_->gate = std::move(gate);
  return chosen;
}

caf::actor ActorEnvironment::find(const std::string& host, std::uint16_t port) {
  caf::scoped_actor self(system());
  PeerConnected found;
  self->request(state_->connector, caf::infinite, ConnectPeer{host, port})
      .receive([&](const PeerConnected& connected) { found = connected; },
               [&](const caf::error& problem) { found.problem = system().render(problem); });
  if (found.actor) return found.actor;
  throw JobError("cannot reach the coordinator: " + found.problem, ErrorCode::peer_lost);
}

void ActorEnvironment::connect(caf::event_based_actor* self, const std::string& host, std::uint16_t port,
                               std::function<void(const caf::actor&)> done,
                               std::function<void(const std::string& problem)> failed) {
  self->request(state_->connector, caf::infinite, ConnectPeer{host, port})
      .then(
          [done, failed](const PeerConnected& connected) {
            if (connected.actor) return done(connected.actor);
            failed(connected.problem);
          },
          [this, failed](const caf::error& problem) { failed(system().render(problem)); });
}

void ActorEnvironment::stop_listening() {
  const std::lock_guard lock(state_->mutex);
  state_->gate.reset();
}

}  // namespace maestro
