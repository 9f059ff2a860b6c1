// SPDX-License-Identifier: Apache-2.0
// A client's connection to the service of an RpcServer.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "actors/rpc/key_set.hpp"

namespace apache::thrift::protocol {
class TProtocol;
}

namespace maestro {

class RpcSocket;

struct ConnectionOptions {
  std::string address;                 ///< "unix:/path" or "host:port"
  std::string service = "service";     ///< name in messages: "no control service at ...: no process listens there"
  std::shared_ptr<const KeySet> keys;  ///< TLS with mutual certificates; null: plain
  std::chrono::milliseconds connect_patience{5000};  ///< limit for the connection, and for the TLS handshake
  std::chrono::milliseconds answer_patience{30000};
  std::int32_t largest_message = 64 << 20;  ///< bytes
  bool may_want_tls = true;                 ///< the service may expect TLS even if `keys` is null
};

/// Used by a single thread at a time.
class RpcClient {
 public:
  /// Connects. Throws JobError, a single line: the address cannot be resolved, refused, timed out, or its certificate
  /// was refused and why.
  explicit RpcClient(ConnectionOptions options);
  ~RpcClient();
  RpcClient(const RpcClient&) = delete;
  RpcClient& operator=(const RpcClient&) = delete;

  /// Returns the protocol for a generated client.
  [[nodiscard]] std::shared_ptr<apache::thrift::protocol::TProtocol> protocol() const { return protocol_; }
  /// Sets the patience of later calls.
  void set_answer_patience(std::chrono::milliseconds patience);
  /// Ends the present and all later calls, as if the service had ended the connection. Thread-safe.
  void shut_down() noexcept;

  /// Makes a call, `connection.invoke([&] { client.status(answer); })`. Connection errors become a JobError; exceptions
  /// that the service declares pass through. With TLS 1.3 the peer's refusal of our certificate arrives only here.
  template <class Call>
  auto invoke(Call&& call) -> decltype(call()) {
    try {
      return std::forward<Call>(call)();
    } catch (...) {
      rethrow();
    }
  }

 private:
  [[noreturn]] void rethrow() const;
  [[nodiscard]] std::string no_answer() const;

  ConnectionOptions options_;
  std::shared_ptr<RpcSocket> stream_;  // shared with the protocol, as Thrift requires
  std::shared_ptr<apache::thrift::protocol::TProtocol> protocol_;
};

}  // namespace maestro
