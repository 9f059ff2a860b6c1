// SPDX-License-Identifier: Apache-2.0
#include "runtime/dataset/tar_rows.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "runtime/core/printable.hpp"
#include "runtime/dataset/byte_source.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t longest_text = std::uint64_t{64} << 20;
constexpr std::uint64_t largest_picture = std::uint64_t{1} << 30;  // bytes of the member
constexpr std::size_t head_bytes = std::size_t{1} << 16;

Error wrong(std::string reason) {
  return {ErrorCode::invalid_argument, std::move(reason)};
}

bool is_medium(std::string_view ending) {
  constexpr std::array<std::string_view, 6> endings{"flac", "jpg", "jpeg", "png", "wav", "webp"};
  const std::string_view last = ending.substr(ending.rfind('.') + 1);  // "jpg" for "0.jpg"
  return std::ranges::find(endings, last) != endings.end();
}

Result<std::string> head_of(ByteSource& tar) {
  std::string head(head_bytes, '\0');
  const Result<std::size_t> got = tar.read(head);
  if (!got) return got.error();
  head.resize(*got);
  return head;
}

/// Adds the current member of `tar` to its row. `where` is the member's name for messages.
Status add_member(ByteSource& tar, const std::string& name, const std::string& where, TarRow& row) {
  const std::string ending = name.substr(row.stem.size() + 1);
  if (is_medium(ending)) {
    Result<std::string> head = head_of(tar);
    if (!head) return head.error();
    row.pictures.push_back({name, tar.position(), tar.bytes(), *std::move(head)});
    return {};
  }
  if (ending != "json" && ending != "txt") {
    return wrong(where + ": only members .json, .txt, images and sounds are read; leave others out");
  }
  if (tar.bytes() > longest_text) return wrong(where + ": the member is longer than 64 MiB");
  Result<std::string> content = tar.read_all();
  if (!content) return content.error();
  (ending == "json" ? row.json : row.text) = *std::move(content);
  return {};
}

}  // namespace

Status read_tar_rows(const fs::path& file, const std::function<Status(TarRow&&)>& sink) {
  Result<ByteSource> tar = ByteSource::open_tar(file);
  if (!tar) return tar.error();
  TarRow row;
  const auto pass = [&]() -> Status {
    if (row.stem.empty()) return {};
    if (row.json || row.text) return sink(std::exchange(row, {}));
    return wrong(printable(file.string() + ": " + row.stem) + " lacks a member .json or .txt");
  };
  for (;;) {
    const Result<std::optional<std::string>> member = tar->next_member();
    if (!member) return member.error();
    if (!*member) return pass();
    const std::string& name = **member;
    const std::size_t base = name.rfind('/') == name.npos ? 0 : name.rfind('/') + 1;
    const std::size_t dot = name.find('.', base);
    if (dot == name.npos || dot == base) continue;
    if (const std::string stem = name.substr(0, dot); stem != row.stem) {
      if (const Status passed = pass(); !passed) return passed;
      row.stem = stem;
    }
    const Status added = add_member(*tar, name, printable(file.string() + ": " + name), row);
    if (!added) return added;
  }
}

Result<std::string> read_tar_image(const fs::path& file, std::int64_t position) {
  Result<ByteSource> tar = ByteSource::open_tar(file, position);
  if (!tar) return tar.error();
  const Result<std::optional<std::string>> member = tar->next_member();
  if (!member) return member.error();
  if (!*member || tar->bytes() > largest_picture) {
    return Error{ErrorCode::corrupt,
                 printable(file.string()) + " does not have a file at byte " + std::to_string(position)};
  }
  return tar->read_all();
}

}  // namespace maestro
