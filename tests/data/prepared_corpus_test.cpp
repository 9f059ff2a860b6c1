// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/text/prepared_corpus.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <numeric>

#include "runtime/core/input_file.hpp"
#include "runtime/data/mixed_corpus.hpp"
#include "runtime/dataset/shard_writer.hpp"
#include "tests/data/temp_folder.hpp"

namespace maestro {
namespace {

class Prepared : public ::testing::Test {
 protected:
  /// Writes documents into shards of at most about `shard_tokens` tokens.
  std::filesystem::path write(const std::string& name, const std::vector<Document>& documents,
                              std::uint64_t shard_tokens = 8, std::int64_t vocabulary = 1000) const {
    const std::filesystem::path folder = folder_.path() / name;
    std::filesystem::create_directories(folder);
    PreparedIndex index;
    index.tokenizer = index.tokenizer_fingerprint = "bytes";
    index.vocabulary = vocabulary;
    index.conversations = !documents.front().learned.empty();
    ShardWriter writer({folder, "train", vocabulary, index.conversations, shard_tokens});
    for (const Document& document : documents) writer.add(document, 0).or_throw();
    index.train = writer.finish().value_or_throw();
    write_prepared_index(folder, index).or_throw();
    return folder;
  }
  [[nodiscard]] static DataConfig config(std::int64_t sequence, Packing packing = Packing::automatic,
                                         LongDocuments long_documents = LongDocuments::automatic) {
    DataConfig made;
    made.sequence = sequence;
    made.packing = packing;
    made.long_documents = long_documents;
    return made;
  }
  /// Returns each sample's tokens and targets, as in "1 2>2 3".
  [[nodiscard]] static std::vector<std::string> samples(const Corpus& corpus) {
    std::vector<std::string> made;
    for (std::uint64_t sample = 0; sample < corpus.samples(Split::train); ++sample) {
      const auto length = static_cast<std::size_t>(corpus.length(Split::train, SampleId(sample)));
      std::vector<std::int32_t> tokens(length), targets(length);
      corpus.read(Split::train, SampleId(sample), tokens, targets);
      EXPECT_EQ(corpus.targets(Split::train, SampleId(sample)),
                static_cast<std::int64_t>(length) - std::ranges::count(targets, ignored_target));
      std::string& text = made.emplace_back();
      for (const std::int32_t token : tokens) text += std::to_string(token) + " ";
      text += ">";
      for (const std::int32_t target : targets) text += " " + (target == ignored_target ? "_" : std::to_string(target));
    }
    return made;
  }
  [[nodiscard]] static Document counted(std::int32_t first, std::int32_t count) {
    Document made{std::vector<std::int32_t>(static_cast<std::size_t>(count)), {}};
    std::iota(made.tokens.begin(), made.tokens.end(), first);
    return made;
  }
  [[nodiscard]] static Document chat(std::int32_t first, std::vector<std::uint8_t> learned) {
    Document made = counted(first, static_cast<std::int32_t>(learned.size()));
    made.learned = std::move(learned);
    return made;
  }
  TempFolder folder_;
};

using Texts = std::vector<std::string>;

TEST_F(Prepared, a_folder_whose_documents_are_all_for_validation_is_refused_with_the_key_that_divides_them) {
  const std::filesystem::path folder = write("data", {counted(1, 5)});
  PreparedIndex index = read_prepared_index(folder).value_or_throw();
  std::swap(index.train, index.validation);
  write_prepared_index(folder, index).or_throw();
  try {
    const PreparedCorpus corpus(folder, config(4));
    FAIL() << "accepted";
  } catch (const JobError& error) {
    const std::string message = error.what();
    EXPECT_NE(
        message.find(
            "validation has all samples (1): prepare more documents, or prepare with another validation_fraction"),
        std::string::npos)
        << message;
  }
}

TEST_F(Prepared, notes_name_what_samples_lack) {
  const std::filesystem::path folder = write("a", {counted(1, 9)});
  const auto notes = [&](const std::map<std::string, std::string>& settings, Packing packing = Packing::stream) {
    PreparedIndex index = read_prepared_index(folder).value_or_throw();
    index.settings = settings;
    write_prepared_index(folder, index).or_throw();
    DataConfig of = config(4, packing, LongDocuments::cut);
    of.kind = DataKind::prepared;
    of.path = folder.string();
    std::string made;
    (void)open_corpus(of, 1, [&](const std::string& line) { made += line + "\n"; });
    return made;
  };
  const std::string lacks =
      "data: samples that begin inside a document lack <s>, which the tokenizer puts before a text; with "
      "packing = \"documents\" and long = \"cut\" each sample is the beginning of a document\n";
  EXPECT_EQ(notes({{"begin of text", "<s>"}, {"validation", "0"}}), lacks);
  EXPECT_EQ(notes({{"begin of text", "<s>"}, {"validation", "0"}}, Packing::documents), "");
  EXPECT_EQ(notes({{"begin of text", ""}, {"validation", "0"}}), "");
  EXPECT_EQ(notes({{"begin of text", ""}, {"validation", "0.01"}}),
            "data: validation is skipped: " + folder.string() + " has no validation document\n");
  std::filesystem::create_directories(folder / "tokenizer");
  std::ofstream(folder / "tokenizer/tokenizer.json")
      << R"({"model": {"type": "BPE", "merges": [], "vocab": {"a": 0, "<s>": 1}}, "post_processor": {
             "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
             "special_tokens": {"<s>": {"ids": [1]}}}})";
  EXPECT_EQ(notes({}), "data: " + folder.string() +
                           " was prepared without <s>, which its tokenizer puts before a text; prepare it again\n");
}

