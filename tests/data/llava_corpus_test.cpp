// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/image/llava_corpus.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <tuple>

#include "tests/data/tar_bytes.hpp"
#include "tests/data/temp_folder.hpp"
#include "tests/images/image_bytes.hpp"

namespace maestro {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Collects conversations for a file.
class Writer {
 public:
  Writer& add(const std::string& id, const std::string& image, const std::string& question, const std::string& answer) {
    text_ += (text_.empty() ? "[" : ",\n") + std::string("{\"id\": \"") + id + "\"";
    if (!image.empty()) text_ += ", \"image\": [\"" + image + "\"]";
    text_ += R"(, "conversations": [{"from": "human", "value": ")" + question + R"("}, {"from": "gpt", "value": ")" +
             answer + "\"}]}";
    return *this;
  }
  [[nodiscard]] std::string json() const { return text_ + "]"; }

 private:
  std::string text_;
};

Writer many_texts(int count) {
  Writer writer;
  for (int at = 0; at < count; ++at) writer.add("text-" + std::to_string(at), "", "Number?", std::to_string(at));
  return writer;
}

std::string png_of(ImageSize size, std::uint8_t red) {
  return *encode_png(plain_image(size, red, 0, 255));
}

DataConfig settings(const std::filesystem::path& file) {
  DataConfig config;
  config.kind = DataKind::llava;
  config.path = file.string();
  config.image_size = 16;
  config.validation_fraction = 0.2;
  return config;
}

