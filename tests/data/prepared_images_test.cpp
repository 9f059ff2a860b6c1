// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "runtime/data/mixed_corpus.hpp"
#include "runtime/data/text/prepared_corpus.hpp"
#include "runtime/dataset/image_model.hpp"
#include "runtime/dataset/prepare.hpp"
#include "tests/data/tar_bytes.hpp"
#include "tests/data/temp_folder.hpp"

namespace maestro::prepared_images {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const fs::path references = fs::path(MAESTRO_SOURCE_DIR) / "tests/dataset/references";
const fs::path rows = references / "image_rows";

std::string contents(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

class PreparedImagesOf : public ::testing::Test {
 protected:
  [[nodiscard]] static PrepareOptions options(const fs::path& input, const std::string& model = "smolvlm") {
    PrepareOptions made;
    made.inputs = {input};
    made.processor = references / "images" / model;
    made.tokenizer = made.processor.string();
    made.chat_template = "auto";
    if (input.extension() != ".tar") made.images = rows / "images";
    made.validation_fraction = 0.3;
    made.jobs = 2;
    return made;
  }
  fs::path prepare(const PrepareOptions& options, const std::string& name) {
    warnings_.clear();
    PrepareCalls calls;
    calls.warn = [this](const std::string& line) { warnings_.push_back(line); };
    index_ = prepare_data(options, folder_.path() / name, calls);
    return folder_.path() / name;
  }
  [[nodiscard]] static DataConfig config(std::int64_t sequence = 4096) {
    DataConfig made;
    made.kind = DataKind::prepared;
    made.sequence = sequence;
    return made;
  }
  /// Prepares rows that are a list of JSON.
  fs::path prepare(const json& list, const std::string& name, const std::string& model = "smolvlm") {
    return prepare(options(folder_.write(name + ".json", list.dump()), model), name);
  }
  /// Returns the refusal of a row, without its place.
  std::string refusal(const json& row) {
    try {
      (void)prepare(json::array({row}), "refused");
      return "accepted";
    } catch (const JobError& error) {
      const std::string text = error.what(), place = "row 1: ", end = " (a limit of 1 bad row leaves it out)";
      const std::size_t at = text.find(place);
      if (at == text.npos || !text.ends_with(end)) return text;
      return text.substr(at + place.size(), text.size() - end.size() - at - place.size());
    }
  }
  static json question(const std::string& text) { return {{"role", "user"}, {"content", text}}; }
  static json answer(const std::string& text) { return {{"role", "assistant"}, {"content", text}}; }

  TempFolder folder_;
  std::vector<std::string> warnings_;
  PreparedIndex index_;
};

/// Everything that a run reads of a sample.
struct Sample {
  std::vector<std::int32_t> tokens, targets, places;
  std::vector<float> pixels;
  friend bool operator==(const Sample&, const Sample&) = default;
};

Sample read(const Corpus& corpus, Split split, SampleId id) {
  EXPECT_TRUE(corpus.prepare(split, id));
  const auto length = static_cast<std::size_t>(corpus.length(split, id));
  Sample made;
  made.tokens.resize(length);
  made.targets.resize(length);
  corpus.read(split, id, made.tokens, made.targets);
  const SamplePictures pictures = corpus.pictures(split, id);
  EXPECT_EQ(std::ranges::count(made.tokens, image_token), pictures.visual);
  made.places.resize(static_cast<std::size_t>(3 * pictures.patches));
  made.pixels.resize(static_cast<std::size_t>(corpus.patch_columns() * pictures.patches));
  corpus.read_pictures(split, id, made.pixels, made.places);
  return made;
}

std::vector<Sample> read_all(const Corpus& corpus) {
  std::vector<Sample> made;
  for (const Split split : {Split::train, Split::validation}) {
    for (std::uint64_t at = 0; at < corpus.samples(split); ++at) made.push_back(read(corpus, split, SampleId(at)));
  }
  return made;
}

/// Returns the rows of list.json as an archive.
std::string archive_of(const json& list) {
  std::vector<std::pair<std::string, std::string>> members;
  for (std::size_t at = 0; at < list.size(); ++at) {
    const std::string stem = "row" + std::to_string(at), name = list[at]["image"];
    members.emplace_back(stem + ".json", list[at].dump());
    members.emplace_back(stem + name.substr(name.find('.')), contents(rows / "images" / name));
  }
  return tar_of(members);
}

/// Returns the end of the tokens that each token of a sample sees, and checks its positions.
std::vector<std::int32_t> ends_of(const Corpus& corpus, SampleId id) {
  std::vector<std::int32_t> marks(static_cast<std::size_t>(corpus.length(Split::train, id) * mark_columns)), ends;
  corpus.read_marks(Split::train, id, marks);
  for (std::size_t at = 0; at < marks.size(); at += mark_columns) {
    for (std::size_t axis = 0; axis < 3; ++axis) EXPECT_EQ(marks[at + axis], std::ssize(ends));
    ends.push_back(marks[at + 3]);
  }
  return ends;
}

TEST_F(PreparedImagesOf, marks_state_which_tokens_images_and_prefixes_see) {
  const PreparedCorpus plain(prepare(options(rows / "list.json"), "smolvlm"), config());
  EXPECT_FALSE(plain.has_marks());
  EXPECT_EQ(ends_of(plain, SampleId(0))[4], 5);
  const PreparedCorpus blocks(prepare(options(rows / "list.json", "gemma3"), "gemma3"), config());
  const PreparedCorpus prefixes(prepare(options(rows / "list.json", "paligemma"), "paligemma"), config());
  std::int64_t in_blocks = 0, in_prefixes = 0;
  for (const PreparedCorpus* corpus : {&blocks, &prefixes}) {
    EXPECT_TRUE(corpus->has_marks());
    for (std::uint64_t at = 0; at < corpus->samples(Split::train); ++at) {
      const Sample sample = read(*corpus, Split::train, SampleId(at));
      const std::vector<std::int32_t> ends = ends_of(*corpus, SampleId(at));
      const auto learned = std::ranges::find_if(sample.targets, [](std::int32_t target) { return target >= 0; });
      const auto prefix = static_cast<std::int32_t>(learned - sample.targets.begin() + 1);
      for (std::int32_t row = 0; row < std::ssize(ends); ++row) {
        const auto from = sample.tokens.begin() + row;
        const bool image = *from == image_token;
        const auto run =
            std::find_if(from, sample.tokens.end(), [](std::int32_t token) { return token != image_token; });
        const auto end = corpus == &prefixes ? std::max(prefix, row + 1)
                         : image             ? static_cast<std::int32_t>(run - sample.tokens.begin())
                                             : row + 1;
        ASSERT_EQ(ends[static_cast<std::size_t>(row)], end) << "sample " << at << ", row " << row;
        (corpus == &prefixes ? in_prefixes : in_blocks) += end > row + 1 ? 1 : 0;
      }
    }
  }
  EXPECT_GT(in_blocks, 20);
  EXPECT_GT(in_prefixes, 100);
}

/// PD-2: the same losses whatever holds the rows and the images.
TEST_F(PreparedImagesOf, lists_lines_archives_and_parquet_give_the_same_samples) {
  const json list = json::parse(contents(rows / "list.json"));
  std::string lines, encoded;
  for (json row : list) {
    lines += row.dump() + "\n";
    row["image"] = "../images/" + row["image"].get<std::string>();
    encoded += row.dump() + "\n";
  }
  const PreparedCorpus first(prepare(options(rows / "list.json"), "list"), config());
  const std::vector<Sample> expected = read_all(first);
  ASSERT_EQ(expected.size(), 12U);
  EXPECT_GT(first.samples(Split::validation), 0U);
  EXPECT_GT(first.pictures(Split::train, SampleId(0)).images, 0);
  const std::pair<const char*, fs::path> others[] = {{"lines", folder_.write("l.jsonl", lines)},
                                                     {"paths", folder_.write("p.jsonl", encoded)},
                                                     {"tar", folder_.write("t.tar", archive_of(list))},
                                                     {"onevision", rows / "onevision.parquet"},
                                                     {"messages", rows / "messages.parquet"}};
  for (const auto& [name, file] : others) {
    PrepareOptions given = options(file);
    if (file.extension() == ".parquet") given.images.clear();
    const PreparedCorpus corpus(prepare(given, name), config());
    EXPECT_EQ(corpus.fingerprint(), first.fingerprint()) << name;
    EXPECT_EQ(read_all(corpus), expected) << name;
    for (const auto* shards : {&index_.train, &index_.validation}) {
      for (const PreparedShard& shard : *shards) {
        EXPECT_TRUE(verify_prepared_shard(corpus.folder(), shard, true)) << name;
      }
    }
  }
}

/// The rows are those of the processor, in the order of the conversation's images.
TEST_F(PreparedImagesOf, rows_are_those_of_the_images) {
  for (const char* model : {"smolvlm", "llava", "llava_onevision"}) {
    const fs::path folder =
        prepare(json::array({{{"images", {"a.png", "b.jpg"}},
                              {"messages", {question("<image>\nand\n<image>\nEqual?"), answer("No.")}}}}),
                model, model);
    const PreparedCorpus corpus(folder, config());
    const Sample sample = read(corpus, Split::train, SampleId(0));
    const auto tokenizer = make_tokenizer((references / "images" / model).string());
    const ImageModel images =
        read_image_model(references / "images" / model, *tokenizer, PassOrder::pillow13).value_or_throw();
    std::vector<Image> tiles;
    for (const char* name : {"a.png", "b.jpg"}) {
      const Image image = decode_image(rows / "images" / name).value_or_throw();
      for (Image& tile :
           images.processor.images()->tiles(image, images.processor.plan(image.size(), 2).value_or_throw())) {
        tiles.push_back(std::move(tile));
      }
    }
    Sample expected = sample;
    std::ranges::fill(expected.pixels, -9.0f);
    images.processor.rows(tiles, expected.pixels, expected.places);
    EXPECT_EQ(sample.pixels, expected.pixels) << model;
    EXPECT_EQ(sample.places, expected.places) << model;
    EXPECT_EQ(corpus.pictures(Split::train, SampleId(0)).images, std::ssize(tiles));
    EXPECT_EQ(corpus.max_patches(), std::ssize(sample.places) / 3);
    EXPECT_EQ(corpus.max_visual(), std::ranges::count(sample.tokens, image_token));
    const std::int64_t side = tiles.front().width / (model == std::string("llava") ? 14 : model[0] == 's' ? 8 : 7);
    EXPECT_EQ(corpus.picture_grids().largest, (PatchGrid{side, side}));
    for (std::size_t at = 0; at + 1 < sample.tokens.size(); ++at) {
      EXPECT_TRUE(sample.tokens[at + 1] != image_token || sample.targets[at] == ignored_target);
    }
  }
}

TEST_F(PreparedImagesOf, the_cauldron_puts_images_before_the_first_question) {
  PrepareOptions given = options(rows / "cauldron.parquet");
  given.validation_fraction = 0;
  const PreparedCorpus corpus(prepare(given, "out"), config());
  ASSERT_EQ(corpus.samples(Split::train), 2U);
  const ConversationView view = corpus.view(Split::train, SampleId(0));
  EXPECT_EQ(view.question, "User:\nCompare.\nAssistant:");
  EXPECT_EQ(view.answer, "Both are noise.");
  ASSERT_EQ(view.pictures.size(), 2U);
  EXPECT_EQ(read_image(view.pictures[1]).value_or_throw(), contents(rows / "images/b.jpg"));
  EXPECT_EQ(decode_image(view.pictures[0]).value_or_throw().size(), (ImageSize{40, 30}));
  EXPECT_EQ(std::ranges::count(view.prompt, image_token), corpus.pictures(Split::train, SampleId(0)).visual);
  EXPECT_TRUE(std::ranges::find(warnings_, (rows / "cauldron.parquet").string() +
                                               ": columns without effect: relevance_min") != warnings_.end());
  EXPECT_EQ(index_.counts.at("images put first"), 2U);
}

/// RI-1 and RI-2.
TEST_F(PreparedImagesOf, images_have_one_place_each) {
  const json two{{"type", "image"}};
  const auto given = [&](json images, json content) {
    return json{{"images", std::move(images)},
                {"messages", {{{"role", "user"}, {"content", std::move(content)}}, answer("A")}}};
  };
  EXPECT_EQ(refusal(given({"a.png"}, "<image> <image>?")),
            "2 places for images (<image>, or a part without an image), but 1 image");
  EXPECT_EQ(refusal(given({"a.png", "a.png"}, json::array({two}))),
            "1 place for images (<image>, or a part without an image), but 2 images");
  EXPECT_EQ(refusal(given(json::array(), "<image>?")),
            "1 place for images (<image>, or a part without an image), but 0 images");
  EXPECT_EQ(refusal({{"messages", {question("Q"), answer("<image>")}}, {"image", "a.png"}}),
            "messages[1] is from \"assistant\" and has <image>; only questions may have it");
  EXPECT_EQ(refusal(given({"missing.png"}, "Q")).substr(0, 6), "image ");
  EXPECT_EQ(refusal(given({"https://host/b.png?size=1"}, "Q")),
            "\"images\"[0] is the URL \"https://host/b.png?size=1\"; images are not downloaded here: curl -L "
            "--create-dirs -o images/b.png https://host/b.png?size=1, and name the file");
  EXPECT_EQ(refusal(given({{{"colour", "red"}}}, "Q")),
            "\"images\"[0].colour is not known; an image has bytes, base64, path, url or image");
  EXPECT_EQ(refusal(given({"data:image/png;base64,a?"}, "Q")), "\"images\"[0]: byte 1 is not base64");
  EXPECT_EQ(refusal(given(json::array(), json::array({{{"type", "video"}}}))),
            "messages[0].content[0] has the part {\"type\":\"video\"}; parts are {\"type\": \"text\", \"text\": TEXT}, "
            "{\"type\": \"image\"} and {\"type\": \"image_url\"}");
  EXPECT_EQ(refusal({{"text", "a text"}}).find("is a text, and data.processor") == std::string::npos, false);
}

TEST_F(PreparedImagesOf, markers_keep_their_place_in_a_question) {
  const fs::path folder = prepare(json::array({{{"images", {"a.png", "a.png"}},
                                                {"prompt", " Is <image>\nlike \n <image>  or not? "},
                                                {"completion", "It is."}}}),
                                  "out", "llava_onevision");
  const PreparedCorpus corpus(folder, config());
  const auto tokenizer = make_tokenizer((references / "images/llava_onevision").string());
  const ConversationView view = corpus.view(Split::train, SampleId(0));
  EXPECT_EQ(view.question, "user\n Islikeor not? assistant");  // the template writes images first
  EXPECT_EQ(view.answer, "It is.");
  EXPECT_EQ(view.pictures.size(), 2U);
}

TEST_F(PreparedImagesOf, parts_name_their_images_in_every_way) {
  const std::string encoded =
      "iVBORw0KGgoAAAANSUhEUgAAAAIAAAABCAIAAAB7QOjdAAAAD0lEQVR4nGPkPCHHwMAAAASkAPGz/khOAAAAAElFTkSuQmCC";
  json parts = json::array({{{"type", "image"}, {"image", "a.png"}},
                            {{"type", "image"}, {"path", (rows / "images/a.png").string()}},
                            {{"type", "image"}, {"url", "file://" + (rows / "images/a.png").string()}},
                            {{"type", "image"}, {"base64", encoded}},
                            {{"type", "image_url"}, {"image_url", {{"url", "data:image/png;base64," + encoded}}}},
                            {{"type", "text"}, {"text", "Equal?"}}});
  const fs::path folder =
      prepare(json::array({{{"messages", {{{"role", "user"}, {"content", parts}}, answer("No.")}}}}), "out");
  const PreparedCorpus corpus(folder, config());
  const ConversationView view = corpus.view(Split::train, SampleId(0));
  ASSERT_EQ(view.pictures.size(), 5U);
  const std::string file = contents(rows / "images/a.png");
  for (std::size_t at = 0; at < 3; ++at) EXPECT_EQ(read_image(view.pictures[at]).value_or_throw(), file);
  EXPECT_EQ(read_image(view.pictures[3]).value_or_throw(), read_image(view.pictures[4]).value_or_throw());
  EXPECT_EQ(decode_image(view.pictures[4]).value_or_throw().size(), (ImageSize{2, 1}));
  (void)read(corpus, Split::train, SampleId(0));
}

TEST_F(PreparedImagesOf, lists_of_llava_are_repaired_and_counted) {
  const auto turn = [](const char* from, const char* value) { return json{{"from", from}, {"value", value}}; };
  const json list{{{"id", 1}, {"conversations", {turn("gpt", "dropped"), turn("human", "Q"), turn("gpt", "A")}}},
                  {{"id", 1}, {"image", "a.png"}, {"conversations", {turn("human", "Q"), turn("gpt", "A")}}},
                  {{"image", {"a.png", "b.jpg"}},
                   {"conversations", {turn("human", "<image>"), turn("gpt", "A"), turn("human", "cut <image>")}}},
                  {{"conversations", {turn("system", "S"), turn("human", "Q"), turn("gpt", "A")}}}};
  PrepareOptions given = options(folder_.write("l.json", list.dump()));
  given.validation_fraction = 0;
  const PreparedCorpus corpus(prepare(given, "out"), config());
  ASSERT_EQ(corpus.samples(Split::train), 4U);
  for (const char* kind : {"first answers dropped", "last questions cut", "system texts kept", "images put first"}) {
    EXPECT_EQ(index_.counts[kind], 1U) << kind;
  }
  EXPECT_EQ(index_.counts["images"], 2U);
  EXPECT_EQ(corpus.view(Split::train, SampleId(0)).question, "User: Q\nAssistant:");
  EXPECT_EQ(corpus.view(Split::train, SampleId(2)).pictures.size(), 1U);
}

TEST_F(PreparedImagesOf, captions_in_archives_answer_their_images) {
  const std::string image = contents(rows / "images/a.png");
  PrepareOptions given = options(folder_.write(
      "c.tar",
      tar_of({{"1.0.png", image}, {"1.1.png", image}, {"1.txt", "Two times noise."}, {"1.json", "{\"width\": 40}"}})));
  given.validation_fraction = 0;
  const PreparedCorpus corpus(prepare(given, "out"), config());
  const ConversationView view = corpus.view(Split::train, SampleId(0));
  EXPECT_EQ(view.answer, "Two times noise.");
  ASSERT_EQ(view.pictures.size(), 2U);
  EXPECT_EQ(read_image(view.pictures[1]).value_or_throw(), image);
  EXPECT_EQ(view.pictures[1].name, "1.1.png");
  const json named{{"image", json::array({"x", "y"})}, {"messages", {question("Q"), answer("A")}}};
  try {
    (void)prepare(options(folder_.write("n.tar", tar_of({{"1.png", image}, {"1.json", named.dump()}}))), "named");
    FAIL();
  } catch (const JobError& error) {
    EXPECT_NE(std::string(error.what()).find("1: it names 2 images, but its row in the archive has 1 image"),
              std::string::npos)
        << error.what();
  }
}

/// PK-3.
TEST_F(PreparedImagesOf, long_conversations_are_cut_at_turns_with_their_images) {
  const json row{{"images", {"a.png", "c.webp"}},
                 {"messages", {question("<image>One?"), answer("First."), question("<image>Two?"), answer("Second.")}}};
  const fs::path folder = prepare(json::array({row}), "out");
  const PreparedCorpus whole(folder, config());
  const std::int64_t length = whole.length(Split::train, SampleId(0));
  const Sample all = read(whole, Split::train, SampleId(0));
  const PreparedCorpus cut(folder, config(length - 1));
  const Sample part = read(cut, Split::train, SampleId(0));
  const auto first_end = std::find(std::ranges::find_if(all.targets, [](auto t) { return t != ignored_target; }),
                                   all.targets.end(), ignored_target);
  EXPECT_EQ(std::ssize(part.tokens), first_end - all.targets.begin());
  EXPECT_TRUE(std::equal(part.tokens.begin(), part.tokens.end(), all.tokens.begin()));
  EXPECT_TRUE(std::equal(part.pixels.begin(), part.pixels.end(), all.pixels.begin()));
  EXPECT_LT(part.pixels.size(), all.pixels.size());
  EXPECT_NE(cut.describe().find("1 cut after the last answer that fits"), std::string::npos) << cut.describe();
  try {
    const PreparedCorpus none(folder, config(std::ssize(part.tokens) - 1));
    FAIL();
  } catch (const JobError& error) {
    EXPECT_NE(std::string(error.what()).find("1 are left out, a larger sequence may keep them"), std::string::npos)
        << error.what();
  }
}

TEST_F(PreparedImagesOf, another_processor_is_refused) {
  const fs::path folder = prepare(options(rows / "list.json"), "out");
  DataConfig other = config();
  other.processor = (references / "images/smolvlm").string();
  EXPECT_EQ(PreparedCorpus(folder, other).samples(Split::train) > 0, true);
  const fs::path changed = folder_.path() / "changed";
  fs::copy(references / "images/smolvlm", changed);
  json keys = json::parse(contents(changed / "processor_config.json"));
  keys["image_processor"]["resample"] = 3;
  folder_.write("changed/processor_config.json", keys.dump());
  other.processor = changed.string();
  const auto message = [&](const DataConfig& data, const fs::path& prepared) {
    try {
      (void)PreparedCorpus(prepared, data);
      return std::string("accepted");
    } catch (const JobError& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(message(other, folder), "[data] " + folder.string() + " was prepared with another processor (" +
                                        (references / "images/smolvlm").string() + ") than data.processor = " +
                                        changed.string() + "; prepare the data again with --model " + changed.string());
  DataConfig order = config();
  order.resample_order = ResampleOrder::horizontal;
  EXPECT_EQ(message(order, folder),
            "[data] " + folder.string() +
                " was prepared with another data.resample_order; remove the key, or prepare the data again");
  DataConfig split = config();
  split.long_documents = LongDocuments::split;
  EXPECT_NE(message(split, folder).find("which long = \"split\" would divide"), std::string::npos);
}

TEST_F(PreparedImagesOf, damaged_images_are_skipped_with_their_name) {
  const std::string bytes = contents(rows / "images/b.jpg");
  folder_.write("images/b.jpg", bytes);
  folder_.write("images/a.png", contents(rows / "images/a.png"));
  PrepareOptions given =
      options(folder_.write("l.json", json::array({{{"image", "b.jpg"}, {"messages", {question("Q"), answer("A")}}},
                                                   {{"image", "a.png"}, {"messages", {question("Q"), answer("A")}}}})
                                          .dump()));
  given.images.clear();
  given.validation_fraction = 0;
  const PreparedCorpus corpus(prepare(given, "out"), config());
  folder_.write("images/b.jpg", bytes.substr(0, bytes.size() / 2) + std::string(bytes.size() - bytes.size() / 2, 'x'));
  folder_.write("images/a.png", bytes);
  const Status broken = corpus.prepare(Split::train, SampleId(0)), replaced = corpus.prepare(Split::train, SampleId(1));
  ASSERT_FALSE(broken);
  EXPECT_NE(broken.error().message.find("train-00000.safetensors, token 0: image " + folder_.path().string() +
                                        "/images/b.jpg"),
            std::string::npos)
      << broken.error().message;
  ASSERT_FALSE(replaced);
  EXPECT_NE(replaced.error().message.find("images/a.png has changed since the data were prepared"), std::string::npos)
      << replaced.error().message;
}

TEST_F(PreparedImagesOf, damaged_images_are_allowed_by_number_where_there_are_images) {
  DataConfig allowed = config();
  allowed.max_bad_samples = 2;
  EXPECT_EQ(PreparedCorpus(prepare(options(rows / "list.json"), "images"), allowed).left_out(), 0U);
  PrepareOptions texts;
  texts.inputs = {folder_.write("t.jsonl", "{\"text\": \"one two three\"}\n")};
  texts.tokenizer = "bytes";
  texts.chat_template = "auto";
  texts.validation_fraction = 0;
  const fs::path folder = prepare(texts, "texts");
  try {
    (void)PreparedCorpus(folder, allowed);
    FAIL();
  } catch (const JobError& error) {
    EXPECT_EQ(error.what(), "[data] " + folder.string() +
                                " was prepared without images, so max_bad_samples is without effect; remove it");
  }
  json list = json::parse(contents(rows / "list.json"));
  list[3]["image"] = "missing.png";
  DataConfig job = allowed;
  job.kind = DataKind::chat;
  job.path = folder_.write("l.json", list.dump()).string();
  job.images = (rows / "images").string();
  job.processor = job.tokenizer = (references / "images/smolvlm").string();
  job.work_folder = (folder_.path() / "work").string();
  EXPECT_EQ(open_corpus(job, 1)->left_out(), 1U);
}

TEST_F(PreparedImagesOf, rows_without_any_image_are_noted) {
  DataConfig job = config();
  job.kind = DataKind::chat;
  job.path = folder_
                 .write("l.jsonl", R"({"messages": [{"role": "user", "content": "a"}, )"
                                   R"({"role": "assistant", "content": "b"}]})"
                                   "\n")
                 .string();
  job.processor = job.tokenizer = (references / "images/smolvlm").string();
  job.work_folder = (folder_.path() / "work").string();
  std::vector<std::string> notes;
  (void)open_corpus(job, 1, [&](const std::string& line) { notes.push_back(line); });
  const char* const wanted =
      "data: no sample has an image, so the sections that read images never run, and learn nothing";
  EXPECT_EQ(std::ranges::count(notes, wanted), 1);
  job.path = (rows / "list.json").string();
  job.images = (rows / "images").string();
  notes.clear();
  (void)open_corpus(job, 1, [&](const std::string& line) { notes.push_back(line); });
  EXPECT_EQ(std::ranges::count(notes, wanted), 0);
}

TEST_F(PreparedImagesOf, mixtures_read_images_of_their_parts) {
  auto first = std::make_unique<PreparedCorpus>(prepare(options(rows / "list.json"), "a"), config());
  auto second = std::make_unique<PreparedCorpus>(prepare(options(rows / "cauldron.parquet"), "b"), config());
  const Sample expected = read(*second, Split::train, SampleId(0));
  const std::int64_t most = std::max(first->max_visual(), second->max_visual());
  const SampleId at(first->samples(Split::train));
  std::vector<MixedPart> parts;
  parts.push_back({"a", 1, std::move(first), {}});
  parts.push_back({"b", 1, std::move(second), {}});
  const MixedCorpus mix(std::move(parts));
  EXPECT_EQ(read(mix, Split::train, at), expected);
  EXPECT_EQ(mix.max_visual(), most);
}

TEST_F(PreparedImagesOf, a_job_prepares_its_rows_once) {
  const PreparedCorpus expected(prepare(options(rows / "list.json"), "expected"), config());
  DataConfig job = config();
  job.kind = DataKind::llava;
  job.path = (rows / "list.json").string();
  job.processor = job.tokenizer = (references / "images/smolvlm").string();
  job.validation_fraction = 0.3;
  job.work_folder = (folder_.path() / "work").string();
  std::vector<std::string> notes;
  const auto note = [&](const std::string& line) { notes.push_back(line); };
  EXPECT_EQ(open_corpus(job, 1, note)->fingerprint(), expected.fingerprint());
  EXPECT_EQ(std::ranges::count_if(notes, [](const auto& line) { return line.starts_with("prepared 12 rows"); }), 1);
  notes.clear();
  job.kind = DataKind::chat;
  (void)open_corpus(job, 1, note);
  EXPECT_FALSE(notes.empty());  // another kind expects other rows
  notes.clear();
  (void)open_corpus(job, 1, note);
  EXPECT_TRUE(notes.empty());
  job.resample_order = ResampleOrder::horizontal;
  EXPECT_NE(open_corpus(job, 1, note)->fingerprint(), expected.fingerprint());
}

TEST_F(PreparedImagesOf, threads_read_the_same_rows) {
  const PreparedCorpus corpus(prepare(options(rows / "list.json"), "out"), config());
  const std::vector<Sample> expected = read_all(corpus);
  std::vector<std::vector<Sample>> made(4);
  std::vector<std::jthread> threads;
  for (auto& each : made) threads.emplace_back([&] { each = read_all(corpus); });
  threads.clear();
  for (const auto& each : made) EXPECT_EQ(each, expected);
}

}  // namespace
}  // namespace maestro::prepared_images
