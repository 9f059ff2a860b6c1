// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/weights_fingerprint.hpp"

#include <algorithm>
#include <span>
#include <vector>

#include "runtime/files/checksum.hpp"
#include "runtime/files/posix_file.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t head_bytes = std::size_t{1} << 20;
constexpr std::size_t piece_bytes = std::size_t{1} << 12;
constexpr std::size_t pieces = 256;

void add_text(Checksum& checksum, const std::string& text) {
  checksum.add(std::as_bytes(std::span(text)));
}

void add_samples(Checksum& checksum, std::span<const std::byte> content) {
  const auto rest = content.subspan(std::min(content.size(), head_bytes));
  checksum.add(content.first(content.size() - rest.size()));
  if (rest.size() <= pieces * piece_bytes) return checksum.add(rest);
  const std::size_t last = rest.size() - piece_bytes;
  for (std::size_t at = 0; at < pieces; ++at) checksum.add(rest.subspan(last / (pieces - 1) * at, piece_bytes));
}

}  // namespace

Result<std::string> weights_fingerprint(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code failure;
  fs::directory_iterator entries(folder, failure);
  for (; !failure && entries != fs::directory_iterator(); entries.increment(failure)) {
    if (entries->path().extension() == ".safetensors") files.push_back(entries->path());
  }
  if (failure) return system_error("cannot list", folder, failure.value());
  std::ranges::sort(files);
  Checksum checksum;
  for (const fs::path& path : files) {
    const Result<MappedFile> file = MappedFile::open(path);
    if (!file) return file.error();
    add_text(checksum, path.filename().string() + "\n" + std::to_string(file->bytes().size()) + "\n");
    add_samples(checksum, file->bytes());
  }
  return checksum.text();
}

}  // namespace maestro