std::string refusal(const DataConfig& config) {
  try {
    (void)open_corpus(config, 1);
  } catch (const JobError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(LlavaCorpus, its_fingerprint_changes_with_texts_and_pictures_and_not_with_the_place) {
  const TempFolder folder;
  int number = 0;
  const auto of = [&](const Writer& conversations, const std::string& picture) {
    const std::string place = "place" + std::to_string(++number);
    folder.write(place + "/images/a.png", picture);
    return LlavaCorpus(settings(folder.write(place + "/data.json", conversations.json()))).fingerprint();
  };
  const auto with_answer = [](const std::string& answer) {
    return many_texts(20).add("seen", "a.png", "<image>What?", answer);
  };
  const std::string picture = png_of({16, 16}, 10);
  const DataFingerprint plain = of(with_answer("A cat."), picture);
  EXPECT_EQ(of(with_answer("A cat."), picture), plain);
  DataFingerprint other = of(with_answer("A dog."), picture);
  EXPECT_NE(other.at("content"), plain.at("content"));
  other["content"] = plain.at("content");
  EXPECT_EQ(other, plain) << "only the content differs";
  EXPECT_NE(of(with_answer("A cat."), picture + "more bytes").at("content"), plain.at("content"));
  EXPECT_NE(of(many_texts(21), picture).at("content"), plain.at("content"));
}

std::set<std::string> ids_of(const LlavaCorpus& corpus, Split split) {
  std::set<std::string> ids;
  for (std::uint64_t at = 0; at < corpus.samples(split); ++at) ids.insert(corpus.view(split, SampleId(at)).id);
  return ids;
}

/// Returns the number of the sample with this id; fails the test if it does not exist.
SampleId find(const LlavaCorpus& corpus, Split split, const std::string& id) {
  for (std::uint64_t at = 0; at < corpus.samples(split); ++at) {
    if (corpus.view(split, SampleId(at)).id == id) return SampleId(at);
  }
  ADD_FAILURE() << "no sample " << id;
  return SampleId(0);
}

/// Returns a configuration with everything but "held" in training, and a separate file for validation.
DataConfig with_own_validation(const TempFolder& folder, const Writer& training) {
  DataConfig config = settings(folder.write("a.json", training.json()));
  config.validation_path = folder.write("held.json", Writer().add("held", "", "Q", "A").json()).string();
  return config;
}

TEST(LlavaCorpus, reads_a_sample_with_its_pictures) {
  const TempFolder folder;
  folder.write("images/a.png", png_of({32, 16}, 255));
  folder.write("images/deep/b.png", png_of({16, 32}, 0));
  std::string json = Writer().add("two", "a.png\", \"deep/b.png", "<image>\\nor <image>?", "b").json();
  DataConfig config = with_own_validation(folder, Writer());
  config.path = folder.write("a.json", json).string();
  const LlavaCorpus corpus(config);
  const SampleId id(0);
  ASSERT_EQ(corpus.samples(Split::train), 1u);
  ASSERT_EQ(corpus.samples(Split::validation), 1u);
  EXPECT_EQ(corpus.vocabulary(), 257);
  EXPECT_EQ(corpus.patch_columns(), 192);
  EXPECT_EQ(corpus.max_patches(), 4);
  EXPECT_EQ(corpus.picture_grids().largest, (PatchGrid{1, 2})) << "an image's, not the sample's";
  EXPECT_EQ(corpus.picture_grids().rows, 2);
  EXPECT_EQ(corpus.picture_grids().columns, 2);
  EXPECT_FALSE(corpus.picture_grids().one_width);
  EXPECT_EQ(corpus.pictures(Split::train, id).images, 2);
  EXPECT_EQ(corpus.pictures(Split::train, id).patches, 4);
  EXPECT_EQ(corpus.targets(Split::train, id), 2);
  const auto length = static_cast<std::size_t>(corpus.length(Split::train, id));
  std::vector<std::int32_t> tokens(length), targets(length), places(12);
  corpus.read(Split::train, id, tokens, targets);
  EXPECT_EQ(std::ranges::count(tokens, image_token), 4);
  EXPECT_EQ(corpus.decode({}, tokens), "USER: \nor ?\nASSISTANT: b");
  EXPECT_EQ(std::vector{targets.back()}, corpus.ends());
  std::vector<float> pixels(4 * 192);
  corpus.read_pictures(Split::train, id, pixels, places);
  EXPECT_EQ(places, (std::vector<std::int32_t>{0, 0, 0, 0, 0, 1, 1, 0, 0, 1, 1, 0}));
  EXPECT_EQ(pixels[0], 1.0f) << "red of the first image";
  EXPECT_EQ(pixels[2 * 192], -1.0f) << "red of the second";
  EXPECT_EQ(pixels[2 * 192 + 128], 1.0f) << "its blue";
  const ConversationView view = corpus.view(Split::train, id);
  EXPECT_EQ(view.question, "or ?");
  EXPECT_EQ(view.answer, "b");
  ASSERT_EQ(view.pictures.size(), 2U);
  EXPECT_EQ(view.pictures[0].path, folder.path() / "images/a.png");
  EXPECT_EQ(view.pictures[1].path, folder.path() / "images/deep/b.png");
  EXPECT_EQ(view.prompt.size() + 1, length) << "the prompt and one byte of answer";
}

/// Returns tokens, targets, pixels and places of a sample.
auto content_of(const LlavaCorpus& corpus, SampleId id) {
  const auto length = static_cast<std::size_t>(corpus.length(Split::train, id));
  const auto patches = static_cast<std::size_t>(corpus.pictures(Split::train, id).patches);
  std::vector<std::int32_t> tokens(length), targets(length), places(patches * 3);
  std::vector<float> pixels(patches * static_cast<std::size_t>(corpus.patch_columns()));
  corpus.read(Split::train, id, tokens, targets);
  corpus.read_pictures(Split::train, id, pixels, places);
  return std::tuple(tokens, targets, pixels, places);
}

std::string turns_of(const std::string& question, const std::string& answer) {
  return R"("conversations": [{"from": "human", "value": ")" + question + R"("}, {"from": "gpt", "value": ")" + answer +
         R"("}])";
}

