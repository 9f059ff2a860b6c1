// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/section_digest.hpp"

#include <array>
#include <cstdint>
#include <cstdio>
#include <span>

#include "runtime/checkpoint/checkpoint.hpp"
#include "runtime/files/checksum.hpp"

namespace maestro {

namespace {

std::uint64_t digest_of(const NamedTensor& named) {
  constexpr std::size_t digits = 16;  // 64 bits
  Checksum checksum;
  const std::string name = named.name + '\n' + std::string(name_of(named.tensor.dtype())) + '\n';
  checksum.add(std::as_bytes(std::span(name)));
  checksum.add({named.tensor.raw(), named.tensor.bytes()});
  return std::stoull(checksum.text().substr(0, digits), nullptr, 16);
}

std::string digest_of(const SectionState& state) {
  std::uint64_t sum = state.optimizer_step;
  for (const NamedTensor& tensor : state.parameters) sum += digest_of(tensor);
  for (const NamedTensor& tensor : state.optimizer) sum += digest_of(tensor);
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(sum));
  return text.data();
}

}  // namespace

Result<std::map<std::string, std::string>> section_digests(const std::filesystem::path& checkpoint) {
  const Result<Manifest> manifest = load_checkpoint(checkpoint);
  if (!manifest) return manifest.error();
  std::map<std::string, std::string> digests;
  for (const std::string& section : manifest->sections()) {
    const Result<StoredSection> stored = read_section(checkpoint, section);
    if (!stored) return stored.error();
    digests[section] = digest_of(stored->state);
  }
  return digests;
}

}  // namespace maestro
