// SPDX-License-Identifier: Apache-2.0
#include "actors/launch/peer_acceptor.hpp"

#include <openssl/crypto.h>

#include <utility>

#include "actors/rpc/rpc_socket.hpp"
#include "actors/rpc/socket_address.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

namespace {

using apache::thrift::transport::TTransportException;
using std::chrono::milliseconds;

constexpr milliseconds stranger_patience(5000);
constexpr std::size_t strangers = 64;
constexpr std::uint8_t admitted_reply = 1;

std::string gate_address(const std::string& host, std::uint16_t port) {
  return host.starts_with("unix:") ? host : host + ":" + std::to_string(port);
}

AcceptorOptions acceptor_options(const std::string& address, const GateKeys& keys) {
  AcceptorOptions options;
  options.address = address;
  options.keys = keys.keys;
  options.most_strangers = strangers;
  options.stranger_patience = stranger_patience;
  return options;
}

/// Returns whether the peer sends the secret. Throws TTransportException if the peer ends or is silent.
bool shows(RpcSocket& stream, const std::string& secret) {
  std::string shown(secret.size(), '\0');
  stream.readAll(reinterpret_cast<std::uint8_t*>(shown.data()), static_cast<std::uint32_t>(shown.size()));
  return CRYPTO_memcmp(shown.data(), secret.data(), secret.size()) == 0;
}

}  // namespace

PeerAcceptor::PeerAcceptor(const std::string& host, std::uint16_t port, const GateKeys& keys,
                           std::function<void(PeerSocket)> admitted)
    : door_(acceptor_options(gate_address(host, port), keys),
            [secret = keys.secret, admitted = std::move(admitted)](Visitor& visitor) {
              RpcSocket& stream = *visitor.stream();
              if (!shows(stream, secret)) return;
              stream.write(&admitted_reply, 1);
              admitted(visitor.release());
            }) {}

std::uint16_t PeerAcceptor::port() const {
  return parse_socket_address(door_.address()).port;
}

PeerSocket connect_to_gate(const std::string& host, std::uint16_t port, const GateKeys& keys, milliseconds patience) {
  const std::string address = gate_address(host, port);
  FileDescriptor socket = connect_to(parse_socket_address(address), "process of this job", patience);
  TlsSession session;
  if (keys.keys) session = TlsContext(*keys.keys, TlsContext::Side::client).open(socket.get());
  RpcSocket stream(std::move(socket), std::move(session), patience);
  try {
    stream.handshake();
    stream.write(reinterpret_cast<const std::uint8_t*>(keys.secret.data()),
                 static_cast<std::uint32_t>(keys.secret.size()));
    std::uint8_t answer = 0;
    stream.readAll(&answer, 1);
  } catch (const TTransportException& failure) {
    const bool ended = failure.getType() == TTransportException::END_OF_FILE;
    throw JobError("the process at " + address + ": " + (ended ? "it ended the connection" : failure.what()),
                   ended ? ErrorCode::peer_lost : ErrorCode::timeout);
  }
  return stream.release();
}

}  // namespace maestro