TEST(LlavaCorpus, a_list_lines_and_archives_of_the_same_conversations_are_the_same_samples) {
  const TempFolder folder;
  const std::string a = png_of({32, 16}, 255), b = png_of({16, 32}, 7);
  folder.write("images/a.png", a);
  folder.write("images/b.png", b);
  const std::string two = R"({"id": "two", "image": ["a.png", "b.png"], )" + turns_of("<image><image>?", "b") + "}";
  const std::string caption = R"({"id": "c", "image": "b.png", )" + turns_of("<image>", "A picture.") + "}";
  DataConfig config = with_own_validation(folder, Writer());
  const auto opened = [&](const std::filesystem::path& path) {
    config.path = path.string();
    return LlavaCorpus(config);
  };
  const LlavaCorpus list = opened(folder.write("list.json", "[" + two + "," + caption + "]"));
  const LlavaCorpus lines = opened(folder.write("lines.jsonl", two + "\n" + caption + "\n"));
  const std::string bare = R"({"id": "two", )" + turns_of("<image><image>?", "b") + "}";
  folder.write("tars/0.tar", tar_of({{"x/two.0.png", a}, {"x/two.json", bare}, {"x/two.1.png", b}}));
  folder.write("tars/1.tar", tar_of({{"c.png", b}, {"c.txt", "A picture."}, {"c.json", R"({"url": "u"})"}}));
  const LlavaCorpus archives = opened(folder.path() / "tars");
  for (const LlavaCorpus* other : {&lines, &archives}) {
    ASSERT_EQ(other->samples(Split::train), 2U);
    for (const std::uint64_t at : {0, 1}) {
      EXPECT_EQ(content_of(*other, SampleId(at)), content_of(list, SampleId(at)));
      EXPECT_EQ(other->view(Split::train, SampleId(at)).id, list.view(Split::train, SampleId(at)).id);
    }
  }
  EXPECT_EQ(decode_image(archives.view(Split::train, SampleId(1)).pictures[0]).value_or_throw().height, 32);
  EXPECT_THAT(archives.describe(), HasSubstr("1 unused .json members next to captions"));
}

TEST(LlavaCorpus, an_archive_s_picture_has_the_size_of_its_orientation_wherever_that_stands) {
  const TempFolder folder;
  Image noise{300, 150, std::vector<std::uint8_t>(300 * 150 * 3)};  // its file exceeds the 64 KiB of a head
  std::mt19937 random(7);
  for (std::uint8_t& value : noise.pixels) value = static_cast<std::uint8_t>(random());
  const std::string png = png_with_orientation(*encode_png(noise), 6, true, false);
  const std::string webp = webp_extended(webp_bytes(true, false, noise.size(), noise.pixels), noise.size(), 8, 6);
  ASSERT_GT(std::min(png.size(), webp.size()), std::size_t{1} << 16);
  DataConfig config = with_own_validation(folder, Writer());
  config.path = folder.write("a.tar", tar_of({{"1.png", png}, {"1.txt", "A"}, {"2.webp", webp}, {"2.txt", "B"}}));
  const LlavaCorpus corpus(config);
  EXPECT_EQ(corpus.samples(Split::train), 2u);
  EXPECT_EQ(corpus.picture_grids().rows, 2);
  EXPECT_EQ(corpus.picture_grids().columns, 1) << "300 x 150 pixels are stored, 150 x 300 are upright";
}

TEST(LlavaCorpus, archives_are_refused_by_name_and_bad_rows_by_id) {
  const TempFolder folder;
  const std::string picture = png_of({16, 16}, 1);
  const std::string turns = "{" + turns_of("<image>?", "b") + "}";
  DataConfig config = with_own_validation(folder, Writer());
  const auto refused = [&](const std::vector<std::pair<std::string, std::string>>& members) {
    config.path = folder.write("a.tar", tar_of(members)).string();
    return refusal(config);
  };
  EXPECT_THAT(refused({{"1.json", turns}}), HasSubstr("sample '1': 1 <image> placeholder, but 0 images"));
  EXPECT_THAT(refused({{"1.txt", "x"}}), HasSubstr("sample '1': a caption without an image"));
  EXPECT_THAT(refused({{"1.txt", "x"}, {"1.json", turns}, {"1.png", picture}}),
              HasSubstr("sample '1': it has a caption (.txt) and a conversation (.json)"));
  EXPECT_THAT(refused({{"1.png", picture.substr(0, 20)}, {"1.txt", "x"}}), HasSubstr("a.tar: 1.png: truncated"));
  EXPECT_THAT(refused({{"1.png", picture}}), HasSubstr("a.tar: 1 lacks a member .json or .txt"));
  EXPECT_THAT(refused({{"1.gif", "x"}, {"1.txt", "x"}}), HasSubstr("1.gif: only members .json, .txt and images"));
  config.images = folder.path().string();
  EXPECT_THAT(refused({{"1.png", picture}, {"1.txt", "x"}}), HasSubstr("are in that archive; remove the key"));
  config.images.clear();
  config.path = folder.path().string();
  EXPECT_THAT(refusal(config), HasSubstr("in it is not a tar archive; give the JSON file of the conversations"));
}

