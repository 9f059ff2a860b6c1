// SPDX-License-Identifier: Apache-2.0
// Serves a Thrift processor to a bounded number of clients: the shell of the control service and of the rendezvous of a
// job's processes. TFramedTransport with strict TBinaryProtocol over a ConnectionDoor.
//
// DO-1: a bad client hurts nobody but itself: messages are bounded in size, depth and time, clients in number, and none
//       waits for another (CN-1).
// DO-2: stop() ends in bounded time whatever clients do, if the processor's own calls do.
// DO-3: over TLS no byte of a client reaches the processor before its certificate has been accepted.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "actors/control/connection_door.hpp"

namespace apache::thrift {
class TConfiguration;
class TProcessor;
}  // namespace apache::thrift

namespace maestro {

class ServiceDoor {
 public:
  using TProcessor = apache::thrift::TProcessor;
  /// Of one client, which its calls admit; the visitor outlives the processor.
  using MakeProcessor = std::function<std::shared_ptr<TProcessor>(Visitor&)>;

  /// Listens and serves. The processor is shared by the threads of all clients, and the first message admits a client.
  /// Throws JobError: busy port, bad address, unusable keys, no descriptor or thread to be had.
  ServiceDoor(DoorOptions options, std::shared_ptr<TProcessor> processor);
  /// A processor for each client, for services that must know who calls.
  ServiceDoor(DoorOptions options, MakeProcessor make_processor);

  /// With the port that was chosen.
  [[nodiscard]] std::string address() const { return door_.address(); }
  /// Takes no more clients, ends the connections, joins all threads. Idempotent; not from a handler of the processor.
  void stop() { door_.stop(); }

 private:
  ServiceDoor(const DoorOptions& options, MakeProcessor make_processor, bool any_message_admits);

  ConnectionDoor door_;
};

}  // namespace maestro
