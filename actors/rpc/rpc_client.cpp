// SPDX-License-Identifier: Apache-2.0
#include "actors/rpc/rpc_client.hpp"

#include <thrift/TApplicationException.h>
#include <thrift/protocol/TProtocolException.h>
#include <thrift/transport/TTransportException.h>

#include "actors/rpc/framed_protocol.hpp"
#include "actors/rpc/rpc_socket.hpp"
#include "actors/rpc/socket_address.hpp"

namespace maestro {

using apache::thrift::TApplicationException;
using apache::thrift::protocol::TProtocolException;
using apache::thrift::transport::TTransportException;

RpcClient::RpcClient(ConnectionOptions options) : options_(std::move(options)) {
  const SocketAddress address = parse_socket_address(options_.address);
  FileDescriptor socket = connect_to(address, options_.service, options_.connect_patience);
  TlsSession session;
  if (options_.keys) session = TlsContext(*options_.keys, TlsContext::Side::client).open(socket.get());
  stream_ = std::make_shared<RpcSocket>(std::move(socket), std::move(session), options_.connect_patience);
  try {
    stream_->handshake();
  } catch (const TTransportException&) {
    rethrow();
  }
  stream_->set_patience(options_.answer_patience);
  protocol_ = framed_protocol(stream_, options_.largest_message);
}

RpcClient::~RpcClient() {
  stream_->close();
}

void RpcClient::set_answer_patience(std::chrono::milliseconds patience) {
  options_.answer_patience = patience;
  stream_->set_patience(patience);
}

void RpcClient::shut_down() noexcept {
  stream_->shut_down();
}

std::string RpcClient::no_answer() const {
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(options_.answer_patience).count();
  return "no answer within " + std::to_string(seconds) +
         " s; was its process stopped by a signal? kill -CONT resumes it";
}

void RpcClient::rethrow() const {
  const std::string start = "the " + options_.service + " at " + options_.address + ": ";
  const bool wants_tls = options_.may_want_tls && !options_.keys && !parse_socket_address(options_.address).local();
  const std::string hint = wants_tls ? "; does it want TLS (--keys)?" : "";
  try {
    throw;
  } catch (const TTransportException& failure) {
    switch (failure.getType()) {
      case TTransportException::TIMED_OUT:
        throw JobError(start + (protocol_ ? no_answer() : failure.what()), ErrorCode::timeout);
      case TTransportException::END_OF_FILE:
        throw JobError(start + "it ended the connection" + (stream_->has_read() ? "" : hint), ErrorCode::peer_lost);
      case TTransportException::CORRUPTED_DATA:
        throw JobError(start + "its answer is not a message of this protocol" + hint);
      default:
        throw JobError(start + failure.what());
    }
  } catch (const TProtocolException&) {
    throw JobError(start + "its answer is not a message of this protocol");
  } catch (const TApplicationException& failure) {
    throw JobError(start + "it cannot answer (" + failure.what() + "); is it of another version?");
  }
}

}  // namespace maestro