TEST(LlavaCorpus, pictures_of_samples_that_are_left_out_have_no_grid_in_the_data) {
  const TempFolder folder;
  folder.write("images/a.png", png_of({16, 16}, 255));
  folder.write("images/wide.png", png_of({16, 8}, 0));
  DataConfig config = with_own_validation(
      folder, Writer().add("kept", "a.png", "<image>", "b").add("bad", "wide.png", "<image><image>", "c"));
  config.max_bad_samples = 1;
  const LlavaCorpus corpus(config);
  EXPECT_EQ(corpus.picture_grids().rows, 2);
  EXPECT_TRUE(corpus.picture_grids().one_width);
}

TEST(LlavaCorpus, texts_alone_have_no_patches) {
  const TempFolder folder;
  const auto corpus = open_corpus(settings(folder.write("a.json", many_texts(50).json())), 1);
  EXPECT_EQ(corpus->max_patches(), 0);
  EXPECT_EQ(corpus->picture_grids().columns, 0);
  EXPECT_EQ(corpus->pictures(Split::train, SampleId(0)).patches, 0);
  EXPECT_TRUE(corpus->prepare(Split::train, SampleId(0)));
  EXPECT_NO_THROW(corpus->read_pictures(Split::train, SampleId(0), {}, {}));
  EXPECT_EQ(corpus->targets(Split::train, SampleId(0)), 2);
}

TEST(LlavaCorpus, the_split_depends_on_the_ids_alone) {  // LL-2
  const TempFolder folder;
  const LlavaCorpus first(settings(folder.write("a.json", many_texts(400).json())));
  const LlavaCorpus more(settings(folder.write("b.json", many_texts(500).json())));
  const auto held = ids_of(first, Split::validation);
  EXPECT_EQ(first.samples(Split::train) + held.size(), 400u);
  EXPECT_NEAR(static_cast<double>(held.size()), 80.0, 40.0) << "five standard deviations";
  const auto later = ids_of(more, Split::validation);
  EXPECT_TRUE(std::ranges::includes(later, held)) << "more conversations move none to the other split";
}

TEST(LlavaCorpus, validation_may_have_a_file_and_pictures_a_folder_of_their_own) {
  const TempFolder folder;
  folder.write("pictures/a.png", png_of({16, 16}, 1));
  DataConfig config = with_own_validation(folder, Writer().add("seen", "a.png", "<image>", "A"));
  EXPECT_THAT(refusal(config), HasSubstr("images/a.png: does not exist"));
  config.images = (folder.path() / "pictures").string();
  const LlavaCorpus corpus(config);
  EXPECT_THAT(ids_of(corpus, Split::train), testing::ElementsAre("seen"));
  EXPECT_THAT(ids_of(corpus, Split::validation), testing::ElementsAre("held"));
}

TEST(LlavaCorpus, every_kind_of_bad_sample_is_found_at_opening_and_named) {  // LL-1
  const TempFolder folder;
  const std::string whole = png_of({16, 16}, 1);
  folder.write("images/good.png", whole);
  folder.write("images/short.png", whole.substr(0, 20));
  folder.write("images/words.png", "these are words");
  folder.write("images/wide.png", png_of({300, 300}, 1));
  const auto reason = [&](const std::string& image, const std::string& question, const std::string& answer) {
    return refusal(with_own_validation(folder, Writer().add("odd", image, question, answer)));
  };
  const std::string start = "a.json: sample 'odd': ";
  EXPECT_THAT(reason("none.png", "<image>", "A"),
              AllOf(testing::StartsWith("[data] "), testing::Not(HasSubstr("\n")), HasSubstr(start + "image "),
                    HasSubstr("none.png: does not exist")));
  EXPECT_THAT(reason("short.png", "<image>", "A"), AllOf(HasSubstr(start), HasSubstr("short.png: truncated")));
  EXPECT_THAT(reason("words.png", "<image>", "A"), AllOf(HasSubstr(start), HasSubstr("words.png: not an image")));
  EXPECT_THAT(reason("good.png", "<image><image>", "A"), HasSubstr(start + "2 <image> placeholders, but 1 image"));
  EXPECT_THAT(reason("", "<image>", "A"), HasSubstr(start + "1 <image> placeholder, but 0 images"));
  EXPECT_THAT(reason("", "What?", ""), HasSubstr(start + "conversations[1] is an empty answer"));
  EXPECT_THAT(reason("", std::string(200, 'q'), "A"), HasSubstr(start + "its answer starts at position"));
  DataConfig native = with_own_validation(folder, Writer().add("odd", "wide.png", "<image>", "A"));
  native.image_size = 0;
  EXPECT_THAT(refusal(native), HasSubstr(start + "its images reach position 1450, beyond data.sequence = 128"));
}

