// SPDX-License-Identifier: Apache-2.0
#include "actors/rpc/openssl_handles.hpp"

#include <openssl/err.h>

#include "runtime/core/result.hpp"

namespace maestro {

std::string openssl_error() {
  const unsigned long code = ERR_peek_last_error();
  ERR_clear_error();
  const char* const text = code == 0 ? nullptr : ERR_reason_error_string(code);
  return text == nullptr ? "unknown error" : text;
}

void openssl_require(bool done, const char* what) {
  if (!done) throw JobError(std::string(what) + ": " + openssl_error(), ErrorCode::internal);
}

}  // namespace maestro
