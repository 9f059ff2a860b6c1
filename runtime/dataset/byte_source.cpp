// SPDX-License-Identifier: Apache-2.0
#include "runtime/dataset/byte_source.hpp"

#include <archive.h>
#include <archive_entry.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "runtime/core/printable.hpp"
#include "runtime/core/utf8.hpp"

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

Result<ByteSource> ByteSource::open(const std::filesystem::path& file, bool raw, std::int64_t from) {
  Result<FileDescriptor> descriptor = open_for_reading(file);
  if (!descriptor) return descriptor.error();
  if (::lseek(descriptor->get(), from, SEEK_SET) < 0) return system_error("cannot read", file, errno);
  ByteSource source(file, std::unique_ptr<archive, Close>(archive_read_new()));
  source.descriptor_ = *std::move(descriptor);
  source.from_ = from;
  archive* reader = source.archive_.get();
  if (reader == nullptr) return Error{ErrorCode::unavailable, "not enough memory to read " + printable(file.string())};
  archive_read_support_filter_all(reader);
  if (raw) {
    archive_read_support_format_raw(reader);
    archive_read_support_format_empty(reader);
  } else {
    archive_read_support_format_tar(reader);
  }
  if (archive_read_open_fd(reader, source.descriptor_.get(), block_bytes) != ARCHIVE_OK) return source.failed();
  return source;
}

Result<ByteSource> ByteSource::open_raw(const std::filesystem::path& file) {
  Result<ByteSource> source = open(file, true, 0);
  if (!source) return source;
  if (auto member = source->next_member(); !member) return member.error();
  return source;
}

Result<ByteSource> ByteSource::open_tar(const std::filesystem::path& file, std::int64_t position) {
  return open(file, false, position);
}

std::optional<std::int64_t> ByteSource::position() const {
  if (archive_filter_code(archive_.get(), 0) != ARCHIVE_FILTER_NONE) return std::nullopt;
  return from_ + archive_read_header_position(archive_.get());
}

Result<std::string> ByteSource::read_all() {
  std::string content;
  for (std::size_t step = std::min<std::uint64_t>(bytes_, block_bytes) + 1;;) {
    const std::size_t before = content.size();
    content.resize(before + step);
    const Result<std::size_t> got = read(std::span(content).subspan(before));
    if (!got) return got.error();
    content.resize(before + *got);
    if (*got < step) return content;
    step = std::max(step, content.size());
  }
}

Result<std::optional<std::string>> ByteSource::next_member() {
  in_member_ = false;
  for (archive_entry* entry = nullptr;;) {
    const int status = archive_read_next_header(archive_.get(), &entry);
    if (status == ARCHIVE_EOF) return std::optional<std::string>();
    if (status < ARCHIVE_WARN) return failed();
    if (archive_entry_filetype(entry) != AE_IFREG) continue;
    in_member_ = true;
    bytes_ = static_cast<std::uint64_t>(std::max<la_int64_t>(archive_entry_size(entry), 0));
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

TextStreamBuffer::TextStreamBuffer(ByteSource source) : source_(std::move(source)), buffer_(block_bytes) {}

Result<std::unique_ptr<TextStreamBuffer>> TextStreamBuffer::open(const std::filesystem::path& file) {
  Result<ByteSource> source = ByteSource::open_raw(file);
  if (!source) return source.error();
  return std::make_unique<TextStreamBuffer>(*std::move(source));
}

TextStreamBuffer::int_type TextStreamBuffer::underflow() {
  const Result<std::size_t> got = source_.read(buffer_);
  if (!got) error_ = got.error();
  const std::string_view text(buffer_.data(), got ? *got : 0);
  const std::string_view content = std::exchange(begun_, true) ? text : without_mark(text);
  mark_ += text.size() - content.size();
  if (content.empty()) return traits_type::eof();
  setg(buffer_.data(), buffer_.data() + (text.size() - content.size()), buffer_.data() + text.size());
  return traits_type::to_int_type(*gptr());
}

}  // namespace maestro