TEST_F(Prepared, an_index_with_a_number_that_is_not_whole_is_refused_by_its_key) {
  const std::filesystem::path folder = write("a", {counted(1, 5)});
  const std::filesystem::path file = folder / prepared_index_file;
  const std::string text = read_text(file).value_or_throw();
  for (const auto& [key, value] : {std::pair("vocabulary", "1000.5"), std::pair("documents", "1e300"),
                                   std::pair("tokens", "-5"), std::pair("vocabulary", "1000000000000")}) {
    const std::string name = '"' + std::string(key) + "\": ";
    const std::size_t at = text.find(name) + name.size();
    std::string damaged = text;
    damaged.replace(at, text.find_first_of(",\n", at) - at, value);
    std::ofstream(file) << damaged;
    const Result<PreparedIndex> index = read_prepared_index(folder);
    ASSERT_FALSE(index) << key;
    EXPECT_NE(index.error().message.find(std::string(key) + ": expected a whole number from 0 "), std::string::npos)
        << index.error().message;
  }
}

TEST_F(Prepared, a_stream_crosses_documents_and_shards) {
  const PreparedCorpus corpus(write("a", {counted(1, 5), counted(11, 5), counted(21, 4)}, 5), config(4));
  EXPECT_EQ(corpus.index().train.size(), 2U + 1U);
  EXPECT_EQ(samples(corpus), (Texts{"1 2 3 4 > 2 3 4 5", "5 11 12 13 > 11 12 13 14", "14 15 21 22 > 15 21 22 23"}));
  EXPECT_EQ(corpus.origin(SampleId(2)), (folder_.path() / "a/train-00001.safetensors").string() + ", token 3");
}

TEST_F(Prepared, documents_are_samples_of_their_own) {  // PK-1
  const std::filesystem::path folder = write("a", {counted(1, 3), counted(11, 8), counted(21, 2)});
  EXPECT_EQ(samples(PreparedCorpus(folder, config(4, Packing::documents, LongDocuments::cut))),
            (Texts{"1 2 > 2 3", "11 12 13 14 > 12 13 14 15"}));
  EXPECT_EQ(samples(PreparedCorpus(folder, config(4, Packing::documents, LongDocuments::split))),
            (Texts{"1 2 > 2 3", "11 12 13 14 > 12 13 14 15", "15 16 17 > 16 17 18"}));
  EXPECT_EQ(samples(PreparedCorpus(folder, config(4, Packing::documents, LongDocuments::drop))), (Texts{"1 2 > 2 3"}));
}

