// SPDX-License-Identifier: Apache-2.0
// Prepared data as another model reads them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "runtime/data/mixed_corpus.hpp"
#include "runtime/data/text/prepared_corpus.hpp"
#include "runtime/dataset/prepare.hpp"
#include "tests/data/temp_folder.hpp"

namespace maestro::other_reading {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

const fs::path references = fs::path(MAESTRO_SOURCE_DIR) / "tests/dataset/references";

/// Everything that a run reads of a sample.
struct Sample {
  std::vector<std::int32_t> tokens, targets, places, marks;
  std::vector<float> pixels;
  friend bool operator==(const Sample&, const Sample&) = default;
};

std::vector<Sample> read_all(const Corpus& corpus) {
  std::vector<Sample> made;
  for (std::uint64_t at = 0; at < corpus.samples(Split::train); ++at) {
    const SampleId id(at);
    EXPECT_TRUE(corpus.prepare(Split::train, id));
    const auto length = static_cast<std::size_t>(corpus.length(Split::train, id));
    EXPECT_LE(corpus.length(Split::train, id), corpus.max_length());
    const SamplePictures pictures = corpus.pictures(Split::train, id);
    Sample& sample = made.emplace_back();
    sample.tokens.resize(length);
    sample.targets.resize(length);
    sample.marks.resize(length * mark_columns);
    sample.places.resize(static_cast<std::size_t>(3 * pictures.patches));
    sample.pixels.resize(static_cast<std::size_t>(corpus.patch_columns() * pictures.patches));
    corpus.read(Split::train, id, sample.tokens, sample.targets);
    corpus.read_marks(Split::train, id, sample.marks);
    corpus.read_pictures(Split::train, id, sample.pixels, sample.places);
    EXPECT_EQ(std::ranges::count(sample.tokens, image_token), pictures.visual);
  }
  return made;
}

class OtherReading : public ::testing::Test {
 protected:
  /// Returns a model of the references with changed files.
  fs::path changed(const std::string& model, const std::string& name,
                   const std::map<std::string, std::function<void(json&)>>& changes) {
    const fs::path made = folder_.path() / name;
    fs::copy(references / "images" / model, made);
    for (const auto& [file, change] : changes) {
      std::ifstream in(made / file);
      json content = json::parse(in);
      in.close();
      change(content);
      std::ofstream(made / file) << content;
    }
    return made;
  }
  fs::path prepared(const fs::path& model, const std::string& name) {
    PrepareOptions options;
    options.inputs = {references / "image_rows/list.json"};
    options.processor = model;
    options.tokenizer = model.string();
    options.chat_template = "auto";
    options.images = references / "image_rows/images";
    options.validation_fraction = 0;
    options.jobs = 2;
    PrepareCalls calls;
    calls.warn = [](const std::string&) {};
    (void)prepare_data(options, folder_.path() / name, calls);
    return folder_.path() / name;
  }
  [[nodiscard]] static DataConfig config() {
    DataConfig made;
    made.kind = DataKind::prepared;
    made.sequence = 4096;
    return made;
  }
  /// Compares a model's reading of data that `model` prepared with data that it prepared itself.
  void compare(const std::string& model, const fs::path& other, bool rewrites) {
    const PreparedCorpus read(prepared(references / "images" / model, model + " of " + other.filename().string()),
                              config(), other);
    const PreparedCorpus expected(prepared(other, "by " + other.filename().string()), config());
    EXPECT_EQ(read.rewrites_tokens(), rewrites) << other;
    EXPECT_EQ(read_all(read), read_all(expected)) << other;
    EXPECT_EQ(read.max_length(), expected.max_length());
    EXPECT_EQ(read.max_patches(), expected.max_patches());
    EXPECT_EQ(read.max_visual(), expected.max_visual());
    EXPECT_EQ(read.patch_columns(), expected.patch_columns());
    EXPECT_EQ(read.fingerprint().at("data.processor"), expected.fingerprint().at("data.processor"));
    for (std::uint64_t at = 0; at < read.samples(Split::train); ++at) {
      EXPECT_EQ(read.targets(Split::train, SampleId(at)), expected.targets(Split::train, SampleId(at)));
    }
  }
  std::string refusal(const fs::path& other) {
    const fs::path data = folder_.path() / "data";
    if (!fs::exists(data)) (void)prepared(references / "images/smolvlm", "data");
    try {
      (void)PreparedCorpus(data, config(), other);
      return "accepted";
    } catch (const JobError& problem) {
      return problem.what();
    }
  }

