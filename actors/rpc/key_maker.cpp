// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <fcntl.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <set>
#include <utility>

#include "actors/rpc/key_set.hpp"
#include "actors/rpc/openssl_handles.hpp"
#include "runtime/core/result.hpp"
#include "runtime/files/posix_file.hpp"

namespace maestro {
namespace {

using std::chrono::sys_seconds;

struct Validity {
  sys_seconds begins;
  sys_seconds ends;
};

struct Signer {
  X509* certificate;
  EVP_PKEY* key;
};

Validity validity_of(const KeySetOptions& options) {
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  constexpr std::int64_t most_days = 36500;
  if (!options.ends && (options.days < 1 || options.days > most_days)) {
    throw JobError("days = " + std::to_string(options.days) + ": keys are valid for 1 to " + std::to_string(most_days) +
                   " days");
  }
  return {options.begins.value_or(now - std::chrono::hours(1)),
          options.ends.value_or(now + std::chrono::days(options.days))};
}

bool is_address(const std::string& host) {
  std::array<unsigned char, 16> bytes{};
  return ::inet_pton(AF_INET, host.c_str(), bytes.data()) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), bytes.data()) == 1;
}

bool is_host_name(const std::string& host) {
  const auto allowed = [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_'; };
  return !host.empty() && host.size() <= 253 && std::ranges::all_of(host, allowed);
}

/// Returns "DNS:alpha,IP:10.0.0.1", the format of OpenSSL's subjectAltName (man x509v3_config).
std::string alternative_names(const KeySetOptions& options) {
  std::set<std::string> hosts(options.hosts.begin(), options.hosts.end());
  std::array<char, 256> here{};
  if (::gethostname(here.data(), here.size() - 1) == 0 && is_host_name(here.data())) hosts.insert(here.data());
  hosts.insert({"localhost", "127.0.0.1"});
  std::string names;
  for (const std::string& host : hosts) {
    if (!is_address(host) && !is_host_name(host)) {
      throw JobError("host \"" + host + "\" is neither a host name nor an address");
    }
    names += (names.empty() ? "" : ",") + std::string(is_address(host) ? "IP:" : "DNS:") + host;
  }
  return names;
}

KeyHandle new_key() {
  KeyHandle key(EVP_EC_gen("P-256"));
  openssl_require(key != nullptr, "making a key");
  return key;
}

void add_extension(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const ExtensionHandle extension(X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str()));
  openssl_require(extension && X509_add_ext(certificate, extension.get(), -1) == 1, "making a certificate");
}

/// Sets the serial number, a positive number with 127 random bits.
void set_serial(X509* certificate) {
  std::array<unsigned char, 16> bytes{};
  openssl_require(RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) == 1, "drawing random bits");
  bytes[0] = static_cast<unsigned char>((bytes[0] & 0x7fu) | 0x40u);
  BIGNUM* const number = BN_bin2bn(bytes.data(), static_cast<int>(bytes.size()), nullptr);
  const bool done = number != nullptr && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate)) != nullptr;
  BN_free(number);
  openssl_require(done, "making a certificate");
}

/// Returns a certificate for `key`, still without extensions and signature.
CertificateHandle draft(const char* name, EVP_PKEY* key, X509_NAME* issuer, const Validity& validity) {
  CertificateHandle certificate(X509_new());
  openssl_require(certificate != nullptr, "making a certificate");
  X509* const draft = certificate.get();
  set_serial(draft);
  X509_NAME* const subject = X509_get_subject_name(draft);
  const auto* const text = reinterpret_cast<const unsigned char*>(name);
  const bool done = X509_set_version(draft, X509_VERSION_3) == 1 &&
                    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, text, -1, -1, 0) == 1 &&
                    X509_set_issuer_name(draft, issuer == nullptr ? subject : issuer) == 1 &&
                    ASN1_TIME_set(X509_getm_notBefore(draft), validity.begins.time_since_epoch().count()) != nullptr &&
                    ASN1_TIME_set(X509_getm_notAfter(draft), validity.ends.time_since_epoch().count()) != nullptr &&
                    X509_set_pubkey(draft, key) == 1;
  openssl_require(done, "making a certificate");
  return certificate;
}

void sign(X509* certificate, EVP_PKEY* key) {
  openssl_require(X509_sign(certificate, key, EVP_sha256()) > 0, "signing a certificate");
}

