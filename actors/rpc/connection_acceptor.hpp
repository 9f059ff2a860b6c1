// SPDX-License-Identifier: Apache-2.0
// Accepts connections, with or without TLS, and serves each on a thread of its own.
//
// CN-1 (slots): clients that have not been admitted share `most_strangers` slots, and a new client ends the oldest of
//       them; admitted clients have `most_clients` slots of their own. A new client waits at most `stranger_patience`
//       for clients that are ending.
// CN-2 (deadlines): a stranger's handshake and its first message take `stranger_patience` each at most.
// CN-3 (bounded stop): stop() ends in bounded time whatever clients do, if `serve` returns when its stream is shut
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
  std::size_t most_clients = 32;       ///< admitted; further clients are closed at once
  std::size_t most_strangers = 16;     ///< not admitted
  std::chrono::milliseconds patience{30000};          ///< limit of a client's silence, and of receiving a message
  std::chrono::milliseconds stranger_patience{2000};  ///< the same before admission, and of the handshake
  std::int32_t largest_message = 1 << 20;             ///< bytes
  /// Receives the peer, "10.0.0.3:4711" or "process 4711", and the reason, "its certificate was refused: certificate
  /// has expired"; called by any of the acceptor's threads; may be empty.
  std::function<void(const std::string& peer, const std::string& reason)> refused;
  /// Receives the same where this process has no memory or no thread for the client; empty: `refused` does.
  std::function<void(const std::string& peer, const std::string& reason)> starved;
};

/// A client, for the thread that serves it.
class Visitor {
 public:
  virtual ~Visitor() = default;
  [[nodiscard]] virtual const std::string& name() const = 0;
  [[nodiscard]] virtual const std::shared_ptr<RpcSocket>& stream() const = 0;
  /// The client is authorized (CN-1); from now on it has the patience of AcceptorOptions. Idempotent.
  virtual void admit() = 0;
  /// Takes the socket from the acceptor; the stream is unusable afterwards.
  [[nodiscard]] virtual PeerSocket release() = 0;
};

class ConnectionAcceptor {
 public:
  /// Called after the handshake; throws std::exception with the reason to refuse the client.
  using Serve = std::function<void(Visitor&)>;

  /// Listens at once. Throws JobError: busy port, bad address, unusable keys, no descriptor or thread available.
  ConnectionAcceptor(AcceptorOptions options, Serve serve);
  ~ConnectionAcceptor();
  ConnectionAcceptor(const ConnectionAcceptor&) = delete;
  ConnectionAcceptor& operator=(const ConnectionAcceptor&) = delete;

  /// Returns the address with the chosen port.
  [[nodiscard]] std::string address() const;
  /// Stops accepting, ends the connections, joins all threads. Idempotent; not from `serve`.
  void stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace maestro
