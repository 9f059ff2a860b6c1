// SPDX-License-Identifier: Apache-2.0
#include "runtime/files/atomic_file.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <csignal>
#include <vector>

#include "tests/data/temp_folder.hpp"
#include "tests/support/one_line.hpp"

namespace maestro {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::vector<std::string> entries_of(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
  return names;
}

/// Prevents files from growing beyond `bytes` during its lifetime, as a full disk does.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : old_handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &old_limit_);
    const rlimit limit{bytes, old_limit_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &old_limit_);
    std::signal(SIGXFSZ, old_handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit old_limit_{};
  void (*old_handler_)(int);
};

TEST(AtomicFile, commit_replaces_the_old_content_and_reports_size_and_checksum) {
  const TempFolder folder;
  const auto target = folder.write("a.txt", "old");
  const Result<WrittenFile> written = write_file(target, "new content");
  ASSERT_TRUE(written.ok()) << written.error().message;
  EXPECT_EQ(contents_of(target), "new content");
  EXPECT_EQ(written->bytes, 11u);
  EXPECT_EQ(written->checksum, *checksum_of_file(target));
  EXPECT_THAT(entries_of(folder.path()), testing::ElementsAre("a.txt"));
}

TEST(AtomicFile, the_old_content_stays_until_commit_AF1) {  // AF-1
  const TempFolder folder;
  const auto target = folder.write("a.txt", "old");
  Result<AtomicFile> file = AtomicFile::create(target);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->write("new").ok());
  EXPECT_EQ(contents_of(target), "old");
  ASSERT_TRUE(file->commit().ok());
  EXPECT_EQ(contents_of(target), "new");
}

TEST(AtomicFile, without_commit_nothing_is_left_AF2) {  // AF-2
  const TempFolder folder;
  {
    Result<AtomicFile> file = AtomicFile::create(folder.path() / "a.txt");
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->write("half").ok());
    const AtomicFile moved = *std::move(file);
    EXPECT_EQ(entries_of(folder.path()).size(), 1u);
  }
  EXPECT_THAT(entries_of(folder.path()), testing::IsEmpty());
}

TEST(AtomicFile, two_writers_of_one_target_do_not_mix) {
  const TempFolder folder;
  const auto target = folder.path() / "a.txt";
  Result<AtomicFile> first = AtomicFile::create(target);
  Result<AtomicFile> second = AtomicFile::create(target);
  ASSERT_TRUE(first->write("1111").ok() && second->write("22").ok() && first->write("1111").ok());
  ASSERT_TRUE(second->commit().ok());
  EXPECT_EQ(contents_of(target), "22");
  ASSERT_TRUE(first->commit().ok());
  EXPECT_EQ(contents_of(target), "11111111");
}

TEST(AtomicFile, a_full_disk_is_reported_and_keeps_the_old_file) {
  const TempFolder folder;
  const auto target = folder.write("a.txt", "old");
  Result<WrittenFile> written = WrittenFile{};
  {
    const FileSizeLimit limit(1000);
    written = write_file(target, std::string(5000, 'x'));
  }
  ASSERT_FALSE(written.ok());
  EXPECT_THAT(written.error().message, AllOf(HasSubstr(target.string()), HasSubstr("File too large"), IsOneLine()));
  EXPECT_EQ(contents_of(target), "old");
  EXPECT_THAT(entries_of(folder.path()), testing::ElementsAre("a.txt"));
}

TEST(AtomicFile, a_folder_that_cannot_be_written_is_named_with_the_systems_reason) {
  const TempFolder folder;
  const Result<WrittenFile> missing = write_file(folder.path() / "no" / "a.txt", "x");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::not_found);
  EXPECT_THAT(missing.error().message, AllOf(HasSubstr("no/a.txt"), HasSubstr("No such file"), IsOneLine()));
  const Result<WrittenFile> below_file = write_file(folder.write("file", "") / "a.txt", "x");
  ASSERT_FALSE(below_file.ok());
  EXPECT_THAT(below_file.error().message, HasSubstr("Not a directory"));
}

TEST(AtomicFile, a_target_that_is_a_folder_is_refused_and_nothing_is_left) {
  const TempFolder folder;
  std::filesystem::create_directory(folder.path() / "target");
  EXPECT_FALSE(write_file(folder.path() / "target", "x").ok());
  EXPECT_THAT(entries_of(folder.path()), testing::ElementsAre("target"));
}

