// SPDX-License-Identifier: Apache-2.0
// Mutual TLS of a job's services, on OpenSSL: both ends show a certificate that the job's authority signed. TLS 1.2 or
// later. Host names are not compared with certificates: whoever has one of the job's authority belongs to the job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "actors/rpc/key_set.hpp"
#include "runtime/state/posix_file.hpp"

// OpenSSL's own names, so that its headers stay in the sources.
struct ssl_ctx_st;
struct ssl_st;

namespace maestro {

struct FreeTls {
  void operator()(ssl_ctx_st* context) const;
  void operator()(ssl_st* session) const;
};
using TlsSession = std::unique_ptr<ssl_st, FreeTls>;

/// A connected, non-blocking socket, and what is spoken on it.
struct PeerSocket {
  FileDescriptor socket;
  TlsSession tls;  ///< its handshake is done; null: plain. Goes before the socket
};

/// Thread-safe once made. Changes nothing of the process's OpenSSL settings.
class TlsContext {
 public:
  enum class Side { server, client };
  /// Throws JobError: a file that is missing or unreadable, a key that is another certificate's, an own certificate
  /// that has expired.
  TlsContext(const KeySet& keys, Side side);

  /// A session over a connected socket, which it does not own; no byte has been exchanged yet. Its writes raise no
  /// SIGPIPE.
  [[nodiscard]] TlsSession open(int socket) const;

 private:
  std::unique_ptr<ssl_ctx_st, FreeTls> context_;
  Side side_;
};

/// Moves bytes of a connected, non-blocking socket, through `tls` where it is not null. Returns how many, 0 when none
/// can be moved now, -1 when the connection has ended.
[[nodiscard]] std::int64_t receive_some(ssl_st* tls, int socket, void* buffer, std::size_t size);
[[nodiscard]] std::int64_t send_some(ssl_st* tls, int socket, const void* buffer, std::size_t size);
/// Bytes that TLS has taken off the socket, and receive_some() has not returned yet.
[[nodiscard]] std::size_t pending_bytes(const ssl_st* tls);

/// Why a call on the session failed, from OpenSSL's error queue of this thread and the session's verdict: "its
/// certificate was refused: certificate has expired", "it refused our certificate: ...", "it speaks no TLS", ...
[[nodiscard]] std::string tls_failure(const ssl_st* session);

}  // namespace maestro
