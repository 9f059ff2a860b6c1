// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/build_id.hpp"

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

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

struct Places {
  std::mutex mutex;
  std::vector<ElfW(Addr)> addresses{reinterpret_cast<ElfW(Addr)>(&build_id)};  // in the program or in libmaestro.so
};
Places& places() {
  static Places all;
  return all;
}

struct Search {
  std::string id;
  bool program = true;  // the program is the first object
};

bool holds(const dl_phdr_info& object, ElfW(Addr) here) {
  return std::any_of(object.dlpi_phdr, object.dlpi_phdr + object.dlpi_phnum, [&](const ElfW(Phdr) & segment) {
    const ElfW(Addr) begin = object.dlpi_addr + segment.p_vaddr;
    return segment.p_type == PT_LOAD && here >= begin && here - begin < segment.p_memsz;
  });
}

int read_object(dl_phdr_info* object, std::size_t, void* search) {
  auto& found = *static_cast<Search*>(search);
  const auto holds_one = [&](ElfW(Addr) address) { return holds(*object, address); };
  if (!std::exchange(found.program, false) && std::ranges::none_of(places().addresses, holds_one)) return 0;
  for (ElfW(Half) at = 0; at < object->dlpi_phnum; ++at) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[at];
    if (segment.p_type != PT_NOTE) continue;
    const auto* notes = reinterpret_cast<const unsigned char*>(object->dlpi_addr + segment.p_vaddr);
    if (const std::string id = find_in(notes, segment.p_memsz); !id.empty()) {
      found.id += id;
      break;
    }
  }
  return 0;
}

}  // namespace

std::string build_id() {
  Search search;
  const std::lock_guard lock(places().mutex);
  dl_iterate_phdr(read_object, &search);
  return search.id;
}

void add_to_build_id(const void* address) {
  const std::lock_guard lock(places().mutex);
  places().addresses.push_back(reinterpret_cast<ElfW(Addr)>(address));
}

}  // namespace maestro
