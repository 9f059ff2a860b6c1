// SPDX-License-Identifier: Apache-2.0
#include "runtime/files/checksum.hpp"

#include <unistd.h>
#include <xxhash.h>

#include <array>
#include <cerrno>
#include <new>
#include <vector>

#include "runtime/files/posix_file.hpp"

namespace maestro {

void Checksum::Free::operator()(XXH3_state_s* state) const {
  XXH3_freeState(state);
}

Checksum::Checksum() : state_(XXH3_createState()) {
  if (state_ == nullptr || XXH3_128bits_reset(state_.get()) != XXH_OK) throw std::bad_alloc();
}

void Checksum::add(std::span<const std::byte> bytes) {
  if (!bytes.empty()) (void)XXH3_128bits_update(state_.get(), bytes.data(), bytes.size());  // fails only for null input
}

std::string Checksum::text() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_.get()));
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : canonical.digest) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

std::string checksum_of(std::string_view text) {
  Checksum checksum;
  checksum.add(std::as_bytes(std::span(text)));
  return checksum.text();
}

Result<std::string> checksum_of_file(const std::filesystem::path& path) {
  Result<FileDescriptor> file = open_for_reading(path);
  if (!file) return file.error();
  Checksum checksum;
  std::vector<std::byte> piece(std::size_t{1} << 20);
  for (;;) {
    const ssize_t got = read(file->get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error("cannot read", path, errno);
    if (got == 0) return checksum.text();
    checksum.add(std::span(piece).first(static_cast<std::size_t>(got)));
  }
}

}  // namespace maestro
