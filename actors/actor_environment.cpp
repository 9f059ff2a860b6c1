#include "actors/actor_environment.hpp"

#include <caf/io/all.hpp>
#include <thread>

#include "runtime/core/result.hpp"

namespace maestro {

struct ActorEnvironment::State {
  caf::actor_system_config config;
  std::unique_ptr<caf::actor_system> system;
};

ActorEnvironment::ActorEnvironment(const ActorSystemOptions& options) : state_(std::make_unique<State>()) {
  caf::actor_system_config& config = state_->config;
  config.add_message_types<caf::id_block::maestro>();
  // One shared queue wakes a worker at once; stealing workers poll, and handlers here are too short to pay for that.
  config.set("scheduler.policy", caf::atom("sharing"));
  config.set("scheduler.max-threads", std::size_t{2});
  config.set("logger.verbosity", caf::atom("quiet"));
  if (options.networked) {
    config.load<caf::io::middleman>();
    config.set("middleman.heartbeat-interval", caf::timespan(options.peer_timeout / 8));
    config.set("middleman.connection-timeout", caf::timespan(options.peer_timeout));
    config.set("middleman.enable-automatic-connections", true);
  }
  state_->system = std::make_unique<caf::actor_system>(config);
}

ActorEnvironment::~ActorEnvironment() = default;

caf::actor_system& ActorEnvironment::system() {
  return *state_->system;
}

std::uint16_t ActorEnvironment::publish(const caf::actor& actor, const std::string& address, std::uint16_t port) {
  const auto published = system().middleman().publish(actor, port, address.c_str());
  if (!published) {
    throw JobError("transport.listen " + address + ", transport.port " + std::to_string(port) +
                       ": cannot listen there (" + system().render(published.error()) +
                       "); the port is busy or not allowed: use another one, or 0 for any free port",
                   ErrorCode::unavailable);
  }
  return *published;
}

caf::actor ActorEnvironment::find(const std::string& host, std::uint16_t port, std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (true) {
    auto found = system().middleman().remote_actor(host, port);
    if (found) return *found;
    if (std::chrono::steady_clock::now() > deadline) {
      throw JobError("cannot reach the coordinator at " + host + ":" + std::to_string(port) + ": " +
                         system().render(found.error()),
                     ErrorCode::peer_lost);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // rank 0 publishes before it starts us: rarely reached
  }
}

}  // namespace maestro
