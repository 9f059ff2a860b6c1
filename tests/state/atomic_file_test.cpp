#include "runtime/state/atomic_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <vector>

#include "tests/data/temp_folder.hpp"
#include "tests/state/one_line.hpp"

namespace maestro {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::vector<std::string> entries_of(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
  return names;
}

/// The system refuses to let files grow beyond `bytes`, as a full disk does, while this lives.
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

TEST(AtomicFile, the_old_content_stays_until_commit_AF1) {
  const TempFolder folder;
  const auto target = folder.write("a.txt", "old");
  Result<AtomicFile> file = AtomicFile::create(target);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->write("new").ok());
  EXPECT_EQ(contents_of(target), "old");
  ASSERT_TRUE(file->commit().ok());
  EXPECT_EQ(contents_of(target), "new");
}

TEST(AtomicFile, without_commit_nothing_is_left_AF2) {
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

TEST(Checksum, is_the_published_xxh3_128_whatever_the_pieces) {
  EXPECT_EQ(checksum_of(""), "99aa06d3014798d86001c324468d497f");  // xxhash's own sanity table, XXH3_128, seed 0
  const std::string text(300000, 'q');
  Checksum pieces;
  pieces.add(std::as_bytes(std::span(text).first(7)));
  pieces.add(std::as_bytes(std::span(text).subspan(7)));
  EXPECT_EQ(pieces.text(), checksum_of(text));
}

}  // namespace
}  // namespace maestro
