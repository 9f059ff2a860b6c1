// SPDX-License-Identifier: Apache-2.0
#include "actors/rpc/key_set.hpp"

#include <openssl/crypto.h>
#include <openssl/pem.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <ctime>

#include "actors/rpc/openssl_handles.hpp"
#include "runtime/core/result.hpp"
#include "runtime/files/posix_file.hpp"

namespace maestro {
namespace {

std::string remedy(const std::filesystem::path& folder) {
  return "make a new set: maestro keys " + folder.string();
}

/// Throws if the file is missing, not a regular file, or a `secret` that others can read.
void check_file(const std::filesystem::path& path, bool secret) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    if (errno != ENOENT && errno != ENOTDIR) throw JobError(system_error("cannot read", path, errno));
    throw JobError(path.string() + " is missing; " + remedy(path.parent_path()), ErrorCode::not_found);
  }
  if (!S_ISREG(status.st_mode)) throw JobError(path.string() + " is not a regular file; " + remedy(path.parent_path()));
  if (secret && (status.st_mode & 077) != 0) {
    throw JobError(path.string() + " can be read by others; chmod 600 " + path.string());
  }
}

/// Returns a file's first PEM object that `read` accepts.
template <class Handle, class Read>
Handle read_pem(const std::filesystem::path& path, const char* what, Read read) {
  const std::string text = read_text(path).value_or_throw();
  const BioHandle memory(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  openssl_require(memory != nullptr, "reading keys");
  // Without a password callback OpenSSL would prompt at the terminal.
  auto no_password = [](char*, int, int, void*) { return -1; };
  Handle object(read(memory.get(), nullptr, no_password, nullptr));
  if (object) return object;
  throw JobError(path.string() + " holds no " + what + " (" + openssl_error() + "); " + remedy(path.parent_path()));
}

std::string shown(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return "an unreadable time";
  std::array<char, 40> text{};
  const std::size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M UTC", &parts);
  return {text.data(), length};
}

void check_in_force(const X509* certificate, const std::filesystem::path& path) {
  if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0) {
    throw JobError(path.string() + " expired on " + shown(X509_get0_notAfter(certificate)) + "; " +
                   remedy(path.parent_path()));
  }
  if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0) {
    throw JobError(path.string() + " is not valid before " + shown(X509_get0_notBefore(certificate)) +
                   "; set the clock of this host, or " + remedy(path.parent_path()));
  }
}

void check_signature(X509* certificate, X509* authority, const KeySet& set) {
  const StoreHandle store(X509_STORE_new());
  const StoreContextHandle context(X509_STORE_CTX_new());
  openssl_require(store && context, "checking keys");
  openssl_require(X509_STORE_add_cert(store.get(), authority) == 1, "checking keys");
  openssl_require(X509_STORE_CTX_init(context.get(), store.get(), certificate, nullptr) == 1, "checking keys");
  if (X509_verify_cert(context.get()) == 1) return;
  const int code = X509_STORE_CTX_get_error(context.get());
  static_cast<void>(openssl_error());
  throw JobError(set.certificate.string() + " is not signed by " + set.authority.string() + " (" +
                 X509_verify_cert_error_string(code) + "); " + remedy(set.folder));
}

void check_certificates(const KeySet& set) {
  const auto certificate = read_pem<CertificateHandle>(set.certificate, "certificate", PEM_read_bio_X509);
  const auto authority = read_pem<CertificateHandle>(set.authority, "certificate", PEM_read_bio_X509);
  const auto key = read_pem<KeyHandle>(set.key, "private key without a password", PEM_read_bio_PrivateKey);
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    static_cast<void>(openssl_error());
    throw JobError(set.key.string() + " is not the key of " + set.certificate.string() + "; " + remedy(set.folder));
  }
  check_in_force(certificate.get(), set.certificate);
  check_in_force(authority.get(), set.authority);
  check_signature(certificate.get(), authority.get(), set);
}

std::string read_token(const std::filesystem::path& path) {
  check_file(path, true);
  std::string token = read_text(path).value_or_throw();
  while (!token.empty() && std::isspace(static_cast<unsigned char>(token.back())) != 0) token.pop_back();
  const auto printable = [](unsigned char c) { return std::isgraph(c) != 0; };
  if (!token.empty() && std::ranges::all_of(token, printable)) return token;
  throw JobError(path.string() + " holds no token, one word of printable characters; " + remedy(path.parent_path()));
}

}  // namespace

KeySet load_key_set(const std::filesystem::path& folder) {
  KeySet set{folder, folder / "node.pem", folder / "node.key", folder / "ca.pem", {}};
  check_file(set.certificate, false);
  check_file(set.authority, false);
  check_file(set.key, true);
  check_certificates(set);
  set.token = read_token(folder / "token");
  return set;
}

bool same_secret(const std::string& given, const std::string& secret) {
  return given.size() == secret.size() && CRYPTO_memcmp(given.data(), secret.data(), secret.size()) == 0;
}

}  // namespace maestro
