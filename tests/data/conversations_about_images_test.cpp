// SPDX-License-Identifier: Apache-2.0
// kind = "llava" without a processor: rows are prepared for patches of one tile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <tuple>

#include "runtime/data/text/prepared_corpus.hpp"
#include "tests/data/tar_bytes.hpp"
#include "tests/data/temp_folder.hpp"
#include "tests/images/image_bytes.hpp"

namespace maestro {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

json turns_of(const std::string& question, const std::string& answer) {
  return {{{"from", "human"}, {"value", question}}, {{"from", "gpt"}, {"value", answer}}};
}

json row_of(const std::string& question, const std::string& answer, const std::vector<std::string>& images = {}) {
  json row{{"conversations", turns_of(question, answer)}};
  if (!images.empty()) row["image"] = images;
  return row;
}

json many_texts(int count) {
  json rows = json::array();
  for (int at = 0; at < count; ++at) rows.push_back(row_of("Number?", std::to_string(at)));
  return rows;
}

std::string png_of(ImageSize size, std::uint8_t red) {
  return *encode_png(plain_image(size, red, 0, 255));
}

class ConversationsAboutImages : public ::testing::Test {
 protected:
  /// Returns a configuration in which all of `rows` are for training.
  DataConfig config(const json& rows = json::array()) {
    DataConfig made;
    made.kind = DataKind::llava;
    made.path = folder_.write("a.json", rows.dump()).string();
    made.validation_path = folder_.write("held.json", json::array({row_of("Q", "A")}).dump()).string();
    made.image_size = 16;
    made.work_folder = (folder_.path() / "work").string();
    return made;
  }
  /// Opens data, and keeps the notes.
  std::unique_ptr<PreparedCorpus> open(const DataConfig& config) {
    notes_.clear();
    auto opened = open_corpus(config, 1, [this](const std::string& line) { notes_.push_back(line); });
    EXPECT_NE(dynamic_cast<PreparedCorpus*>(opened.get()), nullptr);
    return std::unique_ptr<PreparedCorpus>(dynamic_cast<PreparedCorpus*>(opened.release()));
  }
  std::string refusal(const DataConfig& config) {
    try {
      (void)open(config);
    } catch (const JobError& error) {
      return error.what();
    }
    return "accepted";
  }

