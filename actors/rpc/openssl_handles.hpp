// SPDX-License-Identifier: Apache-2.0
// Owning handles of OpenSSL's objects, and its errors as text.
#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>
#include <string>

namespace maestro {

template <auto release>
struct OpenSslRelease {
  template <class Object>
  void operator()(Object* object) const {
    release(object);
  }
};

using CertificateHandle = std::unique_ptr<X509, OpenSslRelease<X509_free>>;
using KeyHandle = std::unique_ptr<EVP_PKEY, OpenSslRelease<EVP_PKEY_free>>;
using BioHandle = std::unique_ptr<BIO, OpenSslRelease<BIO_free_all>>;
using StoreHandle = std::unique_ptr<X509_STORE, OpenSslRelease<X509_STORE_free>>;
using StoreContextHandle = std::unique_ptr<X509_STORE_CTX, OpenSslRelease<X509_STORE_CTX_free>>;
using ExtensionHandle = std::unique_ptr<X509_EXTENSION, OpenSslRelease<X509_EXTENSION_free>>;

/// Returns OpenSSL's text for this thread's last error; clears all errors.
[[nodiscard]] std::string openssl_error();

/// Throws JobError("`what`: OpenSSL's error", internal) unless `done`.
void openssl_require(bool done, const char* what);

}  // namespace maestro
