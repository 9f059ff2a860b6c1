// SPDX-License-Identifier: Apache-2.0
// Tar archives for tests.
#pragma once

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace maestro {

/// Returns a tar archive of regular files (POSIX.1-1988, ustar).
inline std::string tar_of(const std::vector<std::pair<std::string, std::string>>& members) {
  std::string archive;
  for (const auto& [name, content] : members) {
    std::string header(512, '\0');
    header.replace(0, name.size(), name);
    header.replace(100, 7, "0000644");
    char size[13];
    (void)std::snprintf(size, sizeof size, "%011zo", content.size());
    header.replace(124, 11, size);
    header.replace(136, 11, "00000000000");
    header[156] = '0';
    header.replace(257, 8, std::string("ustar\00000", 8));
    header.replace(148, 8, 8, ' ');
    unsigned sum = 0;
    for (const char c : header) sum += static_cast<unsigned char>(c);
    char check[8];
    (void)std::snprintf(check, sizeof check, "%06o", sum);
    header.replace(148, 7, std::string(check, 7));
    archive += header + content + std::string((512 - content.size() % 512) % 512, '\0');
  }
  return archive + std::string(1024, '\0');
}

}  // namespace maestro
