// SPDX-License-Identifier: Apache-2.0
// CAF's actor system with the settings of this project. No other file sets CAF's configuration keys.
//
// AE-1 (explicit listeners): only publish() listens, and only on the given address.
// AE-2 (mutual TLS): with keys every connection is TLS, and both ends have shown a certificate of the same authority.
// AE-3 (separate runs): processes of different `application`s do not exchange messages.
// AE-4 (strangers wait outside): a stranger's connection never delays a message or another connection (PG-1).
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
  std::chrono::milliseconds start_timeout{60000};  ///< time during which connecting is retried
  bool several_hosts = false;                      ///< connections may take some round trips of many milliseconds
  std::shared_ptr<const KeySet> keys;              ///< null: connections are not encrypted
  std::string application;  ///< id shared by a run's processes; a secret if peers may be strangers
};

class ActorEnvironment {
 public:
  /// Number of threads that the constructor starts: workers, clock, printer, multiplexer, middleman, connector, and one
  /// to spare.
  static constexpr std::size_t threads = 8;

  /// Throws JobError if its threads cannot be started.
  explicit ActorEnvironment(const ActorSystemOptions& options);
  ~ActorEnvironment();
  ActorEnvironment(const ActorEnvironment&) = delete;
  ActorEnvironment& operator=(const ActorEnvironment&) = delete;

  [[nodiscard]] caf::actor_system& system();
  /// Publishes an actor at `host`:`port` (0: any free port) or "unix:/path", and returns the port. Throws JobError if
  /// the port is busy.
  std::uint16_t publish(const caf::actor& actor, const std::string& host, std::uint16_t port);
  /// Finds the published actor; retries until `start_timeout` is over. Throws JobError.
  caf::actor find(const std::string& host, std::uint16_t port);
  /// Connects to the process at a published address, from a handler of `self`, whose later handlers receive the
  /// outcome. From then on messages to its actors use this connection.
  void connect(caf::event_based_actor* self, const std::string& host, std::uint16_t port,
               std::function<void(const caf::actor&)> done, std::function<void(const std::string& problem)> failed);
  /// Closes the listener of publish(). Thread-safe, idempotent.
  void stop_listening();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace maestro
