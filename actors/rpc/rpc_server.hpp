// SPDX-License-Identifier: Apache-2.0
// Serves a Thrift processor to a bounded number of clients: the shell of the control service and of the rendezvous of a
// job's processes. TFramedTransport with strict TBinaryProtocol over a ConnectionAcceptor.
//
// DO-1 (isolation): a bad client affects only itself: messages are bounded in size, depth and time, clients in number,
//       and no client waits for another (CN-1).
// DO-2 (bounded stop): stop() ends in bounded time whatever clients do, if the handlers' own calls do.
// DO-3 (certificate first): over TLS no byte of a client reaches a handler before its certificate has been accepted.
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
  /// Creates the processor of a client, whose calls admit the client; the visitor outlives the processor.
  using MakeProcessor = std::function<std::shared_ptr<TProcessor>(Visitor&)>;

  /// Listens and serves. The threads of all clients share the processor, and the first message admits a client. Throws
  /// JobError: busy port, bad address, unusable keys, no descriptor or thread available.
  RpcServer(AcceptorOptions options, std::shared_ptr<TProcessor> processor);
  /// Creates a processor for each client, for services that identify the caller.
  RpcServer(AcceptorOptions options, MakeProcessor make_processor);

  /// Returns the address with the chosen port.
  [[nodiscard]] std::string address() const { return server_.address(); }
  /// Stops accepting, ends the connections, joins all threads. Idempotent; not from a handler of the processor.
  void stop() { server_.stop(); }

 private:
  RpcServer(const AcceptorOptions& options, MakeProcessor make_processor, bool any_message_admits);

  ConnectionAcceptor server_;
};

}  // namespace maestro
