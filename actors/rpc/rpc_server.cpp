// SPDX-License-Identifier: Apache-2.0
#include "actors/rpc/rpc_server.hpp"

#include <thrift/TConfiguration.h>
#include <thrift/TProcessor.h>
#include <thrift/protocol/TBinaryProtocol.h>
#include <thrift/transport/TBufferTransports.h>

#include <utility>

#include "actors/rpc/rpc_socket.hpp"

namespace maestro {

using apache::thrift::TConfiguration;
using apache::thrift::protocol::TBinaryProtocol;
using apache::thrift::transport::TFramedTransport;

RpcServer::RpcServer(AcceptorOptions options, std::shared_ptr<TProcessor> processor)
    : RpcServer(
          options, [processor = std::move(processor)](Visitor&) { return processor; }, true) {}

RpcServer::RpcServer(AcceptorOptions options, MakeProcessor make_processor)
    : RpcServer(options, std::move(make_processor), false) {}

RpcServer::RpcServer(const AcceptorOptions& options, MakeProcessor make_processor, bool any_message_admits)
    : server_(options, [make = std::move(make_processor), any_message_admits, bytes = options.largest_message,
                        limits = std::make_shared<TConfiguration>(options.largest_message, options.largest_message)](
                           Visitor& visitor) {
        const std::shared_ptr<TProcessor> processor = make(visitor);
        const auto framed = std::make_shared<TFramedTransport>(visitor.stream(), limits);
        const auto protocol = std::make_shared<TBinaryProtocol>(framed, bytes, bytes, true, true);
        while (visitor.stream()->wait_for_message()) {
          if (any_message_admits) visitor.admit();
          if (!processor->process(protocol, protocol, nullptr)) return;
        }
      }) {}

}  // namespace maestro