TEST_F(Prepared, only_what_is_learned_is_a_target_and_samples_without_one_are_left_out) {
  const std::filesystem::path folder =
      write("a", {chat(1, {0, 0, 1, 1, 0}), chat(11, {0, 0, 0, 0, 0, 0, 1, 1}), chat(21, {0, 0, 0, 1, 0, 0, 0, 0, 0})});
  const PreparedCorpus cut(folder, config(4));
  EXPECT_EQ(samples(cut), (Texts{"1 2 3 4 > _ 3 4 _", "21 22 23 24 > _ _ 24 _"}));
  EXPECT_NE(cut.describe().find("2 cut to 4 tokens, 1 left out"), std::string::npos) << cut.describe();
  EXPECT_EQ(samples(PreparedCorpus(folder, config(4, Packing::documents, LongDocuments::split))),
            (Texts{"1 2 3 4 > _ 3 4 _", "15 16 17 > _ 17 18", "21 22 23 24 > _ _ 24 _"}));
}

TEST_F(Prepared, answers_that_a_cut_parts_from_their_end_are_counted) {
  const Document inside = chat(1, {0, 0, 1, 1, 1, 1, 0});
  const Document at_end = chat(11, {0, 0, 1, 1, 1, 0, 0});
  const Document before = chat(21, {0, 1, 1, 0, 0, 1, 1});
  const Document whole = chat(31, {0, 0, 1, 1, 1});
  const auto described = [&](const std::vector<Document>& documents, LongDocuments long_documents) {
    const PreparedCorpus corpus(write("a", documents), config(4, Packing::documents, long_documents));
    const std::string text = corpus.describe();
    return text.substr(text.find(" of up to "));
  };
  EXPECT_EQ(described({inside, at_end, before, whole}, LongDocuments::cut),
            " of up to 4 tokens, 3 cut to 4 tokens (1 of them ends inside of an answer, without its end)");
  EXPECT_EQ(described({inside, inside, whole}, LongDocuments::cut),
            " of up to 4 tokens, 2 cut to 4 tokens (2 of them end inside of an answer, without its end)");
  EXPECT_EQ(described({at_end, before}, LongDocuments::cut), " of up to 4 tokens, 2 cut to 4 tokens");
  EXPECT_EQ(described({inside, whole}, LongDocuments::split), " of up to 4 tokens");
}

