// SPDX-License-Identifier: Apache-2.0
// Serves a Thrift service (TProcessor) to a bounded number of clients: the shell of the control service and of the
// rendezvous of a job's processes. TFramedTransport with strict TBinaryProtocol over a ConnectionAcceptor.
//
// DO-1 (isolation): a bad client affects only itself: messages are bounded in size, depth and time, clients in number,
//       and no client waits for another (CN-1).
// DO-2 (bounded stop): stop() ends in bounded time whatever clients do, if the handlers' calls do.
// DO-3 (certificate first): over TLS a client's bytes reach a handler only after its certificate has been accepted.
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
  /// Creates a client's TProcessor, whose calls admit the client; the visitor outlives it.
  using MakeProcessor = std::function<std::shared_ptr<TProcessor>(Visitor&)>;

  /// Listens and serves. All clients' threads share the TProcessor, and the first message admits a client. Throws
  /// JobError for a busy port, a bad address, unusable keys, or if no descriptor or thread is available.
  RpcServer(AcceptorOptions options, std::shared_ptr<TProcessor> processor);
  /// Creates a TProcessor for each client, for services that identify the caller.
  RpcServer(AcceptorOptions options, MakeProcessor make_processor);

  /// Returns the address with the chosen port.
  [[nodiscard]] std::string address() const { return server_.address(); }
  /// Stops accepting, ends the connections, joins all threads. Idempotent. Not callable from a handler.
  void stop() { server_.stop(); }

 private:
  RpcServer(const AcceptorOptions& options, MakeProcessor make_processor, bool any_message_admits);

  ConnectionAcceptor server_;
};

}  // namespace maestro
