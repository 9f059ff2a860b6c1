// SPDX-License-Identifier: Apache-2.0
// Serves a Thrift CPU to a bounded number of clients: the shell of the control service and of the rendezvous of a
// job's processes. TFramedTransport with strict TBinaryProtocol over a ConnectionAcceptor.
//
// DO-1: a bad client hurts nobody but itself: messages are bounded in size, depth and time, clients in number, and none
//       waits for another (CN-1).
// DO-2: stop() ends in bounded time whatever clients do, if the handlers' own calls do.
// DO-3: over TLS no byte of a client reaches a handler before its certificate has been accepted.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "actors/rpc/connection_acceptor.hpp"

namespace apache::thrift {
class TConfiguration;
class TProcessor;
}  // namespace apache::thrift

namespace maestro {

class RpcServer {
 public:
  using TProcessor = apache::thrift::TProcessor;
  /// Of one client, which its calls admit; the visitor outlives the CPU.
  using MakeProcessor = std::function<std::shared_ptr<TProcessor>(Visitor&)>;

  /// Listens and serves. The CPU is shared by the threads of all clients, and the first message admits a client.
  /// Throws JobError: busy port, bad address, unusable keys, no descriptor or thread to be had.
  RpcServer(DoorOptions options, std::shared_ptr<TProcessor> processor);
  /// A CPU for each client, for services that must know who calls.
  RpcServer(DoorOptions options, MakeProcessor make_processor);

  /// With the port that was chosen.
  [[nodiscard]] std::string address() const { return door_.address(); }
  /// Takes no more clients, ends the connections, joins all threads. Idempotent; not from a handler of the CPU.
  void stop() { door_.stop(); }

 private:
  RpcServer(const DoorOptions& options, MakeProcessor make_processor, bool any_message_admits);

  ConnectionAcceptor door_;
};

}  // namespace maestro