TEST_F(Prepared, large_vocabularies_keep_their_tokens) {
  const PreparedCorpus corpus(write("a", {counted(99'990, 5)}, 8, 100'000), config(8));
  EXPECT_EQ(samples(corpus), (Texts{"99990 99991 99992 99993 > 99991 99992 99993 99994"}));
}

TEST_F(Prepared, wrong_settings_and_damaged_folders_are_refused) {
  const std::filesystem::path folder = write("a", {chat(1, {0, 0, 1})});
  EXPECT_THROW(PreparedCorpus(folder, config(4, Packing::stream)), JobError);
  EXPECT_THROW(PreparedCorpus(folder, config(1)), JobError);
  EXPECT_THROW(PreparedCorpus(folder_.path() / "nothing", config(4)), JobError);
  const std::filesystem::path other = write("b", {chat(1, {0, 0, 1}), chat(1, {0, 0, 1})});
  std::filesystem::copy_file(other / "train-00000.safetensors", folder / "train-00000.safetensors",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_THROW(PreparedCorpus(folder, config(4)), JobError);
}

TEST_F(Prepared, a_token_beyond_the_vocabulary_is_an_error_that_names_the_folder) {
  const std::filesystem::path folder = write("a", {counted(998, 5)});
  const PreparedCorpus corpus(folder, config(4));
  std::vector<std::int32_t> tokens(4), targets(4);
  EXPECT_THROW(corpus.read(Split::train, SampleId(0), tokens, targets), std::runtime_error);
}

TEST_F(Prepared, fingerprints_follow_content_and_settings) {
  const DataFingerprint first = PreparedCorpus(write("a", {counted(1, 9)}), config(4)).fingerprint();
  EXPECT_EQ(PreparedCorpus(write("b", {counted(1, 9)}), config(4)).fingerprint(), first);
  EXPECT_NE(PreparedCorpus(write("c", {counted(2, 9)}), config(4)).fingerprint(), first);
  EXPECT_NE(PreparedCorpus(write("a", {counted(1, 9)}), config(3)).fingerprint(), first);
}

TEST_F(Prepared, a_mixture_holds_the_samples_of_its_parts_and_their_weights) {
  std::vector<MixedPart> parts;
  parts.push_back({"one", 3, std::make_unique<PreparedCorpus>(write("a", {counted(1, 9)}), config(4))});
  parts.push_back({"two", 1, std::make_unique<PreparedCorpus>(write("b", {counted(11, 5)}), config(4))});
  const MixedCorpus corpus(std::move(parts));
  EXPECT_EQ(samples(corpus), (Texts{"1 2 3 4 > 2 3 4 5", "5 6 7 8 > 6 7 8 9", "11 12 13 14 > 12 13 14 15"}));
  ASSERT_EQ(corpus.sources().size(), 2U);
  EXPECT_EQ(corpus.sources()[0].samples, 2U);
  EXPECT_EQ(corpus.sources()[0].weight, 3.0);
  EXPECT_THROW((void)corpus.length(Split::train, SampleId(3)), std::out_of_range);
}

TEST_F(Prepared, a_mixture_knows_the_source_of_each_sample_and_its_teachers) {
  std::vector<MixedPart> parts;
  parts.push_back({"one", 3, std::make_unique<PreparedCorpus>(write("a", {counted(1, 9)}), config(4)), {"math"}});
  parts.push_back({"two", 1, std::make_unique<PreparedCorpus>(write("b", {counted(11, 5)}), config(4))});
  const MixedCorpus corpus(std::move(parts));
  EXPECT_EQ(corpus.source(Split::train, SampleId(1)), 0U);
  EXPECT_EQ(corpus.source(Split::train, SampleId(2)), 1U);
  ASSERT_EQ(corpus.teachers().size(), 2U);
  EXPECT_EQ(corpus.teachers()[0].source, "one");
  EXPECT_EQ(corpus.teachers()[0].teachers, (std::vector<std::string>{"math"}));
  EXPECT_TRUE(corpus.teachers()[1].teachers.empty());
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // sanitizers use more memory
/// Returns this process's resident memory in bytes.
std::size_t resident() {
  std::ifstream in("/proc/self/statm");
  std::size_t size = 0, pages = 0;
  in >> size >> pages;
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

TEST_F(Prepared, memory_does_not_grow_with_what_is_read) {  // PK-2
  constexpr std::int64_t tokens = std::int64_t{1} << 28;    // 512 MB, a hole in the file
  const std::filesystem::path folder = write("a", {counted(1, 3)});
  PreparedIndex index = read_prepared_index(folder).value_or_throw();
  index.train.at(0).tokens = static_cast<std::uint64_t>(tokens);
  write_prepared_index(folder, index).or_throw();
  const std::string end = std::to_string(20 + 2 * tokens);
  std::string header = R"({"offsets":{"dtype":"I64","shape":[2],"data_offsets":[0,16]},)"
                       R"("source":{"dtype":"I32","shape":[1],"data_offsets":[16,20]},)"
                       R"("tokens":{"dtype":"U16","shape":[)" +
                       std::to_string(tokens) + R"(],"data_offsets":[20,)" + end + "]}}";
  header.append((8 - header.size() % 8) % 8, ' ');
  const auto length = static_cast<std::uint64_t>(header.size());
  const std::int64_t offsets[2] = {0, tokens};
  const std::filesystem::path shard = folder / index.train[0].file;
  {
    std::ofstream out(shard, std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), sizeof length) << header;
    out.write(reinterpret_cast<const char*>(offsets), sizeof offsets);
  }
  std::filesystem::resize_file(shard, 8 + header.size() + 20 + 2 * static_cast<std::size_t>(tokens));
  const PreparedCorpus corpus(folder, config(65536));
  std::vector<std::int32_t> sample(65536), targets(65536);
  const std::size_t before = resident();
  std::size_t most = before;
  for (std::uint64_t at = 0; at + 1 < corpus.samples(Split::train); ++at) {
    corpus.read(Split::train, SampleId(at), sample, targets);
    most = std::max(most, resident());
  }
  EXPECT_LT(most - before, std::size_t{128} << 20);
}
#endif

}  // namespace
}  // namespace maestro
