// SPDX-License-Identifier: Apache-2.0
#include "actors/rpc/tls_context.hpp"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "runtime/core/result.hpp"

namespace maestro {
namespace {

std::string last_reason() {
  const unsigned long error = ERR_peek_error();
  ERR_clear_error();
  const char* text = error == 0 ? nullptr : ERR_reason_error_string(error);
  return text == nullptr ? "unknown error" : text;
}

JobError file_error(const char* what, const std::filesystem::path& file) {
  return JobError(std::string("cannot use the ") + what + " " + file.string() + ": " + last_reason());
}

void refuse_outdated(SSL_CTX* context, const std::filesystem::path& file) {
  const X509* own = SSL_CTX_get0_certificate(context);
  if (X509_cmp_current_time(X509_get0_notAfter(own)) < 0) {
    throw JobError("the certificate " + file.string() + " has expired; make new ones with `maestro keys`");
  }
  if (X509_cmp_current_time(X509_get0_notBefore(own)) > 0) {
    throw JobError("the certificate " + file.string() + " is not valid yet; are this machine's clock and date right?");
  }
}

// OpenSSL's socket BIO writes without MSG_NOSIGNAL, so that a disconnected peer would end the process.
int write_socket(BIO* bio, const char* data, int size) {
  BIO_clear_retry_flags(bio);
  int socket = -1;
  BIO_get_fd(bio, &socket);
  const auto written = ::send(socket, data, static_cast<std::size_t>(size), MSG_NOSIGNAL);
  if (written < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
  return static_cast<int>(written);
}

struct FreeMethod {
  void operator()(BIO_METHOD* method) const { BIO_meth_free(method); }
};

/// Returns the socket BIO with write_socket().
const BIO_METHOD* quiet_socket() {
  static const std::unique_ptr<BIO_METHOD, FreeMethod> method = [] {
    const BIO_METHOD* socket = BIO_s_socket();
    std::unique_ptr<BIO_METHOD, FreeMethod> made(
        BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK | BIO_TYPE_DESCRIPTOR, "socket without SIGPIPE"));
    BIO_meth_set_write(made.get(), write_socket);
    BIO_meth_set_read(made.get(), BIO_meth_get_read(socket));
    BIO_meth_set_ctrl(made.get(), BIO_meth_get_ctrl(socket));
    BIO_meth_set_create(made.get(), BIO_meth_get_create(socket));
    BIO_meth_set_destroy(made.get(), BIO_meth_get_destroy(socket));
    return made;
  }();
  return method.get();
}

bool speaks_no_tls(int reason) {
  return reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST || reason == SSL_R_UNKNOWN_PROTOCOL ||
         reason == SSL_R_PACKET_LENGTH_TOO_LONG || reason == SSL_R_BAD_RECORD_TYPE ||
         reason == SSL_R_UNEXPECTED_MESSAGE;
}

int limited(std::size_t size) {
  return static_cast<int>(std::min<std::size_t>(size, INT_MAX));
}

std::int64_t plain_outcome(std::int64_t result) {
  const bool later = result < 0 && (errno == EAGAIN || errno == EINTR);
  return later ? 0 : result > 0 ? result : -1;
}

std::int64_t tls_outcome(const ssl_st* tls, int result) {
  if (result > 0) return result;
  const int error = SSL_get_error(tls, result);
  return error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? 0 : -1;
}

/// Returns whether an alert concerns this side's certificate: 41-48 and 116.
bool about_certificate(int alert) {
  return (alert >= 41 && alert <= 48) || alert == 116;
}

}  // namespace

void FreeTls::operator()(ssl_ctx_st* context) const {
  SSL_CTX_free(context);
}

void FreeTls::operator()(ssl_st* session) const {
  SSL_free(session);
}

TlsContext::TlsContext(const KeySet& keys, Side side)
    : context_(SSL_CTX_new(side == Side::server ? TLS_server_method() : TLS_client_method())), side_(side) {
  ERR_clear_error();
  SSL_CTX* context = context_.get();
  if (context == nullptr) throw JobError("cannot set up TLS: " + last_reason(), ErrorCode::unavailable);
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_default_passwd_cb(context,
                                [](char*, int, int, void*) { return -1; });  // otherwise it prompts at the terminal
  if (SSL_CTX_use_certificate_chain_file(context, keys.certificate.c_str()) != 1) {
    throw file_error("certificate", keys.certificate);
  }
  if (SSL_CTX_use_PrivateKey_file(context, keys.key.c_str(), SSL_FILETYPE_PEM) != 1) throw file_error("key", keys.key);
  if (SSL_CTX_check_private_key(context) != 1) throw file_error("key", keys.key);
  if (SSL_CTX_load_verify_file(context, keys.authority.c_str()) != 1) throw file_error("authority", keys.authority);
  refuse_outdated(context, keys.certificate);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
}

TlsSession TlsContext::open(int socket) const {
  TlsSession session(SSL_new(context_.get()));
  BIO* bio = session ? BIO_new(quiet_socket()) : nullptr;
  if (bio == nullptr) throw JobError("cannot open a TLS session: " + last_reason(), ErrorCode::unavailable);
  BIO_set_fd(bio, socket, BIO_NOCLOSE);
  SSL_set_bio(session.get(), bio, bio);
  if (side_ == Side::server) {
    SSL_set_accept_state(session.get());
  } else {
    SSL_set_connect_state(session.get());
  }
  return session;
}

std::int64_t receive_some(ssl_st* tls, int socket, void* buffer, std::size_t size) {
  if (tls == nullptr) return plain_outcome(::recv(socket, buffer, size, 0));
  ERR_clear_error();
  return tls_outcome(tls, SSL_read(tls, buffer, limited(size)));
}

std::int64_t send_some(ssl_st* tls, int socket, const void* buffer, std::size_t size) {
  if (tls == nullptr) return plain_outcome(::send(socket, buffer, size, MSG_NOSIGNAL));
  ERR_clear_error();
  return tls_outcome(tls, SSL_write(tls, buffer, limited(size)));
}

std::size_t pending_bytes(const ssl_st* tls) {
  return static_cast<std::size_t>(SSL_pending(tls));
}

std::string tls_failure(const ssl_st* session) {
  const unsigned long error = ERR_peek_error();
  const int reason = ERR_GET_REASON(error);
  const long verdict = SSL_get_verify_result(session);
  if (error == 0) return "it ended the connection";
  if (reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE) {
    ERR_clear_error();
    return "it sent no certificate";
  }
  if (verdict != X509_V_OK) {
    ERR_clear_error();
    return std::string("its certificate was refused: ") + X509_verify_cert_error_string(verdict);
  }
  if (reason > SSL_AD_REASON_OFFSET && reason < SSL_AD_REASON_OFFSET + 256) {
    ERR_clear_error();
    const int alert = reason - SSL_AD_REASON_OFFSET;
    return std::string(about_certificate(alert) ? "it refused our certificate: " : "it ended TLS: ") +
           SSL_alert_desc_string_long(alert);
  }
  if (speaks_no_tls(reason)) {
    ERR_clear_error();
    return "it does not use TLS";
  }
  return "TLS failed: " + last_reason();
}

}  // namespace maestro
