// Serves a Thrift processor to a bounded number of clients: the shell of the control service and of the rendezvous of a
// job's processes. TFramedTransport with strict TBinaryProtocol, one thread per client.
//
// DO-1: a bad client hurts nobody but itself: messages are bounded in size, depth and time, clients in number, and none
//       waits for another.
// DO-2: stop() ends in bounded time whatever clients do, if the processor's own calls do.
// DO-3: over TLS no byte of a client reaches the processor before its certificate has been accepted.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "actors/launch/key_set.hpp"

namespace apache::thrift {
class TProcessor;
}

namespace maestro {

struct DoorOptions {
  std::string address;                 ///< "unix:/path", or "host:port" with an IPv4 address; port 0: any free one
  std::shared_ptr<const KeySet> keys;  ///< TLS with mutual certificates; null: plain
  std::size_t most_clients = 32;       ///< further ones are closed at once
  std::chrono::milliseconds patience{30000};  ///< a client silent for so long, or whose message or handshake takes so
                                              ///< long, is let go
  std::int32_t largest_message = 1 << 20;     ///< bytes
  /// "10.0.0.3:4711" or "process 4711", and "its certificate was refused: certificate has expired"; called by any of
  /// the door's threads; may be empty.
  std::function<void(const std::string& peer, const std::string& reason)> refused;
};

class ServiceDoor {
 public:
  using TProcessor = apache::thrift::TProcessor;
  /// Of one client, by its name.
  using MakeProcessor = std::function<std::shared_ptr<TProcessor>(const std::string& peer)>;

  /// Listens and serves. The processor is shared by the threads of all clients. Throws JobError: busy port, bad
  /// address, unusable keys.
  ServiceDoor(DoorOptions options, std::shared_ptr<TProcessor> processor);
  /// A processor for each client, for services that must know who calls.
  ServiceDoor(DoorOptions options, MakeProcessor make_processor);
  ~ServiceDoor();
  ServiceDoor(const ServiceDoor&) = delete;
  ServiceDoor& operator=(const ServiceDoor&) = delete;

  /// With the port that was chosen.
  [[nodiscard]] std::string address() const;
  /// Takes no more clients, ends the connections, joins all threads. Idempotent; not from a handler of the processor.
  void stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace maestro
