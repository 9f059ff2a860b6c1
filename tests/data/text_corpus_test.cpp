// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/text/text_corpus.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/core/result.hpp"
#include "tests/data/temp_folder.hpp"

namespace maestro {
namespace {

using testing::AllOf;
using testing::HasSubstr;

DataConfig settings(const std::filesystem::path& path, std::int64_t sequence = 8, double fraction = 0.1) {
  DataConfig config;
  config.path = path.string();
  config.sequence = sequence;
  config.validation_fraction = fraction;
  return config;
}

std::string numbered_text(std::size_t bytes) {
  std::string text;
  for (int line = 0; text.size() < bytes; ++line) text += "line " + std::to_string(line) + "\n";
  text.resize(bytes);
  return text;
}

/// Returns all inputs of a split and the last target, in sample order: the complete text if nothing is held out.
std::string text_of(const TextCorpus& corpus, Split split) {
  std::vector<std::int32_t> all;
  std::vector<std::int32_t> tokens, targets;
  for (std::uint64_t id = 0; id < corpus.samples(split); ++id) {
    tokens.resize(static_cast<std::size_t>(corpus.length(split, SampleId(id))));
    targets.resize(tokens.size());
    corpus.read(split, SampleId(id), tokens, targets);
    all.insert(all.end(), tokens.begin(), tokens.end());
  }
  all.push_back(targets.back());
  return corpus.tokenizer().decode(all);
}

std::string refusal(const DataConfig& config) {
  try {
    (void)open_corpus(config, 1);
  } catch (const JobError& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << "more than one line";
    return error.what();
  }
  return "accepted";
}

TEST(TextCorpus, a_sample_names_the_file_that_it_begins_in) {
  const TempFolder folder;
  folder.write("some/a.txt", std::string(20, 'a'));
  folder.write("some/b.txt", std::string(30, 'b'));
  const TextCorpus corpus(settings(folder.path() / "some", 8, 0));
  EXPECT_EQ(corpus.origin(SampleId(2)), "a.txt, token 16");
  EXPECT_EQ(corpus.origin(SampleId(3)), "b.txt, token 3") << "a newline stands between the files";
  const std::string alone = folder.write("c.txt", numbered_text(400)).string();
  EXPECT_EQ(TextCorpus(settings(alone)).origin(SampleId(1)), alone + ", token 8");
}

TEST(TextCorpus, its_fingerprint_changes_with_text_and_settings_and_not_with_the_place) {
  const TempFolder folder;
  const std::string text = numbered_text(400);
  const auto of = [&](const char* name, const std::string& content, std::int64_t sequence = 8, double fraction = 0.1) {
    return TextCorpus(settings(folder.write(name, content), sequence, fraction)).fingerprint();
  };
  const DataFingerprint plain = of("a.txt", text);
  EXPECT_EQ(of("there/b.txt", text), plain);
  std::string altered = text;
  altered[200] = '#';
  DataFingerprint other = of("c.txt", altered);
  EXPECT_NE(other.at("content"), plain.at("content"));
  other["content"] = plain.at("content");
  EXPECT_EQ(other, plain) << "only the content differs";
  EXPECT_NE(of("a.txt", text + numbered_text(100)).at("training samples"), plain.at("training samples"));
  EXPECT_EQ(of("a.txt", text, 16).at("data.sequence"), "16");
  EXPECT_NE(of("a.txt", text, 8, 0.3).at("data.validation_fraction"), plain.at("data.validation_fraction"));
}

TEST(TextCorpus, files_of_a_folder_are_joined_by_the_end_of_a_text_or_by_a_newline) {
  const TempFolder folder;
  const std::string text(100, 'a');
  for (const char* name : {"text/a.txt", "text/b.txt"}) (void)folder.write(name, text);
  const auto tokenizer = folder.write("tokenizer.json",
                                      R"({"model": {"type": "BPE", "merges": [], "vocab": {"a": 0, "<|endoftext|>": 1}},
          "decoder": {"type": "Fuse"}})");
  DataConfig config = settings(folder.path() / "text", 8, 0);
  const auto joined = [&](const std::string& between) {
    const TextCorpus corpus(config);
    EXPECT_EQ(corpus.tokens(), 201u);
    return text_of(corpus, Split::train).starts_with(text + between + "a");
  };
  EXPECT_TRUE(joined("\n"));
  config.tokenizer = tokenizer.string();
  EXPECT_TRUE(joined("<|endoftext|>"));
}

TEST(TextCorpus, each_file_begins_with_what_the_tokenizers_file_puts_before_a_text) {
  const TempFolder folder;
  for (const char* name : {"text/a.txt", "text/b.txt"}) (void)folder.write(name, "\xef\xbb\xbf" + std::string(20, 'a'));
  DataConfig config = settings(folder.path() / "text", 8, 0);
  config.tokenizer =
      folder
          .write("tokenizer.json",
                 R"({"model": {"type": "BPE", "merges": [], "vocab": {"a": 0, "<s>": 1, "<|endoftext|>": 2}},
          "post_processor": {"type": "TemplateProcessing", "special_tokens": {"<s>": {"ids": [1]}},
                             "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}]},
          "decoder": {"type": "Fuse"}})")
          .string();
  std::vector<std::string> notes;
  const auto open = [&] { return open_corpus(config, 1, [&](const std::string& line) { notes.push_back(line); }); };
  const auto corpus = open();
  const std::string text = std::string(20, 'a');
  EXPECT_EQ(text_of(dynamic_cast<const TextCorpus&>(*corpus), Split::train), "<s>" + text + "<|endoftext|><s>" + text);
  ASSERT_EQ(notes.size(), 1u) << "later windows have none";
  EXPECT_THAT(notes[0], HasSubstr("samples that begin inside a text lack <s>"));
  notes.clear();
  config.begin_of_text = false;
  EXPECT_EQ(text_of(dynamic_cast<const TextCorpus&>(*open()), Split::train), text + "<|endoftext|>" + text);
  EXPECT_TRUE(notes.empty());
}

TEST(TextCorpus, targets_are_the_tokens_that_follow) {
  const TempFolder folder;
  const std::string text = numbered_text(400);
  const TextCorpus corpus(settings(folder.write("a.txt", text)));
  std::vector<std::int32_t> tokens(8), targets(8);
  corpus.read(Split::train, SampleId(3), tokens, targets);
  EXPECT_EQ(corpus.tokenizer().decode(tokens), text.substr(24, 8));
  EXPECT_EQ(corpus.tokenizer().decode(targets), text.substr(25, 8));
}

TEST(TextCorpus, a_file_keeps_its_end_for_validation) {
  const TempFolder folder;
  const std::string text = numbered_text(400);
  const TextCorpus corpus(settings(folder.write("a.txt", text)));
  EXPECT_EQ(text_of(corpus, Split::train), text.substr(0, 360));
  EXPECT_EQ(text_of(corpus, Split::validation), text.substr(360));
}

TEST(TextCorpus, the_last_sample_may_be_shorter) {
  const TempFolder folder;
  const TextCorpus corpus(settings(folder.write("a.txt", numbered_text(100)), 8, 0.0));
  ASSERT_EQ(corpus.train_samples(), 13u);
  EXPECT_EQ(corpus.length(Split::train, SampleId(11)), 8);
  EXPECT_EQ(corpus.length(Split::train, SampleId(12)), 3);
}

TEST(TextCorpus, a_folder_is_read_in_order_of_path_without_what_is_no_source) {
  const TempFolder folder;
  folder.write("b.txt", "bbbb bbbb");
  folder.write("a/z.txt", "zzzz");
  folder.write("a.txt", "aaaa");
  folder.write("a/empty.txt", "");
  folder.write("c/binary.o", std::string_view("x\0y", 3));
  folder.write("c/latin1.txt", "caf\xe9");
  folder.write("c/wide.txt", std::string_view("\xff\xfe"
                                              "a\0",
                                              4));
  folder.write("c/huge.txt", std::string(4'000'001, 'h'));
  for (const char* skipped :
       {".git/x", ".cache/x", "build/x", "build-debug/x", "runs/x", "CMakeFiles/x", "c/build/x"}) {
    folder.write(skipped, "SKIPPED");
  }
  std::filesystem::create_directory_symlink(folder.path(), folder.path() / "loop");
  const TextCorpus corpus(settings(folder.path(), 4, 0.0));
  EXPECT_EQ(text_of(corpus, Split::train), "aaaa\nzzzz\nbbbb bbbb");
  EXPECT_THAT(corpus.describe(), AllOf(HasSubstr("3 text files"), HasSubstr("2 binary"), HasSubstr("1 over 4 MB"),
                                       HasSubstr("0 unreadable"), HasSubstr("1 UTF-16 or UTF-32 (c/wide.txt)")));
}

TEST(TextCorpus, a_folder_names_the_first_three_of_each_kind_that_it_leaves_out) {
  const TempFolder folder;
  folder.write("a.txt", "aaaa aaaa");
  folder.write("config.json", "{}");
  for (const char* name : {"d.csv", "b/c.JSONL", "z.parquet", "e.tsv", "f.ndjson"}) folder.write(name, "1,2\n3,4\n");
  folder.write("x.png", std::string_view("x\0y", 3));
  folder.write("y.log", std::string(3000, 'y'));
  folder.write("buildings/a.txt", "SKIPPED");
  DataConfig config = settings(folder.path(), 4, 0.0);
  config.max_file_mb = 0.002;
  const TextCorpus corpus(config);
  EXPECT_EQ(text_of(corpus, Split::train), "aaaa aaaa\n{}");
  EXPECT_THAT(corpus.describe(),
              HasSubstr(": 2 text files (left out: 1 binary (x.png), 1 over 0.002 MB (y.log), 5 data files (b/c.JSONL, "
                        "d.csv, e.tsv, ...), 0 unreadable, 1 folders (buildings)): "));
  config.max_file_mb = 0.003;
  EXPECT_THAT(TextCorpus(config).describe(), HasSubstr("0 over 0.003 MB,"));
}

TEST(TextCorpus, a_file_of_records_given_directly_is_refused_with_a_way_out) {
  const TempFolder folder;
  const std::string chat = R"([{"id": "1", "conversations": []}])";
  DataConfig rows = settings(folder.write("a.json", chat));
  rows.work_folder = folder.path() / "work";
  EXPECT_THAT(refusal(rows), HasSubstr("a.json: row 1 is a conversation; kind = \"chat\" reads it"));
  for (const char* name : {"a.jsonl", "a.NDJSON", "a.csv", "a.tsv"}) {
    rows.path = folder.write(name, numbered_text(400)).string();
    EXPECT_THAT(refusal(rows), testing::ContainsRegex("a\\.[a-zA-Z]+:1(: a table| is not valid JSON)")) << name;
    DataConfig as_text = settings(rows.path);
    as_text.as_text = true;
    EXPECT_EQ(refusal(as_text), "accepted") << name;
  }
  rows.path = folder.write("a.txt", "[Chapter 1]\n" + numbered_text(400)).string();
  EXPECT_THAT(refusal(rows), AllOf(HasSubstr("a.txt:1 is not valid JSON"), HasSubstr("as_text = true")));
  rows.path = folder.write("a.parquet", "PAR1").string();
  EXPECT_THAT(refusal(rows), HasSubstr("a.parquet: a file of 4 bytes is not Parquet"));
  EXPECT_EQ(refusal(settings(folder.write("a.jsonl.txt", numbered_text(400)))), "accepted");
}

TEST(TextCorpus, a_folder_is_split_by_blocks_so_that_validation_resembles_training) {
  const TempFolder folder;
  folder.write("a.txt", std::string(4000, 'a'));
  folder.write("b.txt", std::string(4000, 'b'));
  const TextCorpus corpus(settings(folder.path()));
  const std::string held_out = text_of(corpus, Split::validation);
  EXPECT_THAT(held_out, AllOf(HasSubstr("aaaa"), HasSubstr("bbbb")));
}

TEST(TextCorpus, a_single_file_of_any_name_and_size_is_read) {
  const TempFolder folder;
  const TextCorpus corpus(settings(folder.write(".hidden", std::string(4'000'001, 'h'))));
  EXPECT_EQ(corpus.tokens(), 4'000'001u);
}

TEST(TextCorpus, a_missing_path_is_named_with_what_does_exist) {
  const TempFolder folder;
  EXPECT_THAT(
      refusal(settings(folder.path() / "no" / "such.txt")),
      AllOf(HasSubstr("such.txt does not exist"), HasSubstr("the part that exists is " + folder.path().string())));
  EXPECT_THAT(refusal(settings("")), HasSubstr("path is missing"));
}

TEST(TextCorpus, an_empty_file_or_folder_is_refused) {
  const TempFolder folder;
  EXPECT_THAT(refusal(settings(folder.path())), HasSubstr("no text in folder"));
  EXPECT_THAT(refusal(settings(folder.write("empty.txt", ""))), HasSubstr("empty.txt is empty"));
}

TEST(TextCorpus, a_binary_file_given_directly_is_refused_with_the_place) {
  const TempFolder folder;
  EXPECT_THAT(refusal(settings(folder.write("a.bin", std::string_view("ab\0c", 4)))),
              AllOf(HasSubstr("a.bin is not a text file"), HasSubstr("NUL byte at byte 2")));
  EXPECT_THAT(refusal(settings(folder.write("b.txt", "caf\xe9"))), HasSubstr("not UTF-8 at byte 3"));
  EXPECT_THAT(refusal(settings(folder.write("c.txt", std::string_view("\xff\xfe"
                                                                      "a\0",
                                                                      4)))),
              HasSubstr("c.txt is not a text file: UTF-16 at byte 0"));
  EXPECT_THAT(refusal(settings("/dev/null")), HasSubstr("neither a file nor a folder"));
}

TEST(TextCorpus, a_text_too_short_for_the_sequence_says_how_much_is_needed) {
  const TempFolder folder;
  EXPECT_THAT(refusal(settings(folder.write("a.txt", numbered_text(100)), 16)),
              AllOf(HasSubstr("a.txt"), HasSubstr("100 tokens"), HasSubstr("170 are needed")));
}

TEST(TextCorpus, a_wrong_sequence_fraction_or_tokenizer_names_the_key) {
  const TempFolder folder;
  const auto path = folder.write("a.txt", numbered_text(400));
  EXPECT_THAT(refusal(settings(path, 1)), testing::StartsWith("[data] sequence = 1"));
  EXPECT_THAT(refusal(settings(path, 8, 1.5)), testing::StartsWith("[data] validation_fraction = 1.5"));
  DataConfig config = settings(path);
  config.tokenizer = "bpe";
  EXPECT_THAT(refusal(config), HasSubstr("\"bytes\""));
}

}  // namespace
}  // namespace maestro
