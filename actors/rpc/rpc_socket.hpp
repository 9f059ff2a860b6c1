// SPDX-License-Identifier: Apache-2.0
// A connected socket, with or without TLS, as a Thrift transport with bounded waits. Thrift's sockets bound only single
// reads: a client that sends a byte from time to time holds them for ever, and another thread cannot end them.
//
// SS-1 (bounded waits): the handshake, a complete message after its first byte, and a complete write each wait at most
//       `patience` for the peer.
// SS-2 (shut down): after shut_down(), from any thread, every call returns or throws at once.
//
// The time while this process was stopped does not count as the peer's silence.
#pragma once

#include <thrift/transport/TTransport.h>

#include <chrono>
#include <cstdint>

#include "actors/rpc/tls_context.hpp"
#include "runtime/files/posix_file.hpp"

namespace maestro {

/// Used by a single thread at a time, except shut_down(). Errors are TTransportException with a text that follows the
/// peer's name.
class RpcSocket final : public apache::thrift::transport::TTransport {
 public:
  /// Takes a non-blocking socket; `tls` may be null.
  RpcSocket(FileDescriptor socket, TlsSession tls, std::chrono::milliseconds patience);

  /// Performs the handshake; does nothing without TLS.
  void handshake();
  /// Waits for a message, which must then be complete within `patience`. Returns false if the peer ended the connection
  /// or was silent.
  [[nodiscard]] bool wait_for_message();
  /// Sets the patience of all later calls.
  void set_patience(std::chrono::milliseconds patience) { patience_ = patience; }
  /// Ends sending and reads the peer's remaining bytes for a short time: closing with unread bytes would reset the
  /// connection, and the peer would lose the alert or the answer with the reason.
  void hear_out() noexcept;
  void shut_down() noexcept;
  /// Releases the socket with its TLS session.
  [[nodiscard]] PeerSocket release();

  /// Returns whether any byte was read.
  [[nodiscard]] bool has_read() const { return has_read_; }
  /// Returns whether wait_for_message() returned false because the peer was silent.
  [[nodiscard]] bool fell_silent() const { return fell_silent_; }

  [[nodiscard]] bool isOpen() const override { return open_; }
  void close() override;
  std::uint32_t read_virt(std::uint8_t* buffer, std::uint32_t size) override;
  void write_virt(const std::uint8_t* buffer, std::uint32_t size) override;

 private:
  using Clock = std::chrono::steady_clock;
  /// Returns the number of received bytes; 0: the peer has ended the connection; -1: wait for `awaited_`.
  std::int64_t receive(std::uint8_t* buffer, std::uint32_t size);
  /// Returns the result of receive(), but leaves the bytes in the socket.
  std::int64_t look();
  std::int64_t send(const std::uint8_t* buffer, std::uint32_t size);
  std::int64_t tls_outcome(int result);
  std::int64_t plain_outcome(std::int64_t result, short events);
  /// Returns false if the deadline has passed. Extends it by the time while this process was stopped.
  [[nodiscard]] bool wait(Clock::time_point& deadline) const;
  void renew_deadline() { read_deadline_ = Clock::now() + patience_; }

  FileDescriptor socket_;
  TlsSession tls_;  // destroyed before the socket
  std::chrono::milliseconds patience_;
  Clock::time_point read_deadline_;
  short awaited_ = 0;
  bool open_ = true;
  bool has_read_ = false;
  bool fell_silent_ = false;
};

}  // namespace maestro