  TempFolder folder_;
};

void swap_ids(json& tokenizer, const std::string& one, const std::string& other) {
  json *first = nullptr, *second = nullptr;
  for (json& token : tokenizer["added_tokens"]) {
    if (token["content"] == one) first = &token;
    if (token["content"] == other) second = &token;
  }
  std::swap((*first)["content"], (*second)["content"]);
}

TEST_F(OtherReading, has_the_images_of_its_processor_and_the_same_tokens) {
  const auto other_means = [](json& content) { content["image_processor"]["image_mean"] = {0.25, 0.5, 0.75}; };
  for (const std::string model : {"smolvlm", "llava", "llava_onevision", "internvl", "gemma3", "qwen2_5_vl"}) {
    compare(model, changed(model, model + "-means", {{"processor_config.json", other_means}}), false);
  }
  const auto other_patches = [](json& content) {
    content["vision_config"]["patch_size"] = 4;
    content["scale_factor"] = 4;
  };
  compare("smolvlm", changed("smolvlm", "patches", {{"config.json", other_patches}}), false);
}

TEST_F(OtherReading, has_its_own_tokens_for_images) {  // OT-2
  compare("smolvlm",
          changed("smolvlm", "longer",
                  {{"config.json", [](json& content) { content["scale_factor"] = 1; }},
                   {"processor_config.json", [](json& content) { content["image_seq_len"] = 16; }}}),
          true);
  compare("llava",
          changed("llava", "larger",
                  {{"config.json", [](json& content) { content["vision_config"]["image_size"] = 42; }},
                   {"processor_config.json",
                    [](json& content) {
                      content["image_processor"]["crop_size"] = {{"height", 42}, {"width", 42}};
                      content["image_processor"]["size"] = {{"shortest_edge", 42}};
                    }}}),
          true);
  compare("internvl",
          changed("internvl", "finer",
                  {{"config.json",
                    [](json& content) {
                      content["downsample_ratio"] = 1.0;
                      content["image_seq_length"] = 16;
                    }},
                   {"processor_config.json", [](json& content) { content["image_seq_length"] = 16; }}}),
          true);
  compare("smolvlm",
          changed("smolvlm", "swapped",
                  {{"config.json", [](json& content) { content["image_token_id"] = 702; }},
                   {"tokenizer.json", [](json& content) { swap_ids(content, "<image>", "<global-img>"); }}}),
          true);
}

TEST_F(OtherReading, that_does_not_fit_is_refused_by_name) {  // OT-1, OT-3
  const fs::path ended =
      changed("smolvlm", "ended",
              {{"tokenizer.json", [](json& content) { swap_ids(content, "<end_of_utterance>", "<row_6_col_6>"); }}});
  EXPECT_THAT(refusal(ended),
              HasSubstr("train-00000.safetensors, token 0: answer token 703 (<end_of_utterance>) is 739 "
                        "(<end_of_utterance>) in " +
                        ended.string() + "; teacher and student need the same ids in answers"));
  const fs::path foreign =
      changed("smolvlm", "foreign", {{"tokenizer.json", [](json& content) {
                                        for (auto& [text, id] : content["model"]["vocab"].items()) {
                                          if (id == 300)
                                            id = 301;
                                          else if (id == 301)
                                            id = 300;
                                        }
                                      }}});
  EXPECT_THAT(refusal(foreign), HasSubstr(foreign.string() + " has another tokenizer than the data: token 300 is "));
  const fs::path brief = changed("smolvlm", "brief",
                                 {{"config.json",
                                   [](json& content) {
                                     content["scale_factor"] = 1;
                                     content["text_config"]["max_position_embeddings"] = 100;
                                   }},
                                  {"processor_config.json", [](json& content) { content["image_seq_len"] = 16; }}});
  EXPECT_THAT(refusal(brief), HasSubstr(" for " + brief.string() + ", which has 100 positions; lower data.sequence"));
  EXPECT_THAT(refusal(brief), HasSubstr("train-00000.safetensors, token 0: the sample has "));
}

}  // namespace
}  // namespace maestro::other_reading