TEST(LlavaCorpus, bad_samples_are_left_out_and_counted_up_to_the_number_allowed) {
  const TempFolder folder;
  Writer writer = many_texts(3);
  for (int at = 0; at < 25; ++at) writer.add("bad-" + std::to_string(at), "", "<image>", "A");
  writer.add("long", "", "Say it", std::string(300, 'a'));
  DataConfig config = with_own_validation(folder, writer);
  config.max_bad_samples = 24;
  EXPECT_THAT(refusal(config), AllOf(HasSubstr("25 bad samples, more than max_bad_samples = 24"), HasSubstr("'bad-19'"),
                                     testing::Not(HasSubstr("'bad-20'")), HasSubstr("\n  and 5 more")));
  config.max_bad_samples = 25;
  const LlavaCorpus corpus(config);
  EXPECT_EQ(corpus.left_out(), 25u);
  EXPECT_EQ(corpus.samples(Split::train), 4u);
  EXPECT_THAT(
      corpus.describe(),
      AllOf(HasSubstr("5 conversations"), HasSubstr("left out: 25 bad"), HasSubstr("4 training and 1 validation"),
            HasSubstr("0 cut after the last answer that fits, 1 inside their first answer")));
  EXPECT_EQ(corpus.length(Split::train, find(corpus, Split::train, "long")), 128);
}

TEST(LlavaCorpus, rows_with_equal_ids_are_split_by_their_content) {  // LL-2
  const TempFolder folder;
  const auto rows = [](int count) {
    Writer writer;
    for (int at = 0; at < count; ++at) writer.add("same", "", "Number?", std::to_string(at));
    return writer.json();
  };
  const auto answers = [](const LlavaCorpus& corpus, Split split) {
    std::set<std::string> out;
    for (std::uint64_t at = 0; at < corpus.samples(split); ++at) out.insert(corpus.view(split, SampleId(at)).answer);
    return out;
  };
  const LlavaCorpus first(settings(folder.write("a.json", rows(300))));
  const LlavaCorpus more(settings(folder.write("b.json", rows(400))));
  EXPECT_NEAR(static_cast<double>(first.samples(Split::validation)), 60.0, 35.0) << "five standard deviations";
  EXPECT_TRUE(std::ranges::includes(answers(more, Split::validation), answers(first, Split::validation)));
  EXPECT_THAT(first.describe(),
              HasSubstr("; rows repaired: id of an earlier row, split by content 299 (first 'same')"));
}

TEST(LlavaCorpus, of_two_conversations_one_trains_and_one_validates) {  // LL-2
  const TempFolder folder;
  for (const double fraction : {0.000001, 0.999999}) {
    for (int count = 2; count < 5; ++count) {
      DataConfig config = settings(folder.write("a.json", many_texts(count).json()));
      config.validation_fraction = fraction;
      const LlavaCorpus corpus(config);
      const std::uint64_t few = corpus.samples(fraction < 0.5 ? Split::validation : Split::train);
      EXPECT_EQ(few, 1u) << "the side that would be empty";
      EXPECT_EQ(corpus.samples(Split::train) + corpus.samples(Split::validation), static_cast<std::uint64_t>(count));
    }
  }
}

TEST(LlavaCorpus, repairs_are_counted_by_kind_with_the_first_row_of_each) {
  const TempFolder folder;
  folder.write("images/a.png", png_of({16, 16}, 1));
  const std::string both = R"({"from": "human", "value": "Q"}, {"from": "gpt", "value": "A"})";
  const std::string begins = R"({"from": "gpt", "value": "Hi"}, )", ends = R"(, {"from": "human", "value": "?"})";
  const auto row = [&](const std::string& id, const std::string& fields, const std::string& turns) {
    return "{\"id\": \"" + id + "\"" + fields + ", \"conversations\": [" + turns + "]}";
  };
  DataConfig config = with_own_validation(folder, Writer());
  config.path = folder.write("a.json", "[" + row("a", "", begins + both) + ", " + row("b", "", begins + both + ends) +
                                           ", " + row("c", R"(, "image": "a.png")", both) + ", " + row("d", "", both) +
                                           ", " + row("d", "", both) + "]");
  const LlavaCorpus corpus(config);
  EXPECT_THAT(corpus.describe(),
              testing::EndsWith("; rows repaired: answer before the first question dropped 2 (first 'a'), last "
                                "question without an answer cut 1 (first 'b'), images without <image> put first 1 "
                                "(first 'c')"))
      << "equal ids matter to a split alone";
  EXPECT_EQ(corpus.pictures(Split::train, SampleId(2)).patches, 4);
}

