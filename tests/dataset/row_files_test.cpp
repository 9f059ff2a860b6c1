// SPDX-License-Identifier: Apache-2.0
#include "runtime/dataset/row_files.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/data/tar_bytes.hpp"
#include "tests/data/temp_folder.hpp"

namespace maestro {
namespace {

class RowFiles : public ::testing::Test {
 protected:
  /// Returns "kind: where=content ..." for a file, or its error, without the folder's name.
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

TEST_F(RowFiles, name_and_first_character_decide_what_a_file_holds) {  // KF-1
  EXPECT_EQ(rows("{\"a\": 1}\n\n{\"a\": 2}"), "JSON Lines: f:1={\"a\": 1} f:3={\"a\": 2}");
  EXPECT_EQ(rows("[\n {\"a\": 1}, {\"a\": 2}]"), "JSON list: f: row 1={\"a\":1} f: row 2={\"a\":2}");
  EXPECT_EQ(rows("plain [ text"), "text: f=plain [ text (text)");
  EXPECT_EQ(rows(""), "text:");
  EXPECT_EQ(rows("{'a': 1}"), "JSON Lines: f:1={'a': 1}");
  EXPECT_TRUE(rows("[link](there)").starts_with("JSON list: ERROR f:1 is not valid JSON: parse error at column 2"))
      << rows("[link](there)");
  for (const char* name : {"f.jsonl", "f.JSONL", "f.ndjson", "f.json", "f.jsonl.gz", "f.json.zst"}) {
    EXPECT_EQ(rows("// {\"a\": 1}", name), std::string("JSON Lines: ") + name + ":1=// {\"a\": 1}");
    EXPECT_EQ(rows("", name), "JSON Lines:");
  }
  EXPECT_EQ(rows("[1]\n[2]", "f.jsonl"), "JSON Lines: f.jsonl:1=[1] f.jsonl:2=[2]");
  EXPECT_EQ(rows("[{\"a\": 1}]", "f.jsonl"), "JSON list: f.jsonl: row 1={\"a\":1}");
  EXPECT_TRUE(rows("a,b\n1,2", "f.csv").starts_with("a table: ERROR f.csv:1: a table (.csv) is not read; convert it"));
  EXPECT_TRUE(rows("a\tb", "f.tsv.gz").starts_with("a table: ERROR f.tsv.gz:1: a table (.tsv) is not read"));
}

TEST_F(RowFiles, files_that_the_user_calls_texts_are_texts) {
  for (const char* name : {"a.jsonl", "a.csv", "a.txt"}) {
    EXPECT_EQ(kind_of_rows(folder_.write(name, "[x]"), true).value_or_throw(), RowFileKind::text) << name;
  }
  EXPECT_EQ(kind_of_rows(folder_.write("a.txt", std::string("a\0b", 3)), true).value_or_throw(), RowFileKind::binary);
}

TEST_F(RowFiles, a_byte_order_mark_is_skipped) {
  const std::string mark = "\xef\xbb\xbf";
  EXPECT_EQ(rows(mark + "{\"a\": 1}\n" + mark + "{\"a\": 2}").substr(0, 19), "JSON Lines: f:1={\"a");
  EXPECT_EQ(rows(mark + "[{\"a\": 1}]"), "JSON list: f: row 1={\"a\":1}");
  EXPECT_EQ(rows(mark + "text"), "text: f=text (text)");
  EXPECT_EQ(rows(mark), "text:");
  EXPECT_EQ(rows(mark, "f.jsonl"), "JSON Lines:");
  EXPECT_EQ(rows(tar_of({{"1.txt", mark + "text"}})), "WebDataset: f: 1=text (text)");
}

TEST_F(RowFiles, what_is_not_utf_8_is_named_with_the_way_to_convert_it) {
  using namespace std::string_literals;
  const std::string wide16 = "UTF-16 or UTF-32: ERROR f is UTF-16; convert it to UTF-8 (iconv -f UTF-16 -t UTF-8)";
  EXPECT_EQ(rows("\xff\xfe{\0\"\0"s), wide16);
  EXPECT_EQ(rows("\xfe\xff\0{\0\""s), wide16);
  EXPECT_EQ(rows("{\0\"\0a\0\"\0:\0 \0"s), wide16);
  EXPECT_EQ(rows("\0H\0e\0l\0l\0o\0\n"s), wide16);
  EXPECT_TRUE(rows("\xff\xfe\0\0{\0\0\0"s).find("f is UTF-32;") != std::string::npos);
  EXPECT_TRUE(rows("{\0\0\0a\0\0\0b\0\0\0"s).find("f is UTF-32;") != std::string::npos);
  EXPECT_EQ(rows("caf\xe9"),
            "binary: ERROR f is not text in UTF-8 from byte 3 on; convert it to UTF-8 (iconv -f LATIN1 -t UTF-8, if it "
            "is Latin-1)");
  EXPECT_EQ(rows("a\0b"s),
            "binary: ERROR f is not text (UTF-8), JSON, Parquet or a tar archive; convert other tables to JSON Lines");
  EXPECT_EQ(rows("{\"a\": \"\xe9\"}", "f.jsonl").substr(0, 24), "JSON Lines: f.jsonl:1={\"");  // names the row
}

TEST_F(RowFiles, a_folder_of_source_code_may_hold_json_documents) {
  const auto looks = [&](const std::string& content, const char* name) {
    const std::filesystem::path file = folder_.write(name, content);
    return looks_like_rows(file, kind_of_rows(file).value_or_throw());
  };
  EXPECT_FALSE(looks("{\n \"a\": 1\n}\n", "package.json"));
  EXPECT_FALSE(looks("[1, 2]", "a.json"));
  EXPECT_FALSE(looks("[link](there)", "README.md"));
  EXPECT_FALSE(looks("text", "a.txt"));
  EXPECT_TRUE(looks("{\"a\": NaN},\n", "a.json"));
  EXPECT_TRUE(looks("[\n {\"a\": 1}\n]", "a.json"));
  EXPECT_TRUE(looks("text", "a.jsonl"));
}

TEST_F(RowFiles, readers_of_json_name_a_file_of_another_kind) {
  const auto refusal = [&](const char* name, const std::string& content) {
    const Status taken = check_is_json(folder_.write(name, content), "prompts");
    return taken ? "accepted" : without_folder(taken.error().message);
  };
  EXPECT_EQ(refusal("a.jsonl", "{}"), "accepted");
  EXPECT_EQ(refusal("a", "PAR1"),
            "a is Parquet, and prompts are read from JSON; convert its rows to JSON Lines, as by pandas: "
            "read_parquet(FILE).to_json(NEW, orient=\"records\", lines=True)");
  EXPECT_EQ(refusal("a", tar_of({{"1.json", "{}"}})),
            "a is WebDataset, and prompts are read from JSON; convert its rows to JSON Lines");
}

TEST_F(RowFiles, members_of_an_archive_with_the_same_stem_are_a_row) {
  EXPECT_EQ(rows(tar_of({{"a/1.json", "{}"}, {"a/2.txt", "two"}, {"README", "x"}})),
            "WebDataset: f: a/1={} f: a/2=two (text)");
  EXPECT_EQ(rows(tar_of({{"1.json", "{}"}, {"1.jpg", "x"}})),
            "WebDataset: ERROR f: 1.jpg is an image or a sound; data.processor (--model) names the model whose "
            "processor reads "
            "it, or kind = \"llava\" reads conversations "
            "about images");
  EXPECT_EQ(rows(tar_of({{"1.json", "{}"}, {"1.cls", "x"}})),
            "WebDataset: ERROR f: 1.cls: only members .json, .txt, images and sounds are read; leave others out");
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
  EXPECT_NE(found.find("ERROR f: byte 150000 is not text (UTF-8)"), std::string::npos);
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
