// SPDX-License-Identifier: Apache-2.0
// CAF's actor system with the settings this project needs. The only place that knows CAF's configuration keys.
//
// AE-1: nothing listens but what publish() names, and that only on the address given there.
// AE-2: with keys every connection is TLS, and both ends have shown a certificate of one authority.
// AE-3: processes of different `application`s do not speak with each other.
// AE-4: nothing listens any more once stop_listening() has returned.
// AE-5: no connection that a stranger makes, or holds, delays a message or another connection (PG-1).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "actors/messages/message_types.hpp"
#include "actors/rpc/key_set.hpp"

namespace maestro {

struct ActorSystemOptions {
  bool networked = false;
  std::chrono::milliseconds peer_timeout{2000};    ///< silence after which a connection counts as lost
  std::chrono::milliseconds start_timeout{60000};  ///< for which a connection is tried
  bool several_hosts = false;                      ///< connections may take some round trips of many milliseconds
  std::shared_ptr<const KeySet> keys;              ///< null: connections are not encrypted
  std::string application;  ///< of one job's processes alone; a secret where peers may be strangers
};

class ActorEnvironment {
 public:
  explicit ActorEnvironment(const ActorSystemOptions& options);
  ~ActorEnvironment();
  ActorEnvironment(const ActorEnvironment&) = delete;
  ActorEnvironment& operator=(const ActorEnvironment&) = delete;

  [[nodiscard]] caf::actor_system& system();
  /// Makes an actor reachable at `host`:`port` (0: any free port) or "unix:/path"; returns the port. Throws JobError:
  /// busy port.
  std::uint16_t publish(const caf::actor& actor, const std::string& host, std::uint16_t port);
  /// Finds the actor published there; tries until `start_timeout` is over. Throws JobError.
  caf::actor find(const std::string& host, std::uint16_t port);
  /// Connects to the process that published something there, from a handler of `self`, whose later handlers are called
  /// with the outcome. Messages to its actors go straight there from then on.
  void connect(caf::event_based_actor* self, const std::string& host, std::uint16_t port,
               std::function<void(const caf::actor&)> done, std::function<void(const std::string& problem)> failed);
  /// Closes what publish() opened. Thread-safe, idempotent.
  void stop_listening();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace maestro