TEST(AtomicFile, a_pipe_is_written_through_and_stays_a_pipe_AF3) {  // AF-3
  const TempFolder folder;
  const auto pipe = folder.path() / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const FileDescriptor reader(open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  const Result<WrittenFile> written = write_file(pipe, "a report");
  ASSERT_TRUE(written.ok()) << written.error().message;
  EXPECT_EQ(written->bytes, 8u);
  char text[16] = {};
  EXPECT_EQ(read(reader.get(), text, sizeof text), 8);
  EXPECT_STREQ(text, "a report");
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  EXPECT_THAT(entries_of(folder.path()), testing::ElementsAre("pipe"));
}

TEST(AtomicFile, a_pipe_that_no_process_reads_from_is_an_error_and_not_a_wait_AF3) {  // AF-3
  const TempFolder folder;
  const auto pipe = folder.path() / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const Result<WrittenFile> written = write_file(pipe, "a report");
  ASSERT_FALSE(written.ok());
  EXPECT_THAT(written.error().message, AllOf(HasSubstr(pipe.string()), HasSubstr("no process reads"), IsOneLine()));
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
}

TEST(AtomicFile, a_device_is_written_through_and_stays_a_device_AF3) {  // AF-3
  const TempFolder folder;
  const auto device = folder.path() / "null";
  // A device node for this test: a defective program must not replace the machine's.
  if (mknod(device.c_str(), S_IFCHR | 0666, makedev(1, 3)) != 0) GTEST_SKIP() << "only root makes devices";
  const FileDescriptor usable(open(device.c_str(), O_WRONLY | O_CLOEXEC));
  if (!usable) GTEST_SKIP() << "no devices in " << folder.path();
  ASSERT_TRUE(write_file(device, "a report").ok());
  EXPECT_TRUE(std::filesystem::is_character_file(device));
}

TEST(AtomicFile, a_symbolic_link_stays_and_its_target_is_replaced_AF3) {  // AF-3
  const TempFolder folder;
  const auto target = folder.write("there/report.json", "old");
  const auto near = folder.path() / "there" / "near";
  const auto link = folder.path() / "link";
  std::filesystem::create_symlink("report.json", near);
  std::filesystem::create_symlink("there/near", link);
  Result<AtomicFile> file = AtomicFile::create(link);
  ASSERT_TRUE(file.ok()) << file.error().message;
  ASSERT_TRUE(file->write("new").ok());
  EXPECT_EQ(contents_of(target), "old");
  ASSERT_TRUE(file->commit().ok());
  EXPECT_EQ(contents_of(target), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_TRUE(std::filesystem::is_symlink(near));
  EXPECT_THAT(entries_of(folder.path() / "there"), testing::UnorderedElementsAre("report.json", "near"));
}

TEST(AtomicFile, a_link_to_nothing_gets_its_target_and_one_to_itself_or_a_folder_is_refused_AF3) {  // AF-3
  const TempFolder folder;
  std::filesystem::create_symlink("later.txt", folder.path() / "link");
  ASSERT_TRUE(write_file(folder.path() / "link", "x").ok());
  EXPECT_EQ(contents_of(folder.path() / "later.txt"), "x");
  std::filesystem::create_symlink("loop", folder.path() / "loop");
  EXPECT_THAT(write_file(folder.path() / "loop", "x").error().message, HasSubstr("Too many levels"));
  std::filesystem::create_symlink(".", folder.path() / "folder");
  EXPECT_THAT(write_file(folder.path() / "folder", "x").error().message,
              AllOf(HasSubstr((folder.path() / "folder").string()), HasSubstr("Is a directory")));
}

TEST(AtomicFile, an_open_descriptor_of_the_process_is_written_where_it_stands_AF3) {  // AF-3
  const TempFolder folder;
  const auto log = folder.path() / "log";
  const FileDescriptor standing(open(log.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(write(standing.get(), "before ", 7), 7);
  const std::string link = "/proc/self/fd/" + std::to_string(standing.get());
  ASSERT_TRUE(write_file(link, "report").ok());
  ASSERT_EQ(write(standing.get(), " after", 6), 6);
  EXPECT_EQ(contents_of(log), "before report after");
  EXPECT_TRUE(is_written_through(link));
  EXPECT_FALSE(is_written_through(log));
}

TEST(Checksum, is_the_published_xxh3_128_whatever_the_pieces) {
  EXPECT_EQ(checksum_of(""), "99aa06d3014798d86001c324468d497f");  // from xxhash's sanity table, XXH3_128, seed 0
  const std::string text(300000, 'q');
  Checksum pieces;
  pieces.add(std::as_bytes(std::span(text).first(7)));
  pieces.add(std::as_bytes(std::span(text).subspan(7)));
  EXPECT_EQ(pieces.text(), checksum_of(text));
}

}  // namespace
}  // namespace maestro