TEST(LlavaCorpus, conversations_begin_as_the_tokenizer_s_file_has_it_unless_the_job_says_otherwise) {
  const TempFolder folder;
  DataConfig config = with_own_validation(folder, Writer().add("x", "", "Q", "A"));
  config.tokenizer = folder
                         .write("tokenizer/tokenizer.json", R"({
      "model": {"type": "BPE", "vocab": {"U": 0, "<s>": 1, "<|endoftext|>": 2}, "merges": [], "unk_token": "U"},
      "added_tokens": [{"id": 1, "content": "<s>", "special": true, "normalized": false}],
      "post_processor": {"type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}})")
                         .string();
  const LlavaCorpus with(config);
  config.begin_of_text = false;
  const LlavaCorpus without(config);
  const SampleId id(0);
  EXPECT_EQ(with.view(Split::train, id).prompt.front(), 1);
  EXPECT_EQ(without.view(Split::train, id).prompt.front(), 0);
  EXPECT_EQ(with.length(Split::train, id), without.length(Split::train, id) + 1);
  EXPECT_NE(with.fingerprint(), without.fingerprint());
}

TEST(LlavaCorpus, a_long_conversation_keeps_the_turns_that_fit_with_their_pictures) {
  const TempFolder folder;
  folder.write("images/a.png", png_of({16, 16}, 255));
  folder.write("images/b.png", png_of({16, 16}, 0));
  const std::string turns = R"({"from": "human", "value": "<image>"}, {"from": "gpt", "value": "A"},
      {"from": "human", "value": "<image>"}, {"from": "gpt", "value": "B"})";
  DataConfig config = with_own_validation(folder, Writer());
  config.path =
      folder.write("a.json", R"([{"id": "x", "image": ["a.png", "b.png"], "conversations": [)" + turns + "]}]");
  config.sequence = 40;
  const LlavaCorpus corpus(config);
  const SampleId id(0);
  EXPECT_EQ(corpus.length(Split::train, id), 23);
  EXPECT_EQ(corpus.targets(Split::train, id), 2);
  EXPECT_EQ(corpus.pictures(Split::train, id).images, 1);
  EXPECT_EQ(corpus.pictures(Split::train, id).patches, 4);
  EXPECT_EQ(corpus.max_patches(), 4);
  const auto [tokens, targets, pixels, places] = content_of(corpus, id);
  EXPECT_EQ(std::ranges::count(tokens, image_token), 4);
  EXPECT_EQ(pixels[0], 1.0f) << "the image of the first turn";
  EXPECT_THAT(corpus.describe(), HasSubstr("1 cut after the last answer that fits, 0 inside their first answer"));
}

TEST(LlavaCorpus, a_split_without_samples_is_refused) {
  const TempFolder folder;
  EXPECT_THAT(
      refusal(settings(folder.write("a.json", many_texts(1).json()))),
      AllOf(HasSubstr("a.json has 1 sample, but training and validation (validation_fraction = 0.2) need one each"),
            HasSubstr("validation_path")));
  EXPECT_THAT(refusal(settings(folder.write("a.json", "[]"))), HasSubstr("no training sample"));
  EXPECT_THAT(refusal(settings(folder.path())), HasSubstr("is a folder"));
}

