// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/input_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstring>
#include <fstream>

namespace maestro {
namespace {

namespace fs = std::filesystem;
using testing::EndsWith;
using testing::HasSubstr;

class InputFile : public testing::Test {
 protected:
  InputFile() {
    std::string pattern = testing::TempDir() + "input-file-XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~InputFile() override { fs::remove_all(folder_); }

  static std::string refusal(const fs::path& path, std::size_t largest = largest_text) {
    const auto text = read_text(path, largest);
    return text ? "accepted: " + *text : text.error().message;
  }

  fs::path folder_;
};

TEST_F(InputFile, what_is_no_regular_file_is_refused_by_its_kind_at_once) {  // IF-1
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(refusal(folder_ / "pipe"), EndsWith("/pipe: it is a FIFO, not a regular file"));
  EXPECT_THAT(refusal(folder_), EndsWith(": it is a folder, not a regular file"));
  EXPECT_THAT(refusal("/dev/zero"), HasSubstr("/dev/zero: it is a device, not a regular file"));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = folder_ / "socket";
  ASSERT_LT(name.size(), sizeof(address.sun_path));
  std::memcpy(address.sun_path, name.c_str(), name.size());
  const FileDescriptor door(socket(AF_UNIX, SOCK_STREAM, 0));
  ASSERT_EQ(bind(door.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_THAT(refusal(name), EndsWith("/socket: it is a socket, not a regular file"));
}

TEST_F(InputFile, a_link_is_what_it_leads_to) {  // IF-1
  fs::create_symlink("/dev/zero", folder_ / "link");
  EXPECT_FALSE(check_readable_kind(folder_ / "link").ok());
  std::ofstream(folder_ / "file") << "text";
  fs::create_symlink(folder_ / "file", folder_ / "good");
  EXPECT_EQ(refusal(folder_ / "good"), "accepted: text");
  EXPECT_TRUE(check_readable_kind(folder_ / "nothing").ok());
}

TEST_F(InputFile, a_byte_order_mark_is_skipped_or_named) {
  using namespace std::string_literals;
  std::ofstream(folder_ / "file") << "\xef\xbb\xbf"
                                  << "text";
  EXPECT_EQ(refusal(folder_ / "file"), "accepted: text");
  for (const std::string& mark : {"\xff\xfe"s, "\xfe\xff"s}) {
    std::ofstream(folder_ / "file") << mark << "t\0"s;
    EXPECT_THAT(refusal(folder_ / "file"),
                EndsWith("/file: it is UTF-16; convert it to UTF-8 (iconv -f UTF-16 -t UTF-8)"));
  }
}

TEST_F(InputFile, a_file_over_its_bound_is_refused) {  // IF-2
  std::ofstream(folder_ / "file") << std::string(2 << 20, 'x');
  EXPECT_THAT(refusal(folder_ / "file", 1 << 20), HasSubstr("larger than 1 MiB"));
  EXPECT_THAT(refusal(folder_ / "file", 2 << 20), testing::StartsWith("accepted"));
}

TEST_F(InputFile, a_path_through_a_file_is_an_invalid_argument) {
  std::ofstream(folder_ / "file") << "text";
  const auto text = read_text(folder_ / "file" / "below");
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().code, ErrorCode::invalid_argument);
}

TEST_F(InputFile, a_missing_file_is_not_found) {
  const auto text = read_text(folder_ / "a\nb");
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().code, ErrorCode::not_found);
  EXPECT_THAT(text.error().message, EndsWith("/a\\nb: No such file or directory"));
}

}  // namespace
}  // namespace maestro
