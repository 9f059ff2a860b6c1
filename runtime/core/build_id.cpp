// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/build_id.hpp"

#include <elf.h>
#include <link.h>

#include <cstddef>
#include <cstring>

namespace maestro {

namespace {

constexpr std::size_t padded(std::size_t bytes) {
  return (bytes + 3) / 4 * 4;  // entries of notes are aligned to 4 bytes
}

std::string hex_of(const unsigned char* bytes, std::size_t count) {
  constexpr const char* digits = "0123456789abcdef";
  std::string text;
  for (std::size_t at = 0; at < count; ++at) {
    text += digits[bytes[at] >> 4];
    text += digits[bytes[at] & 15];
  }
  return text;
}

/// Returns the build id among the notes of a segment; empty: none.
std::string find_in(const unsigned char* notes, std::size_t size) {
  ElfW(Nhdr) header;
  for (std::size_t at = 0; at + sizeof(header) <= size;) {
    std::memcpy(&header, notes + at, sizeof(header));
    const std::size_t name = at + sizeof(header);
    const std::size_t content = name + padded(header.n_namesz);
    if (content + header.n_descsz > size) return {};
    const bool of_gnu = header.n_namesz == 4 && std::memcmp(notes + name, "GNU", 4) == 0;
    if (of_gnu && header.n_type == NT_GNU_BUILD_ID) return hex_of(notes + content, header.n_descsz);
    at = content + padded(header.n_descsz);
  }
  return {};
}

/// Reads the first object alone, which is the program.
int read_program(dl_phdr_info* object, std::size_t, void* found) {
  for (ElfW(Half) at = 0; at < object->dlpi_phnum; ++at) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[at];
    if (segment.p_type != PT_NOTE) continue;
    const auto* notes = reinterpret_cast<const unsigned char*>(object->dlpi_addr + segment.p_vaddr);
    auto& id = *static_cast<std::string*>(found);
    if (id.empty()) id = find_in(notes, segment.p_memsz);
  }
  return 1;
}

}  // namespace

std::string build_id() {
  std::string id;
  dl_iterate_phdr(read_program, &id);
  return id;
}

}  // namespace maestro