TEST(LlavaCorpus, a_picture_that_breaks_after_opening_fails_its_preparation_with_file_and_sample) {
  const TempFolder folder;
  const std::string whole = png_of({16, 16}, 1);
  folder.write("images/a.png", whole);
  const LlavaCorpus corpus(with_own_validation(folder, Writer().add("odd", "a.png", "<image>", "A")));
  folder.write("images/a.png", whole.substr(0, whole.size() - 20));
  const Status status = corpus.prepare(Split::train, SampleId(0));
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, AllOf(HasSubstr("a.json: sample 'odd': image "), HasSubstr("a.png: truncated")));
  std::vector<float> pixels(4 * 192);
  std::vector<std::int32_t> places(12);
  EXPECT_THROW(corpus.read_pictures(Split::train, SampleId(0), pixels, places), std::runtime_error);
}

TEST(LlavaCorpus, a_prepared_sample_is_read_from_memory) {
  const TempFolder folder;
  const auto file = folder.write("images/a.png", png_of({16, 16}, 255));
  const LlavaCorpus corpus(with_own_validation(folder, Writer().add("x", "a.png", "<image>", "A")));
  ASSERT_TRUE(corpus.prepare(Split::train, SampleId(0)));
  std::filesystem::remove(file);
  std::vector<float> pixels(4 * 192);
  std::vector<std::int32_t> places(12);
  corpus.read_pictures(Split::train, SampleId(0), pixels, places);
  EXPECT_EQ(pixels[0], 1.0f);
}

TEST(LlavaCorpus, a_picture_replaced_by_one_of_another_size_keeps_its_patches) {  // LL-3
  const TempFolder folder;
  folder.write("images/a.png", png_of({16, 16}, 255));
  const LlavaCorpus corpus(with_own_validation(folder, Writer().add("x", "a.png", "<image>", "A")));
  folder.write("images/a.png", png_of({50, 9}, 255));
  std::vector<float> pixels(4 * 192);
  std::vector<std::int32_t> places(12);
  corpus.read_pictures(Split::train, SampleId(0), pixels, places);
  EXPECT_EQ(pixels.back(), 1.0f);
}

TEST(LlavaCorpus, other_spans_and_missing_samples_are_refused) {
  const TempFolder folder;
  folder.write("images/a.png", png_of({16, 16}, 255));
  const LlavaCorpus corpus(with_own_validation(folder, Writer().add("x", "a.png", "<image>", "A")));
  std::vector<float> pixels(3 * 192);
  std::vector<std::int32_t> places(9);
  EXPECT_THROW(corpus.read_pictures(Split::train, SampleId(0), pixels, places), std::invalid_argument);
  EXPECT_THROW((void)corpus.length(Split::train, SampleId(1)), std::out_of_range);
  EXPECT_THROW((void)corpus.view(Split::validation, SampleId(1)), std::out_of_range);
}

TEST(LlavaCorpus, reads_every_sample_of_a_real_file) {
  DataConfig config = settings(std::filesystem::path(MAESTRO_SOURCE_DIR) / "tests/data/emoji/llava_mixed.json");
  config.image_size = 64;
  config.sequence = 1024;  // up to eight images per sample
  config.validation_fraction = 0.1;
  const LlavaCorpus corpus(config);
  EXPECT_EQ(corpus.samples(Split::train) + corpus.samples(Split::validation), 36u);
  std::vector<std::int32_t> tokens(1024), targets(1024);
  std::uint64_t with_pictures = 0;
  for (const Split split : {Split::train, Split::validation}) {
    for (std::uint64_t at = 0; at < corpus.samples(split); ++at) {
      const SampleId id(at);
      corpus.read(split, id, tokens, targets);
      const auto patches = corpus.pictures(split, id).patches;
      ASSERT_EQ(std::ranges::count(tokens, image_token), patches);
      ASSERT_EQ(std::ranges::count_if(targets, [](std::int32_t target) { return target != ignored_target; }),
                corpus.targets(split, id));
      ASSERT_TRUE(corpus.prepare(split, id));
      if (patches == 0) continue;
      ++with_pictures;
      ASSERT_EQ(patches, corpus.pictures(split, id).images * 64);
      std::vector<float> pixels(static_cast<std::size_t>(patches * corpus.patch_columns()));
      std::vector<std::int32_t> places(static_cast<std::size_t>(patches * 3));
      corpus.read_pictures(split, id, pixels, places);
      const auto [least, most] = std::ranges::minmax(pixels);
      ASSERT_GE(least, -1.0f);
      ASSERT_LE(most, 1.0f);
    }
  }
  EXPECT_EQ(with_pictures, 12u);
}

}  // namespace
}  // namespace maestro
