#include "actors/actor_environment.hpp"

#include <caf/io/all.hpp>
#include <caf/openssl/all.hpp>
#include <thread>

#include "runtime/core/result.hpp"

namespace maestro {

namespace {
constexpr std::chrono::seconds connect_limit(20);
constexpr std::chrono::seconds tries_limit(30);
}  // namespace

struct ActorEnvironment::State {
  caf::actor_system_config config;
  std::unique_ptr<caf::actor_system> system;
  bool encrypted = false;

  /// CAF's own actor that opens connections, of the kind that this environment makes.
  [[nodiscard]] caf::io::middleman_actor connector() const {
    return encrypted ? system->openssl_manager().actor_handle() : system->middleman().actor_handle();
  }
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
    // Supervisors send heartbeats of their own (PeerWatch): CAF takes a new connection for silent until its first
    // message, and after a pause of this process all others.
    config.set("middleman.heartbeat-interval", caf::timespan(0));
    config.set("middleman.connection-timeout", caf::timespan(0));
    // Automatic connections would listen on all interfaces, without TLS (AE-1, AE-2).
    config.set("middleman.enable-automatic-connections", false);
    config.set("middleman.app-identifiers", std::vector<std::string>{"maestro " + options.application});
  }
  if (options.networked && options.keys) {
    state_->encrypted = true;
    config.load<caf::openssl::manager>();
    config.set("openssl.certificate", options.keys->certificate.string());
    config.set("openssl.key", options.keys->key.string());
    config.set("openssl.cafile", options.keys->authority.string());
  }
  state_->system = std::make_unique<caf::actor_system>(config);
}

ActorEnvironment::~ActorEnvironment() = default;

caf::actor_system& ActorEnvironment::system() {
  return *state_->system;
}

std::uint16_t ActorEnvironment::publish(const caf::actor& actor, const std::string& address, std::uint16_t port) {
  const auto published = state_->encrypted ? caf::openssl::publish(actor, port, address.c_str())
                                           : system().middleman().publish(actor, port, address.c_str());
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
    auto found = state_->encrypted ? caf::openssl::remote_actor(system(), host, port)
                                   : system().middleman().remote_actor(host, port);
    if (found) return *found;
    if (std::chrono::steady_clock::now() > deadline) {
      throw JobError("cannot reach the coordinator at " + host + ":" + std::to_string(port) + ": " +
                         system().render(found.error()),
                     ErrorCode::peer_lost);
    }
    std::this_thread::sleep_for(
        std::chrono::milliseconds(20));  // rank 0 publishes before it tells where: rarely reached
  }
}

void ActorEnvironment::connect(caf::event_based_actor* self, const std::string& host, std::uint16_t port,
                               std::function<void(const caf::actor&)> done,
                               std::function<void(const std::string& problem)> failed) {
  try_to_connect(
      {self, host, port, std::move(done), std::move(failed), std::chrono::steady_clock::now() + tries_limit});
}

void ActorEnvironment::try_to_connect(const Connecting& wanted) {
  wanted.self->request(state_->connector(), connect_limit, caf::connect_atom::value, wanted.host, wanted.port)
      .then([wanted](const caf::node_id&, const caf::strong_actor_ptr& found,
                     const std::set<std::string>&) { wanted.done(caf::actor_cast<caf::actor>(found)); },
            [this, wanted](const caf::error& problem) {
              const bool again = std::chrono::steady_clock::now() < wanted.deadline;
              if (problem == caf::sec::connection_timeout && again) return try_to_connect(wanted);
              wanted.failed(system().render(problem));
            });
}

void ActorEnvironment::stop_listening(caf::event_based_actor* self, std::uint16_t port, std::function<void()> done) {
  self->request(state_->connector(), connect_limit, caf::unpublish_atom::value, self->address(), port)
      .then([done] { done(); }, [](const caf::error&) {});  // it listens on, and keeps its keys; that is safe, too
}

}  // namespace maestro
