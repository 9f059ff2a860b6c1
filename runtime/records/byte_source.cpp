// SPDX-License-Identifier: Apache-2.0
#include "runtime/records/byte_source.hpp"

#include <archive.h>
#include <archive_entry.h>

#include "runtime/core/input_file.hpp"
#include "runtime/core/printable.hpp"

namespace maestro {

namespace {

constexpr std::size_t block_bytes = std::size_t{1} << 18;

}  // namespace

void ByteSource::Close::operator()(archive* opened) const {
  archive_read_free(opened);
}

Error ByteSource::failed() const {
  const char* reason = archive_error_string(archive_.get());
  return {ErrorCode::corrupt,
          "cannot read " + printable(file_.string()) + ": " + (reason == nullptr ? "damaged" : printable(reason))};
}

Result<ByteSource> ByteSource::open(const std::filesystem::path& file, bool raw) {
  if (const Status regular = check_readable_kind(file); !regular) return regular.error();
  ByteSource source(file, std::unique_ptr<archive, Close>(archive_read_new()));
  archive* reader = source.archive_.get();
  if (reader == nullptr) return Error{ErrorCode::unavailable, "not enough memory to read " + printable(file.string())};
  archive_read_support_filter_all(reader);
  if (raw) {
    archive_read_support_format_raw(reader);
    archive_read_support_format_empty(reader);
  } else {
    archive_read_support_format_tar(reader);
  }
  if (archive_read_open_filename(reader, file.c_str(), block_bytes) != ARCHIVE_OK) return source.failed();
  return source;
}

Result<ByteSource> ByteSource::open_raw(const std::filesystem::path& file) {
  Result<ByteSource> source = open(file, true);
  if (!source) return source;
  if (auto member = source->next_member(); !member) return member.error();
  return source;
}

Result<ByteSource> ByteSource::open_tar(const std::filesystem::path& file) {
  return open(file, false);
}

Result<std::optional<std::string>> ByteSource::next_member() {
  in_member_ = false;
  for (archive_entry* entry = nullptr;;) {
    const int status = archive_read_next_header(archive_.get(), &entry);
    if (status == ARCHIVE_EOF) return std::optional<std::string>();
    if (status < ARCHIVE_WARN) return failed();
    if (archive_entry_filetype(entry) != AE_IFREG) continue;
    in_member_ = true;
    const char* name = archive_entry_pathname(entry);
    return std::optional<std::string>(name == nullptr ? "" : name);
  }
}

Result<std::size_t> ByteSource::read(std::span<char> bytes) {
  std::size_t filled = 0;
  while (in_member_ && filled < bytes.size()) {
    const la_ssize_t got = archive_read_data(archive_.get(), bytes.data() + filled, bytes.size() - filled);
    if (got < 0) return failed();
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  return filled;
}

}  // namespace maestro