CertificateHandle new_authority(EVP_PKEY* key, const Validity& validity) {
  CertificateHandle certificate = draft("maestro job authority", key, nullptr, validity);
  add_extension(certificate.get(), certificate.get(), NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
  add_extension(certificate.get(), certificate.get(), NID_key_usage, "critical,keyCertSign,cRLSign");
  add_extension(certificate.get(), certificate.get(), NID_subject_key_identifier, "hash");
  sign(certificate.get(), key);
  return certificate;
}

CertificateHandle new_certificate(EVP_PKEY* key, const Signer& signer, const std::string& names,
                                  const Validity& validity) {
  CertificateHandle certificate = draft("maestro process", key, X509_get_subject_name(signer.certificate), validity);
  add_extension(certificate.get(), signer.certificate, NID_basic_constraints, "critical,CA:FALSE");
  add_extension(certificate.get(), signer.certificate, NID_key_usage, "critical,digitalSignature");
  add_extension(certificate.get(), signer.certificate, NID_ext_key_usage, "serverAuth,clientAuth");
  add_extension(certificate.get(), signer.certificate, NID_subject_key_identifier, "hash");
  add_extension(certificate.get(), signer.certificate, NID_authority_key_identifier, "keyid:always");
  add_extension(certificate.get(), signer.certificate, NID_subject_alt_name, names);
  sign(certificate.get(), signer.key);
  return certificate;
}

template <class Write>
std::string pem_of(Write write) {
  const BioHandle memory(BIO_new(BIO_s_mem()));
  openssl_require(memory && write(memory.get()) == 1, "writing keys");
  char* text = nullptr;
  const long size = BIO_get_mem_data(memory.get(), &text);
  return {text, static_cast<std::size_t>(size)};
}

std::string pem_of(X509* certificate) {
  return pem_of([&](BIO* memory) { return PEM_write_bio_X509(memory, certificate); });
}

std::string pem_of(EVP_PKEY* key) {
  return pem_of(
      [&](BIO* memory) { return PEM_write_bio_PKCS8PrivateKey(memory, key, nullptr, nullptr, 0, nullptr, nullptr); });
}

/// Removes the written files unless they are kept (KS-2).
class NewFiles {
 public:
  NewFiles() = default;
  NewFiles(const NewFiles&) = delete;
  NewFiles& operator=(const NewFiles&) = delete;
  ~NewFiles() {
    for (const auto& path : written_) ::unlink(path.c_str());
  }

  void write(const std::filesystem::path& path, const std::string& text) {
    const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!file) throw JobError(system_error("cannot write", path, errno));
    written_.push_back(path);
    if (::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
      throw JobError(system_error("cannot write", path, errno));
    }
  }
  void keep() { written_.clear(); }

 private:
  std::vector<std::filesystem::path> written_;
};

void make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  const bool there = std::filesystem::exists(folder, error);
  if (there && !std::filesystem::is_directory(folder, error)) throw JobError(folder.string() + " is not a folder");
  if (there && !std::filesystem::is_empty(folder, error) && !error) {
    throw JobError(folder.string() + " is not empty; name a new folder, or remove this one first");
  }
  if (!error && folder.has_parent_path()) std::filesystem::create_directories(folder.parent_path(), error);
  if (error) throw JobError("cannot make folder " + folder.string() + ": " + error.message());
  const bool made = there || ::mkdir(folder.c_str(), 0700) == 0;
  if (!made || ::chmod(folder.c_str(), 0700) != 0) throw JobError(system_error("cannot make folder", folder, errno));
}

}  // namespace

void make_key_set(const std::filesystem::path& folder, const KeySetOptions& options) {
  const Validity validity = validity_of(options);
  const std::string names = alternative_names(options);
  const KeyHandle authority_key = new_key();
  const CertificateHandle authority = new_authority(authority_key.get(), validity);
  const KeyHandle key = new_key();
  const CertificateHandle certificate =
      new_certificate(key.get(), {authority.get(), authority_key.get()}, names, validity);

  make_folder(folder);
  NewFiles files;
  files.write(folder / "token", random_token() + "\n");
  files.write(folder / "node.key", pem_of(key.get()));
  files.write(folder / "node.pem", pem_of(certificate.get()));
  files.write(folder / "ca.pem", pem_of(authority.get()));
  if (options.keep_authority) files.write(folder / "ca.key", pem_of(authority_key.get()));
  files.keep();
}

std::string random_token() {
  std::array<unsigned char, 32> bytes{};
  openssl_require(RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) == 1, "drawing random bits");
  constexpr std::string_view digits = "0123456789abcdef";
  std::string token;
  for (const unsigned char byte : bytes) {
    token += digits[byte >> 4u];
    token += digits[byte & 15u];
  }
  return token;
}

}  // namespace maestro
