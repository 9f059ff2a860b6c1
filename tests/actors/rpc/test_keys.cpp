// SPDX-License-Identifier: Apache-2.0
#include "test_keys.hpp"

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <stdexcept>

namespace maestro {
namespace {

template <auto Free>
struct Freed {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;

std::string write_pem(const std::filesystem::path& file, EVP_PKEY* key, X509* certificate) {
  std::FILE* out = std::fopen(file.c_str(), "w");
  if (out == nullptr) throw std::runtime_error("cannot write " + file.string());
  if (key != nullptr) PEM_write_PrivateKey(out, key, nullptr, nullptr, 0, nullptr, nullptr);
  if (certificate != nullptr) PEM_write_X509(out, certificate);
  std::fclose(out);
  return file;
}

Certificate certify(EVP_PKEY* key, const std::string& name, std::chrono::seconds validity) {
  Certificate made(X509_new());
  X509_set_version(made.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(made.get()), static_cast<long>(std::hash<std::string>{}(name)&0xffff) + 1);
  X509_gmtime_adj(X509_getm_notBefore(made.get()), -24 * 3600);
  X509_gmtime_adj(X509_getm_notAfter(made.get()), validity.count());
  X509_set_pubkey(made.get(), key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(made.get()), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  return made;
}

}  // namespace

struct TestAuthority::State {
  std::filesystem::path folder;
  Key key;
  Certificate certificate;
};

TestAuthority::TestAuthority(std::filesystem::path folder) : state_(std::make_unique<State>()) {
  std::filesystem::create_directories(folder);
  state_->folder = std::move(folder);
  state_->key.reset(EVP_EC_gen("P-256"));
  state_->certificate = certify(state_->key.get(), "authority " + state_->folder.string(), std::chrono::hours(1));
  X509* own = state_->certificate.get();
  X509_set_issuer_name(own, X509_get_subject_name(own));
  std::unique_ptr<X509_EXTENSION, Freed<X509_EXTENSION_free>> is_authority(
      X509V3_EXT_conf_nid(nullptr, nullptr, NID_basic_constraints, "critical,CA:TRUE"));
  X509_add_ext(own, is_authority.get(), -1);
  X509_sign(own, state_->key.get(), EVP_sha256());
  write_pem(state_->folder / "authority.pem", nullptr, own);
}

TestAuthority::~TestAuthority() = default;

std::shared_ptr<const KeySet> TestAuthority::keys(const std::string& name, std::chrono::seconds validity) const {
  const Key key(EVP_EC_gen("P-256"));
  const Certificate certificate = certify(key.get(), name, validity);
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(state_->certificate.get()));
  X509_sign(certificate.get(), state_->key.get(), EVP_sha256());
  auto made = std::make_shared<KeySet>();
  made->folder = state_->folder;
  made->certificate = write_pem(state_->folder / (name + ".pem"), nullptr, certificate.get());
  made->key = write_pem(state_->folder / (name + ".key"), key.get(), nullptr);
  made->authority = state_->folder / "authority.pem";
  made->token = "secret of " + name;
  return made;
}

}  // namespace maestro
