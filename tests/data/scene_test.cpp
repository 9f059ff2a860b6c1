// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>
#include <string>

#include "runtime/data/synthetic/scene_dataset.hpp"
#include "runtime/data/synthetic/scene_generator.hpp"
#include "runtime/data/synthetic/scene_painter.hpp"
#include "runtime/data/text/prepared_corpus.hpp"
#include "tests/data/temp_folder.hpp"

namespace maestro {
namespace {

constexpr std::uint64_t many = 8000;

std::array<int, 3> pixel(const Image& image, std::int64_t x, std::int64_t y) {
  const auto at = static_cast<std::size_t>((y * image.width + x) * 3);
  return {image.pixels[at], image.pixels[at + 1], image.pixels[at + 2]};
}

std::array<int, 3> colour_of(std::size_t colour) {
  const auto& rgb = scene_colours[colour].rgb;
  return {rgb[0], rgb[1], rgb[2]};
}

std::set<std::string> words_in(const std::string& text) {
  std::istringstream stream(text);
  std::set<std::string> words;
  for (std::string word; stream >> word;) words.insert(word);
  return words;
}

/// Returns a generator with small images that are painted fast, for tests of words only.
SceneGenerator words_only() {
  return SceneGenerator({.seed = 5, .image_size = 16});
}

TEST(ScenePainter, an_object_covers_its_middle_and_not_the_corners) {
  for (const std::size_t figure : {0u, 1u, 2u, 3u}) {
    const std::array object{SceneObject{figure, 2, 0.5, 0.5, 0.25}};
    const Image image = paint_scene(object, 32);
    EXPECT_EQ(pixel(image, 16, 17), colour_of(2)) << scene_shapes[figure];
    EXPECT_EQ(pixel(image, 0, 0), pixel(image, 31, 31));
    EXPECT_NE(pixel(image, 0, 0), colour_of(2));
  }
}

TEST(ScenePainter, every_figure_looks_different) {
  std::set<std::string> pictures;
  for (std::size_t figure = 0; figure < scene_figures; ++figure) {
    const Image image = paint_scene(std::array{SceneObject{figure, 0, 0.5, 0.5, 0.4}}, 32);
    pictures.emplace(image.pixels.begin(), image.pixels.end());
  }
  EXPECT_EQ(pictures.size(), scene_figures);
}

TEST(ScenePainter, edges_are_smooth) {
  const Image image = paint_scene(std::array{SceneObject{0, 4, 0.5, 0.5, 0.4}}, 32);
  const std::set<std::uint8_t> values(image.pixels.begin(), image.pixels.end());
  EXPECT_GT(values.size(), 6u);
}

TEST(SceneGenerator, a_sample_depends_on_the_options_the_split_and_the_number) {  // SN-1
  const SceneGenerator scenes({.seed = 3});
  bool other_seed_differs = false;
  for (std::uint64_t number = 0; number < 50; ++number) {
    const SceneSample sample = scenes.draw(Split::train, number);
    const SceneSample again = SceneGenerator({.seed = 3}).draw(Split::train, number);
    EXPECT_EQ(sample.question, again.question);
    EXPECT_EQ(sample.answer, again.answer);
    ASSERT_EQ(sample.pictures.size(), again.pictures.size());
    for (std::size_t at = 0; at < sample.pictures.size(); ++at) {
      EXPECT_EQ(sample.pictures[at].pixels, again.pictures[at].pixels);
    }
    other_seed_differs |= SceneGenerator({.seed = 4}).draw(Split::train, number).combination != sample.combination;
  }
  EXPECT_TRUE(other_seed_differs);
}

TEST(SceneGenerator, no_combination_is_in_both_splits) {  // SN-2
  const SceneGenerator scenes = words_only();
  std::set<std::string> training, validation;
  for (std::uint64_t number = 0; number < many; ++number) {
    training.insert(scenes.draw(Split::train, number).combination);
    validation.insert(scenes.draw(Split::validation, number).combination);
  }
  EXPECT_GT(training.size(), 600u);
  EXPECT_GT(validation.size(), 150u);
  for (const std::string& combination : validation) EXPECT_FALSE(training.contains(combination)) << combination;
}

TEST(SceneGenerator, every_word_that_validation_asks_for_occurs_in_training) {  // SN-3
  const SceneGenerator scenes = words_only();
  std::set<std::string> training;
  for (std::uint64_t number = 0; number < many; ++number) {
    training.merge(words_in(scenes.draw(Split::train, number).answer));
  }
  for (std::uint64_t number = 0; number < many; ++number) {
    for (const std::string& word : words_in(scenes.draw(Split::validation, number).answer)) {
      ASSERT_TRUE(training.contains(word)) << word;
    }
  }
}

TEST(SceneGenerator, a_question_about_a_scene_has_one_answer) {
  const SceneGenerator scenes = words_only();
  std::map<std::string, std::string> answers;
  for (std::uint64_t number = 0; number < many; ++number) {
    const SceneSample sample = scenes.draw(Split::train, number);
    const auto [known, added] = answers.emplace(sample.combination + "|" + sample.question, sample.answer);
    ASSERT_EQ(known->second, sample.answer) << known->first;
    ASSERT_FALSE(sample.answer.empty());
    ASSERT_LE(sample.answer.size(), 32u) << "answers are short";
  }
}

TEST(SceneGenerator, as_many_samples_have_pictures_as_asked_for) {
  const SceneGenerator scenes = words_only();
  std::map<std::size_t, int> samples;
  for (std::uint64_t number = 0; number < many; ++number) ++samples[scenes.draw(Split::train, number).pictures.size()];
  // For 8000 samples with share 0.6, five standard deviations are 219.
  EXPECT_NEAR(samples[1] + samples[2], 4800, 220);
  EXPECT_GT(samples[2], 150) << "two images";
  EXPECT_EQ(SceneGenerator({.picture_share = 0.0}).draw(Split::train, 0).pictures.size(), 0u);
}

TEST(SceneGenerator, refuses_options_out_of_range) {
  EXPECT_THROW(SceneGenerator({.image_size = 8}), JobError);
  EXPECT_THROW(SceneGenerator({.jitter = -1.0}), JobError);
  EXPECT_THROW(SceneGenerator({.picture_share = 1.5}), JobError);
}

DataConfig data_of(const SceneDataset& scenes, const std::filesystem::path& work) {
  DataConfig config;
  config.work_folder = work.string();
  config.kind = DataKind::llava;
  config.path = scenes.train.string();
  config.validation_path = scenes.validation.string();
  config.image_size = 32;
  return config;
}

TEST(SceneDataset, is_read_back_as_it_was_drawn) {
  const TempFolder folder;
  SceneDatasetOptions options;
  options.train_samples = 60;
  options.validation_samples = 20;
  const SceneDataset written = write_scene_dataset(folder.path() / "scenes", options);
  EXPECT_TRUE(written.written);
  const auto opened = open_corpus(data_of(written, folder.path() / "work"), 1);
  const auto& corpus = dynamic_cast<const PreparedCorpus&>(*opened);
  ASSERT_EQ(corpus.samples(Split::train), 60u);
  ASSERT_EQ(corpus.samples(Split::validation), 20u);
  const SceneGenerator scenes(options.scenes);
  for (const Split split : {Split::train, Split::validation}) {
    for (std::uint64_t number = 0; number < corpus.samples(split); ++number) {
      const SceneSample drawn = scenes.draw(split, number);
      const ConversationView view = corpus.view(split, SampleId(number));
      EXPECT_EQ(view.question, drawn.question);
      EXPECT_EQ(view.answer, drawn.answer);
      ASSERT_EQ(view.pictures.size(), drawn.pictures.size());
      for (std::size_t at = 0; at < drawn.pictures.size(); ++at) {
        EXPECT_EQ(decode_image(view.pictures[at])->pixels, drawn.pictures[at].pixels);
      }
    }
  }
}

TEST(SceneDataset, is_written_once_and_again_only_for_other_options_or_when_broken_off) {  // SD-1
  const TempFolder folder;
  SceneDatasetOptions options;
  options.train_samples = 30;
  options.validation_samples = 5;
  EXPECT_TRUE(write_scene_dataset(folder.path(), options).written);
  const std::string train = contents_of(folder.path() / "train.json");
  EXPECT_FALSE(write_scene_dataset(folder.path(), options).written);
  std::filesystem::remove(folder.path() / "scenes.json");  // as after an interrupted write
  std::filesystem::remove(folder.path() / "train.json");
  folder.write("images/left-over.png", "half");
  EXPECT_TRUE(write_scene_dataset(folder.path(), options).written);
  EXPECT_EQ(contents_of(folder.path() / "train.json"), train);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "images/left-over.png"));
  options.scenes.seed = 2;
  EXPECT_TRUE(write_scene_dataset(folder.path(), options).written);
  EXPECT_NE(contents_of(folder.path() / "train.json"), train);
}

TEST(SceneDataset, a_folder_that_cannot_be_written_is_named) {
  const TempFolder folder;
  folder.write("file", "");
  try {
    (void)write_scene_dataset(folder.path() / "file" / "scenes", {});
    FAIL() << "accepted";
  } catch (const JobError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr((folder.path() / "file" / "scenes").string()));
  }
}

}  // namespace
}  // namespace maestro
