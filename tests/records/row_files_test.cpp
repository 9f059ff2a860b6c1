// SPDX-License-Identifier: Apache-2.0
#include "runtime/records/row_files.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/data/tar_bytes.hpp"
#include "tests/data/temp_folder.hpp"

namespace maestro {
namespace {

class RowFiles : public ::testing::Test {
 protected:
  /// "kind: where=content ..." of a file, or its error; the folder's name left out.
  [[nodiscard]] std::string rows(const std::string& content, const std::string& name = "f") const {
    const std::filesystem::path file = folder_.write(name, content);
    const RowFileKind kind = kind_of_rows(file).value_or_throw();
    std::string made = std::string(name_of(kind)) + ":";
    const Status read = read_rows(file, kind, [&](Row&& row) {
      made += " " + without_folder(row.where) + "=" + row.content +
              (row.json        ? ""
               : row.continues ? " (text...)"
                               : " (text)");
    });
    return read ? made : made + " ERROR " + without_folder(read.error().message);
  }
  [[nodiscard]] std::string without_folder(std::string text) const {
    const std::string prefix = folder_.path().string() + "/";
    for (auto at = text.find(prefix); at != text.npos; at = text.find(prefix)) text.erase(at, prefix.size());
    return text;
  }
  TempFolder folder_;
};

TEST_F(RowFiles, content_decides_what_a_file_holds) {
  EXPECT_EQ(rows("{\"a\": 1}\n\n{\"a\": 2}"), "JSON Lines: f:1={\"a\": 1} f:3={\"a\": 2}");
  EXPECT_EQ(rows("[\n {\"a\": 1}, {\"a\": 2}]"), "JSON list: f: row 1={\"a\":1} f: row 2={\"a\":2}");
  EXPECT_EQ(rows("plain [ text"), "text: f=plain [ text (text)");
  EXPECT_EQ(rows("{\n \"a\": 1\n}\n"), "text: f={\n \"a\": 1\n}\n (text)");  // a document, no rows
  EXPECT_EQ(rows("[link](there)"), "text: f=[link](there) (text)");
  EXPECT_EQ(rows(""), "text:");
  EXPECT_EQ(rows(std::string("a\0b", 3)),
            "binary: ERROR f is no text (UTF-8), no JSON, no Parquet and no tar; other tables have to be converted "
            "to JSON Lines");
}

TEST_F(RowFiles, members_of_an_archive_with_the_same_stem_are_a_row) {
  EXPECT_EQ(rows(tar_of({{"a/1.json", "{}"}, {"a/2.txt", "two"}, {"README", "x"}})),
            "WebDataset: f: a/1={} f: a/2=two (text)");
  EXPECT_EQ(rows(tar_of({{"1.json", "{}"}, {"1.jpg", "x"}})),
            "WebDataset: ERROR f: 1.jpg is a picture, which has no effect here; kind = \"llava\" reads conversations "
            "about pictures");
  EXPECT_EQ(rows(tar_of({{"1.json", "{}"}, {"1.cls", "x"}})),
            "WebDataset: ERROR f: 1.cls: members .json, .txt and pictures have an effect, others have none; leave "
            "them out");
  EXPECT_EQ(rows(tar_of({{"1.json", "{}"}, {"1.txt", "x"}})),
            "WebDataset: ERROR f: 1 has the members .json and .txt; a row is one of them");
}

TEST_F(RowFiles, a_damaged_archive_is_an_error) {
  std::string archive = tar_of({{"1.json", "{}"}, {"2.json", "{}"}});
  archive.resize(1024 + 512 + 1);  // ends within the content of the second member
  EXPECT_NE(rows(archive).find("ERROR cannot read f: "), std::string::npos) << rows(archive);
}

TEST_F(RowFiles, a_large_text_comes_in_pieces_that_end_behind_a_line_or_a_character) {
  std::string text;
  while (text.size() < 300'000) text += "line " + std::to_string(text.size()) + " \u65e5\u672c\u8a9e\n";
  const std::string unbroken(100'001, 'x');
  for (const std::string& whole : {text, unbroken, unbroken + "\u65e5" + unbroken}) {
    const std::filesystem::path file = folder_.write("large", whole);
    std::string joined;
    std::vector<std::size_t> sizes;
    bool continues = true;
    ASSERT_TRUE(read_rows(file, RowFileKind::text, [&](Row&& row) {
      EXPECT_TRUE(continues);
      continues = row.continues;
      joined += row.content;
      sizes.push_back(row.content.size());
    }));
    EXPECT_FALSE(continues);
    EXPECT_EQ(joined, whole);
    EXPECT_GT(sizes.size(), 1U);
    EXPECT_LE(*std::ranges::max_element(sizes), 65536U);  // RO-1
  }
}

TEST_F(RowFiles, bytes_that_are_no_text_are_named) {
  std::string text(200'000, 'a');
  text[150'000] = '\xff';
  const std::string found = rows(text);
  EXPECT_NE(found.find("ERROR f: byte 150000 is no text (UTF-8)"), std::string::npos);
}

TEST_F(RowFiles, files_of_folders_are_sorted_and_taken_once) {
  folder_.write("b/2.txt", "x");
  folder_.write("b/1.txt", "x");
  folder_.write(".hidden/3.txt", "x");
  const std::filesystem::path one = folder_.path() / "b/1.txt";
  const std::vector<std::filesystem::path> found = row_files({one, folder_.path()});
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0], one);
  EXPECT_EQ(found[1], folder_.path() / "b/2.txt");
  EXPECT_THROW((void)row_files({folder_.path() / "nothing"}), JobError);
}

}  // namespace
}  // namespace maestro
