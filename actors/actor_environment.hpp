// CAF's actor system with the settings this project needs. The only place that knows CAF's configuration keys.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "actors/messages.hpp"

namespace maestro {

struct ActorSystemOptions {
  bool networked = false;
  std::chrono::milliseconds peer_timeout{2000};  ///< silence after which a connection counts as lost
};

class ActorEnvironment {
 public:
  explicit ActorEnvironment(const ActorSystemOptions& options);
  ~ActorEnvironment();
  ActorEnvironment(const ActorEnvironment&) = delete;
  ActorEnvironment& operator=(const ActorEnvironment&) = delete;

  [[nodiscard]] caf::actor_system& system();
  /// Makes an actor reachable at `address`:`port` (0: any free port); returns the port. Throws JobError: busy port.
  std::uint16_t publish(const caf::actor& actor, const std::string& address, std::uint16_t port);
  /// Finds the actor published there; tries until `patience` is over. Throws JobError.
  caf::actor find(const std::string& host, std::uint16_t port, std::chrono::milliseconds patience);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace maestro
