// SPDX-License-Identifier: Apache-2.0
#include "actors/rpc/rpc_socket.hpp"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>

namespace maestro {
namespace {

using apache::thrift::transport::TTransportException;

[[noreturn]] void fail(TTransportException::TTransportExceptionType type, const std::string& why) {
  throw TTransportException(type, why);
}

std::string silence(std::chrono::milliseconds patience) {
  return "it was silent for " + std::to_string(patience.count()) + " ms";
}

}  // namespace

RpcSocket::RpcSocket(FileDescriptor socket, TlsSession tls, std::chrono::milliseconds patience)
    : socket_(std::move(socket)), tls_(std::move(tls)), patience_(patience) {
  renew_deadline();
}

void RpcSocket::handshake() {
  if (!tls_) return;
  renew_deadline();
  while (true) {
    ERR_clear_error();
    const int result = SSL_do_handshake(tls_.get());
    if (result == 1) return;
    if (tls_outcome(result) == 0)
      fail(TTransportException::END_OF_FILE, "it ended the connection in the TLS handshake");
    if (!wait(read_deadline_)) fail(TTransportException::TIMED_OUT, silence(patience_) + " in the TLS handshake");
  }
}

bool RpcSocket::wait_for_message() {
  renew_deadline();
  while (true) {
    const std::int64_t waiting = look();
    if (waiting == 0) return false;
    if (waiting > 0) break;
    if (!wait(read_deadline_)) {
      fell_silent_ = true;
      return false;
    }
  }
  renew_deadline();
  return true;
}

void RpcSocket::hear_out() noexcept {
  constexpr auto moment = std::chrono::milliseconds(500);
  constexpr std::size_t most_bytes = 1 << 20;
  ::shutdown(socket_.get(), SHUT_WR);
  auto deadline = Clock::now() + std::min(moment, patience_);
  awaited_ = POLLIN;
  char unread[4096];
  for (std::size_t heard = 0; heard < most_bytes && wait(deadline);) {
    const auto got = ::recv(socket_.get(), unread, sizeof unread, 0);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return;
    if (got > 0) heard += static_cast<std::size_t>(got);
  }
}

void RpcSocket::shut_down() noexcept {
  ::shutdown(socket_.get(), SHUT_RDWR);
}

PeerSocket RpcSocket::release() {
  open_ = false;
  return {std::move(socket_), std::move(tls_)};
}

void RpcSocket::close() {
  if (open_ && tls_) {
    SSL_shutdown(tls_.get());
    ERR_clear_error();
  }
  open_ = false;
  shut_down();
}

std::uint32_t RpcSocket::read_virt(std::uint8_t* buffer, std::uint32_t size) {
  while (true) {
    const std::int64_t got = receive(buffer, size);
    if (got > 0) has_read_ = true;
    if (got >= 0) return static_cast<std::uint32_t>(got);
    if (!wait(read_deadline_)) fail(TTransportException::TIMED_OUT, silence(patience_) + " in mid-message");
  }
}

void RpcSocket::write_virt(const std::uint8_t* buffer, std::uint32_t size) {
  auto deadline = Clock::now() + patience_;
  std::uint32_t done = 0;
  while (done < size) {
    const std::int64_t sent = send(buffer + done, size - done);
    if (sent == 0) fail(TTransportException::END_OF_FILE, "it ended the connection");
    if (sent > 0) done += static_cast<std::uint32_t>(sent);
    if (sent < 0 && !wait(deadline)) fail(TTransportException::TIMED_OUT, "it read nothing of a message in time");
  }
  renew_deadline();
}

std::int64_t RpcSocket::receive(std::uint8_t* buffer, std::uint32_t size) {
  if (!tls_) return plain_outcome(::recv(socket_.get(), buffer, size, 0), POLLIN);
  ERR_clear_error();
  const int result = SSL_read(tls_.get(), buffer, static_cast<int>(std::min<std::uint32_t>(size, 1U << 30)));
  return result > 0 ? result : tls_outcome(result);
}

std::int64_t RpcSocket::look() {
  std::uint8_t first = 0;
  if (!tls_) return plain_outcome(::recv(socket_.get(), &first, 1, MSG_PEEK), POLLIN);
  ERR_clear_error();
  const int result = SSL_peek(tls_.get(), &first, 1);
  return result > 0 ? result : tls_outcome(result);
}

std::int64_t RpcSocket::send(const std::uint8_t* buffer, std::uint32_t size) {
  if (!tls_) return plain_outcome(::send(socket_.get(), buffer, size, MSG_NOSIGNAL), POLLOUT);
  ERR_clear_error();
  const int result = SSL_write(tls_.get(), buffer, static_cast<int>(std::min<std::uint32_t>(size, 1U << 30)));
  return result > 0 ? result : tls_outcome(result);
}

std::int64_t RpcSocket::plain_outcome(std::int64_t result, short events) {
  if (result >= 0) return result;
  if (errno == EPIPE || errno == ECONNRESET) return 0;
  if (errno != EAGAIN && errno != EINTR) {
    fail(TTransportException::UNKNOWN, "the connection broke: " + std::generic_category().message(errno));
  }
  awaited_ = events;
  return -1;
}

std::int64_t RpcSocket::tls_outcome(int result) {
  const int error_number = errno;
  const int error = SSL_get_error(tls_.get(), result);
  if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
    awaited_ = error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
    return -1;
  }
  open_ = false;
  if (error == SSL_ERROR_ZERO_RETURN) return 0;
  if (error == SSL_ERROR_SYSCALL && ERR_peek_error() == 0) {
    if (error_number == 0 || error_number == EPIPE || error_number == ECONNRESET) return 0;
    fail(TTransportException::UNKNOWN, "the connection broke: " + std::generic_category().message(error_number));
  }
  if (ERR_GET_REASON(ERR_peek_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
    ERR_clear_error();
    return 0;
  }
  fail(TTransportException::UNKNOWN, tls_failure(tls_.get()));
}

bool RpcSocket::wait(Clock::time_point& deadline) const {
  constexpr std::chrono::milliseconds look(250);
  while (true) {
    const auto now = Clock::now();
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now);
    if (left.count() <= 0) return false;
    const auto nap = std::min(left, look);
    pollfd waited{socket_.get(), awaited_, 0};
    const int ready = ::poll(&waited, 1, static_cast<int>(nap.count()));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
    const auto late = Clock::now() - now - nap;
    if (late > look) deadline += late;
  }
}

}  // namespace maestro
