// SPDX-License-Identifier: Apache-2.0
// Mutual TLS of a job's services, on OpenSSL: both ends send a certificate that the job's authority signed. TLS 1.2 or
// later. Host names are not compared with certificates: every holder of a certificate from the authority belongs to the
// job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "actors/rpc/key_set.hpp"
#include "runtime/files/posix_file.hpp"

// Names of OpenSSL, whose headers only sources include.
struct ssl_ctx_st;
struct ssl_st;

namespace maestro {

struct FreeTls {
  void operator()(ssl_ctx_st* context) const;
  void operator()(ssl_st* session) const;
};
using TlsSession = std::unique_ptr<ssl_st, FreeTls>;

/// A connected, non-blocking socket, and its TLS session.
struct PeerSocket {
  FileDescriptor socket;
  TlsSession tls;  ///< session after its handshake; null: plain. Destroyed before the socket
};

/// Thread-safe once constructed. Does not change the process's OpenSSL settings.
class TlsContext {
 public:
  enum class Side { server, client };
  /// Throws JobError for a missing or unreadable file, a key of another certificate, and an expired certificate.
  TlsContext(const KeySet& keys, Side side);

  /// Creates a session over a connected socket, which it does not own, without exchanging bytes. Its writes do not
  /// raise SIGPIPE.
  [[nodiscard]] TlsSession open(int socket) const;

 private:
  std::unique_ptr<ssl_ctx_st, FreeTls> context_;
  Side side_;
};

/// Receive or send bytes over a connected, non-blocking socket, through `tls` unless it is null. Return their number; 0
/// if none can be moved now; -1 if the connection has ended.
[[nodiscard]] std::int64_t receive_some(ssl_st* tls, int socket, void* buffer, std::size_t size);
[[nodiscard]] std::int64_t send_some(ssl_st* tls, int socket, const void* buffer, std::size_t size);
/// Returns the number of bytes that TLS has read from the socket and receive_some() has not returned yet.
[[nodiscard]] std::size_t pending_bytes(const ssl_st* tls);

/// Returns why a call on the session failed, from OpenSSL's error queue of this thread and the session's verdict: "its
/// certificate was refused: certificate has expired", "it refused our certificate: ...", "it does not use TLS", ...
[[nodiscard]] std::string tls_failure(const ssl_st* session);

}  // namespace maestro
