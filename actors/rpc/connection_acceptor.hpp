// SPDX-License-Identifier: Apache-2.0
// Accepts connections, with or without TLS, and serves each on a separate thread.
//
// CN-1 (slots): clients that are not admitted (strangers) share `most_strangers` slots, and a new client ends the
//       oldest stranger; admitted clients have `most_clients` other slots. A new client waits at most
//       `stranger_patience` for clients that are ending.
// CN-2 (deadlines): a stranger's handshake and first message take at most `stranger_patience` each.
// CN-3 (bounded stop): stop() ends in bounded time whatever clients do, if `serve` returns after its stream is shut
//       down.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "actors/rpc/key_set.hpp"

namespace maestro {

class RpcSocket;
struct PeerSocket;

struct AcceptorOptions {
  std::string address;                 ///< "unix:/path", or "host:port" with an IPv4 address; port 0: any free port
  std::shared_ptr<const KeySet> keys;  ///< TLS with mutual certificates; null: plain
  std::size_t most_clients = 32;       ///< slots of admitted clients; further clients are closed at once
  std::size_t most_strangers = 16;     ///< slots of other clients
  std::chrono::milliseconds patience{30000};          ///< limit for a client's silence, and for receiving a message
  std::chrono::milliseconds stranger_patience{2000};  ///< the same limit before admission, and for the handshake
  std::int32_t largest_message = 1 << 20;             ///< bytes
  /// Receives the peer, "10.0.0.3:4711" or "process 4711", and the reason, "its certificate was refused: certificate
  /// has expired"; called by any of the acceptor's threads; may be empty.
  std::function<void(const std::string& peer, const std::string& reason)> refused;
  /// Receives the same if this process lacks memory or a thread for the client; empty: `refused` receives it.
  std::function<void(const std::string& peer, const std::string& reason)> starved;
};

/// A client, for the thread that serves it.
class Visitor {
 public:
  virtual ~Visitor() = default;
  [[nodiscard]] virtual const std::string& name() const = 0;
  [[nodiscard]] virtual const std::shared_ptr<RpcSocket>& stream() const = 0;
  /// Admits the authorized client (CN-1): from now on AcceptorOptions::patience applies. Idempotent.
  virtual void admit() = 0;
  /// Takes the socket from the acceptor; the stream is unusable afterwards.
  [[nodiscard]] virtual PeerSocket release() = 0;
};

class ConnectionAcceptor {
 public:
  /// Serves a client after the handshake; throws std::exception with the reason to refuse the client.
  using Serve = std::function<void(Visitor&)>;

  /// Listens at once. Throws JobError for a busy port, a bad address, unusable keys, or if no descriptor or thread is
  /// available.
  ConnectionAcceptor(AcceptorOptions options, Serve serve);
  ~ConnectionAcceptor();
  ConnectionAcceptor(const ConnectionAcceptor&) = delete;
  ConnectionAcceptor& operator=(const ConnectionAcceptor&) = delete;

  /// Returns the address with the chosen port.
  [[nodiscard]] std::string address() const;
  /// Stops accepting, ends the connections, joins all threads. Idempotent. Not callable from `serve`.
  void stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace maestro
