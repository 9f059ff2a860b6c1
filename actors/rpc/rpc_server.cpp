// SPDX-License-Identifier: Apache-2.0
#include "actors/rpc/rpc_server.hpp"

#include <thrift/TProcessor.h>

#include <utility>

#include "actors/rpc/framed_protocol.hpp"
#include "actors/rpc/rpc_socket.hpp"

namespace maestro {

RpcServer::RpcServer(AcceptorOptions options, std::shared_ptr<TProcessor> processor)
    : RpcServer(
          options, [processor = std::move(processor)](Visitor&) { return processor; }, true) {}

RpcServer::RpcServer(AcceptorOptions options, MakeProcessor make_processor)
    : RpcServer(options, std::move(make_processor), false) {}

RpcServer::RpcServer(const AcceptorOptions& options, MakeProcessor make_processor, bool any_message_admits)
    : server_(options, [make = std::move(make_processor), any_message_admits,
                        bytes = options.largest_message](Visitor& visitor) {
        const std::shared_ptr<TProcessor> processor = make(visitor);
        const auto protocol = framed_protocol(visitor.stream(), bytes);
        while (visitor.stream()->wait_for_message()) {
          if (any_message_admits) visitor.admit();
          if (!processor->process(protocol, protocol, nullptr)) return;
        }
      }) {}

}  // namespace maestro