  TempFolder folder_;
  std::vector<std::string> notes_;
};

/// Returns tokens, targets, pixels and places of a training sample.
auto content_of(const Corpus& corpus, std::uint64_t number) {
  const SampleId id(number);
  const auto length = static_cast<std::size_t>(corpus.length(Split::train, id));
  const auto patches = static_cast<std::size_t>(corpus.pictures(Split::train, id).patches);
  std::vector<std::int32_t> tokens(length), targets(length), places(patches * 3);
  std::vector<float> pixels(patches * static_cast<std::size_t>(corpus.patch_columns()));
  corpus.read(Split::train, id, tokens, targets);
  corpus.read_pictures(Split::train, id, pixels, places);
  return std::tuple(tokens, targets, pixels, places);
}

std::set<std::string> answers_of(const PreparedCorpus& corpus, Split split) {
  std::set<std::string> answers;
  for (std::uint64_t at = 0; at < corpus.samples(split); ++at) answers.insert(corpus.view(split, SampleId(at)).answer);
  return answers;
}

TEST_F(ConversationsAboutImages, are_read_with_their_patches) {
  folder_.write("images/a.png", png_of({32, 16}, 255));
  folder_.write("images/deep/b.png", png_of({16, 32}, 0));
  const auto corpus = open(config(json::array({row_of("<image>\nor <image>?", "b", {"a.png", "deep/b.png"})})));
  const SampleId id(0);
  ASSERT_EQ(corpus->samples(Split::train), 1U);
  ASSERT_EQ(corpus->samples(Split::validation), 1U);
  EXPECT_EQ(corpus->vocabulary(), 257);
  EXPECT_EQ(corpus->patch_columns(), 192);
  EXPECT_EQ(corpus->max_patches(), 4);
  EXPECT_EQ(corpus->picture_grids().largest, (PatchGrid{1, 2})) << "an image's, not the sample's";
  EXPECT_EQ(corpus->picture_grids().rows, 2);
  EXPECT_FALSE(corpus->picture_grids().one_width);
  EXPECT_EQ(corpus->pictures(Split::train, id).images, 2);
  EXPECT_EQ(corpus->targets(Split::train, id), 2);
  EXPECT_FALSE(corpus->has_marks());
  EXPECT_FALSE(corpus->mixes_rows());
  const auto [tokens, targets, pixels, places] = content_of(*corpus, 0);
  EXPECT_EQ(std::ranges::count(tokens, image_token), 4);
  std::vector<std::int32_t> words = tokens;
  std::erase(words, image_token);
  EXPECT_EQ(ByteTokenizer().decode(words), "USER: \nor ?\nASSISTANT: b");
  EXPECT_EQ(std::vector{targets.back()}, corpus->ends());
  EXPECT_EQ(targets.back(), 256);
  EXPECT_EQ(places, (std::vector<std::int32_t>{0, 0, 0, 0, 0, 1, 1, 0, 0, 1, 1, 0}));
  EXPECT_EQ(pixels[0], 1.0f) << "red of the first image";
  EXPECT_EQ(pixels[2 * 192], -1.0f) << "red of the second";
  EXPECT_EQ(pixels[2 * 192 + 128], 1.0f) << "its blue";
  const ConversationView view = corpus->view(Split::train, id);
  EXPECT_EQ(view.question, "or ?");
  EXPECT_EQ(view.answer, "b");
  ASSERT_EQ(view.pictures.size(), 2U);
  EXPECT_EQ(view.pictures[0].path, folder_.path() / "images/a.png");
  EXPECT_EQ(view.pictures[1].path, folder_.path() / "images/deep/b.png");
  EXPECT_EQ(view.prompt.size() + 1, tokens.size()) << "the prompt and one byte of answer";
  EXPECT_EQ(view.patches, 4);
  EXPECT_EQ(corpus->decode(view.prompt, std::vector<std::int32_t>{' ', 'b', 256}), "b");
  EXPECT_THAT(corpus->describe(), HasSubstr("images of 16 pixels in patches of 8"));
}

TEST_F(ConversationsAboutImages, are_prepared_once_and_again_for_other_settings_or_files) {
  folder_.write("images/a.png", png_of({64, 32}, 255));
  DataConfig job = config(json::array({row_of("<image>?", "b", {"a.png"})}));
  const DataFingerprint first = open(job)->fingerprint();
  EXPECT_THAT(notes_, Contains(testing::StartsWith("prepared 2 rows")));
  EXPECT_EQ(open(job)->fingerprint(), first);
  EXPECT_THAT(notes_, testing::Not(Contains(testing::StartsWith("prepared"))));
  std::set<std::string> contents{first.at("data.images")};
  for (const auto& change : std::vector<std::function<void(DataConfig&)>>{
           [](DataConfig& data) { data.patch = 16; }, [](DataConfig& data) { data.image_size = 32; },
           [](DataConfig& data) { data.image_size = 0; }, [](DataConfig& data) { data.max_image_size = 16; }}) {
    DataConfig other = job;
    change(other);
    contents.insert(open(other)->fingerprint().at("data.images"));
    EXPECT_THAT(notes_, Contains(testing::StartsWith("prepared 2 rows")));
  }
  EXPECT_EQ(contents.size(), 5U);
  folder_.write("held.json", json::array({row_of("Q", "other")}).dump());
  EXPECT_EQ(answers_of(*open(job), Split::validation), std::set<std::string>{"other"});
  DataConfig prepared = job;
  prepared.kind = DataKind::prepared;
  prepared.path = (folder_.path() / "work/prepared").string();
  EXPECT_EQ(content_of(*open(prepared), 0), content_of(*open(job), 0)) << "the folder is one of prepared data";
}

TEST_F(ConversationsAboutImages, in_a_list_lines_and_archives_are_the_same_samples) {
  const std::string a = png_of({32, 16}, 255), b = png_of({16, 32}, 7);
  folder_.write("images/a.png", a);
  folder_.write("images/b.png", b);
  const json two = row_of("<image><image>?", "b", {"a.png", "b.png"}), caption = row_of("<image>", "A.", {"b.png"});
  DataConfig job = config();
  const auto opened = [&](const std::filesystem::path& path) {
    job.path = path.string();
    return open(job);
  };
  const auto list = opened(folder_.write("list.json", json::array({two, caption}).dump()));
  const std::vector expected{content_of(*list, 0), content_of(*list, 1)};
  const auto lines = opened(folder_.write("lines.jsonl", two.dump() + "\n" + caption.dump() + "\n"));
  EXPECT_EQ((std::vector{content_of(*lines, 0), content_of(*lines, 1)}), expected);
  folder_.write(
      "tars/0.tar",
      tar_of({{"x/two.0.png", a}, {"x/two.json", row_of("<image><image>?", "b").dump()}, {"x/two.1.png", b}}));
  folder_.write("tars/1.tar", tar_of({{"c.png", b}, {"c.txt", "A."}, {"c.json", R"({"url": "u"})"}}));
  const auto archives = opened(folder_.path() / "tars");
  EXPECT_THAT(notes_, Contains(HasSubstr("the .json next to a caption is not read in 1 row, first ")));
  EXPECT_EQ((std::vector{content_of(*archives, 0), content_of(*archives, 1)}), expected);
  EXPECT_EQ(decode_image(archives->view(Split::train, SampleId(1)).pictures[0]).value_or_throw().height, 32);
}

TEST_F(ConversationsAboutImages, have_the_size_of_an_archive_s_image_in_its_orientation) {
  Image noise{300, 150, std::vector<std::uint8_t>(300 * 150 * 3)};  // its file exceeds the 64 KiB of a head
  std::mt19937 random(7);
  for (std::uint8_t& value : noise.pixels) value = static_cast<std::uint8_t>(random());
  const std::string png = png_with_orientation(*encode_png(noise), 6, true, false);
  const std::string webp = webp_extended(webp_bytes(true, false, noise.size(), noise.pixels), noise.size(), 8, 6);
  ASSERT_GT(std::min(png.size(), webp.size()), std::size_t{1} << 16);
  DataConfig job = config();
  job.path = folder_.write("a.tar", tar_of({{"1.png", png}, {"1.txt", "A"}, {"2.webp", webp}, {"2.txt", "B"}}));
  const auto corpus = open(job);
  EXPECT_EQ(corpus->samples(Split::train), 2U);
  EXPECT_EQ(corpus->picture_grids().rows, 2);
  EXPECT_EQ(corpus->picture_grids().columns, 1) << "300 x 150 pixels are stored, 150 x 300 are upright";
}

TEST_F(ConversationsAboutImages, that_cannot_be_read_are_named) {
  const std::string whole = png_of({16, 16}, 1);
  folder_.write("images/good.png", whole);
  folder_.write("images/short.png", whole.substr(0, 20));
  folder_.write("images/words.png", "these are words");
  const auto reason = [&](const std::vector<std::string>& images, const std::string& question, const char* answer) {
    return refusal(config(json::array({row_of(question, answer, images)})));
  };
  EXPECT_THAT(
      reason({"none.png"}, "<image>", "A"),
      AllOf(testing::Not(HasSubstr("\n")), HasSubstr("a.json: row 1: image "), HasSubstr("none.png: does not exist")));
  EXPECT_THAT(reason({"short.png"}, "<image>", "A"), AllOf(HasSubstr("row 1"), HasSubstr("short.png: truncated")));
  EXPECT_THAT(reason({"words.png"}, "<image>", "A"), AllOf(HasSubstr("row 1"), HasSubstr("words.png: not an image")));
  EXPECT_THAT(reason({"good.png"}, "<image><image>", "A"), HasSubstr("row 1: 2 places for images"));
  EXPECT_THAT(reason({}, "<image>", "A"), HasSubstr("but 0 images"));
  EXPECT_THAT(reason({}, "What?", ""), HasSubstr("messages[1] is an empty answer"));
  DataConfig archive = config();
  const auto refused = [&](const std::vector<std::pair<std::string, std::string>>& members) {
    archive.path = folder_.write("a.tar", tar_of(members)).string();
    return refusal(archive);
  };
  EXPECT_THAT(refused({{"1.txt", "x"}}), HasSubstr("is a text, not a conversation"));
  EXPECT_THAT(refused({{"1.txt", "x"}, {"1.json", row_of("?", "b").dump()}, {"1.png", whole}}),
              HasSubstr("has a caption (.txt) and a conversation (.json)"));
  EXPECT_THAT(refused({{"1.png", whole.substr(0, 20)}, {"1.txt", "x"}}), HasSubstr("a.tar: 1.png: truncated"));
  archive.images = folder_.path().string();
  EXPECT_THAT(refused({{"1.png", whole}, {"1.txt", "x"}}), HasSubstr("are in that archive; remove the key"));
}

TEST_F(ConversationsAboutImages, that_are_bad_are_left_out_and_counted_up_to_the_number_allowed) {
  json rows = many_texts(3);
  for (int at = 0; at < 5; ++at) rows.push_back(row_of("<image>", "A"));
  DataConfig job = config(rows);
  job.max_bad_samples = 4;
  EXPECT_THAT(refusal(job), AllOf(HasSubstr("5 bad rows, more than the limit of 4"), HasSubstr("a.json: row 8")));
  job.max_bad_samples = 5;
  const auto corpus = open(job);
  EXPECT_EQ(corpus->left_out(), 5U);
  EXPECT_EQ(corpus->samples(Split::train), 3U);
  EXPECT_THAT(notes_, Contains(HasSubstr("5 bad rows are left out, the first: ")));
}

TEST_F(ConversationsAboutImages, that_are_repaired_are_counted_by_kind_with_the_first_row) {
  folder_.write("images/a.png", png_of({16, 16}, 1));
  const json hello{{"from", "gpt"}, {"value", "Hi"}}, open_end{{"from", "human"}, {"value", "?"}};
  json begins = row_of("Q", "A"), both = row_of("Q", "A"), system = row_of("Q", "A");
  begins["conversations"].insert(begins["conversations"].begin(), hello);
  both["conversations"].insert(both["conversations"].begin(), hello);
  both["conversations"].push_back(open_end);
  const json told{{"from", "system"}, {"value", "S"}};
  system["conversations"].insert(system["conversations"].begin(), told);
  const auto corpus = open(config(json::array({begins, both, row_of("Q", "A", {"a.png"}), system})));
  EXPECT_THAT(notes_, Contains(AllOf(HasSubstr("answers before the first question are dropped in 2 rows, first "),
                                     HasSubstr("row 1"))));
  EXPECT_THAT(notes_, Contains(AllOf(HasSubstr("the last question, without an answer, is cut in 1 row, first "),
                                     HasSubstr("row 2"))));
  EXPECT_THAT(notes_, Contains(AllOf(HasSubstr("images come before the first question in 1 row"), HasSubstr("row 3"))));
  EXPECT_THAT(notes_, Contains(AllOf(HasSubstr("the system text is kept in 1 row"), HasSubstr("row 4"))));
  EXPECT_EQ(corpus->pictures(Split::train, SampleId(2)).patches, 4);
}

TEST_F(ConversationsAboutImages, are_split_by_their_content) {
  const auto opened = [&](int count) {
    DataConfig job = config(many_texts(count));
    job.validation_path.clear();
    job.validation_fraction = 0.2;
    return open(job);
  };
  const auto first = answers_of(*opened(400), Split::validation);
  EXPECT_NEAR(static_cast<double>(first.size()), 80.0, 40.0) << "five standard deviations";
  const auto later = opened(500);
  EXPECT_TRUE(std::ranges::includes(answers_of(*later, Split::validation), first))
      << "more conversations move none to the other split";
}

TEST_F(ConversationsAboutImages, may_have_rows_for_validation_and_a_folder_of_images) {
  folder_.write("pictures/a.png", png_of({16, 16}, 1));
  DataConfig job = config(json::array({row_of("<image>", "seen", {"a.png"})}));
  EXPECT_THAT(refusal(job), HasSubstr("images/a.png: does not exist"));
  job.images = (folder_.path() / "pictures").string();
  const auto corpus = open(job);
  EXPECT_EQ(answers_of(*corpus, Split::train), std::set<std::string>{"seen"});
  EXPECT_EQ(answers_of(*corpus, Split::validation), std::set<std::string>{"A"});
  job.validation_path = job.path;
  EXPECT_EQ(answers_of(*open(job), Split::validation), std::set<std::string>{"seen"}) << "the same file";
  job.path = folder_.write("none.json", "[]").string();
  EXPECT_THAT(refusal(job), HasSubstr("there is nothing to train on"));
}

TEST_F(ConversationsAboutImages, begin_as_the_tokenizer_s_file_has_it_unless_the_job_says_otherwise) {
  DataConfig job = config(json::array({row_of("Q", "A")}));
  job.tokenizer = folder_
                      .write("tokenizer/tokenizer.json", R"({
      "model": {"type": "BPE", "vocab": {"U": 0, "<s>": 1, "<|endoftext|>": 2}, "merges": [], "unk_token": "U"},
      "added_tokens": [{"id": 1, "content": "<s>", "special": true, "normalized": false}],
      "post_processor": {"type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}})")
                      .string();
  const auto with = open(job);
  const SampleId id(0);
  const std::int32_t first = with->view(Split::train, id).prompt.front();
  const std::int64_t length = with->length(Split::train, id);
  job.begin_of_text = false;
  const auto without = open(job);
  EXPECT_EQ(first, 1);
  EXPECT_EQ(without->view(Split::train, id).prompt.front(), 0);
  EXPECT_EQ(without->length(Split::train, id) + 1, length);
  EXPECT_EQ(without->vocabulary(), 3);
}

TEST_F(ConversationsAboutImages, that_are_long_keep_the_turns_that_fit_with_their_images) {
  folder_.write("images/a.png", png_of({16, 16}, 255));
  folder_.write("images/b.png", png_of({16, 16}, 0));
  json row = row_of("<image>", "A", {"a.png", "b.png"});
  for (const json& turn : turns_of("<image>", "B")) row["conversations"].push_back(turn);
  DataConfig job = config(json::array({row, row_of(std::string(40, 'q'), "A")}));
  job.sequence = 40;
  const auto corpus = open(job);
  ASSERT_EQ(corpus->samples(Split::train), 1U);
  EXPECT_EQ(corpus->length(Split::train, SampleId(0)), 23);
  EXPECT_EQ(corpus->targets(Split::train, SampleId(0)), 2);
  EXPECT_EQ(corpus->pictures(Split::train, SampleId(0)).images, 1);
  EXPECT_EQ(corpus->max_patches(), 4);
  const auto [tokens, targets, pixels, places] = content_of(*corpus, 0);
  EXPECT_EQ(std::ranges::count(tokens, image_token), 4);
  EXPECT_EQ(pixels[0], 1.0f) << "the image of the first turn";
  EXPECT_THAT(corpus->describe(), AllOf(HasSubstr("1 cut after the last answer that fits"),
                                        HasSubstr("1 left out (the first answer does not fit 40 tokens; the first is "
                                                  "document 1, from ")));
}

TEST_F(ConversationsAboutImages, whose_image_breaks_later_fail_with_its_name) {
  const std::string whole = png_of({16, 16}, 1);
  const auto file = folder_.write("images/a.png", whole);
  DataConfig job = config(json::array({row_of("<image>", "A", {"a.png"})}));
  const auto corpus = open(job);
  folder_.write("images/a.png", whole.substr(0, whole.size() - 20) + std::string(20, 'x'));
  const Status status = corpus->prepare(Split::train, SampleId(0));
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("images/a.png"));
  std::vector<float> pixels(4 * 192);
  std::vector<std::int32_t> places(12);
  EXPECT_THROW(corpus->read_pictures(Split::train, SampleId(0), pixels, places), std::runtime_error);
  folder_.write("images/a.png", whole);
  ASSERT_TRUE(corpus->prepare(Split::train, SampleId(0)));
  std::filesystem::remove(file);
  corpus->read_pictures(Split::train, SampleId(0), pixels, places);
  EXPECT_EQ(pixels[128], 1.0f) << "from memory";
}

TEST_F(ConversationsAboutImages, without_any_image_have_no_patches) {
  const auto corpus = open(config(many_texts(50)));
  EXPECT_EQ(corpus->max_patches(), 0);
  EXPECT_EQ(corpus->picture_grids().columns, 0);
  EXPECT_EQ(corpus->patch_columns(), 192) << "the job has a port for images";
  EXPECT_TRUE(corpus->prepare(Split::train, SampleId(0)));
  EXPECT_NO_THROW(corpus->read_pictures(Split::train, SampleId(0), {}, {}));
  EXPECT_EQ(corpus->targets(Split::train, SampleId(0)), 2);
}

TEST_F(ConversationsAboutImages, of_a_real_file_are_all_read) {
  DataConfig job = config();
  job.path = std::string(MAESTRO_SOURCE_DIR) + "/tests/data/emoji/llava_mixed.json";
  job.validation_path.clear();
  job.image_size = 64;
  job.sequence = 1024;  // up to eight images per sample
  const auto corpus = open(job);
  EXPECT_EQ(corpus->samples(Split::train) + corpus->samples(Split::validation), 36U);
  std::uint64_t with_images = 0;
  for (std::uint64_t at = 0; at < corpus->samples(Split::train); ++at) {
    const auto [tokens, targets, pixels, places] = content_of(*corpus, at);
    const auto patches = corpus->pictures(Split::train, SampleId(at)).patches;
    ASSERT_EQ(std::ranges::count(tokens, image_token), patches);
    ASSERT_EQ(patches, corpus->pictures(Split::train, SampleId(at)).images * 64);
    if (patches == 0) continue;
    ++with_images;
    const auto [least, most] = std::ranges::minmax(pixels);
    ASSERT_GE(least, -1.0f);
    ASSERT_LE(most, 1.0f);
  }
  EXPECT_GT(with_images, 6U);
}

}  // namespace
}  // namespace maestro
