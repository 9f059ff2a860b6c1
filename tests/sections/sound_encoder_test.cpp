// SPDX-License-Identifier: Apache-2.0
// The encoder and the projector of a model with sounds. image_text_reference_test.cpp compares both with transformers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/files/safetensors.hpp"
#include "sections/state_io.hpp"
#include "tests/sections/parallel_vision.hpp"
#include "tests/sections/vision_images.hpp"
#include "tests/support/one_line.hpp"

namespace maestro::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// The recorded encoder, and its inputs: sounds with 5 and 6, 0, 20, and 7 rows.
struct Heard {
  Heard()
      : folder(reference_folder("image_text") / "qwen2_audio"),
        file(SafetensorsFile::open(folder / "expected.safetensors").value_or_throw()),
        vision(bench.context("vision", true), {read_hf_vision_config(folder).value_or_throw(), {}}) {
    load_weights(vision, folder).or_throw();
    const ConstTensor pixels = file.tensor("pixels").value_or_throw();
    pictures.columns = pixels.columns();
    pictures.pixels.assign(pixels.data<float>(), pixels.data<float>() + pixels.elements());
    pictures.places = integers(file, "places");
    pictures.counts = {11, 0, 20, 7};
  }
  /// Returns the features of some rows.
  std::vector<float> features(const Pictures& rows) {
    const Batch batch = rows.batch();
    MicroBatch pass(bench, vision, batch, Pass::evaluate);
    rows.connect(pass);
    pass.forward();
    const auto found = pass.output("features").span<float>();
    return {found.begin(), found.end()};
  }
  Bench bench;
  std::filesystem::path folder;
  SafetensorsFile file;
  VisionEncoder vision;
  Pictures pictures;
};

TEST(SoundEncoder, hears_packed_sounds_one_by_one) {  // VE-1
  Heard heard;
  const std::vector<float> packed = heard.features(heard.pictures.part(0, 11));  // 5 and 6 rows
  Pictures second = heard.pictures.part(5, 6);
  std::vector<float> apart = heard.features(heard.pictures.part(0, 5));
  const std::vector<float> last = heard.features(second);
  apart.insert(apart.end(), last.begin(), last.end());
  ASSERT_EQ(apart.size(), packed.size());
  for (std::size_t at = 0; at < packed.size(); ++at) ASSERT_NEAR(apart[at], packed[at], 5e-6) << at;
}

TEST(SoundEncoder, keeps_positions_and_absent_biases_in_training) {  // VE-6
  Heard heard;
  Parameters& parameters = heard.vision.parameters();
  for (float& value : parameters.gradients()) value = 1;  // of an earlier micro-batch
  const Batch batch = heard.pictures.batch();
  MicroBatch pass(heard.bench, heard.vision, batch);
  heard.pictures.connect(pass);
  pass.forward();
  const OwnedTensor gradient = random_tensor(3, heard.pictures.rows(), 16);
  parameters.clear_gradients(*heard.bench.ops);
  pass.seed("features", gradient);
  pass.backward();
  bool table = false;
  for (Parameter& parameter : parameters.all()) {
    const auto values = parameter.gradient().span<float>();
    const auto zero = [](float value) { return value == 0; };
    if (parameter.name().ends_with("position_embedding.weight")) {
      table = std::ranges::all_of(values, zero);
    } else if (parameter.name().ends_with("qkv_proj.bias")) {
      EXPECT_TRUE(std::ranges::all_of(values.subspan(16, 16), zero)) << parameter.name();
      EXPECT_FALSE(std::ranges::all_of(values.first(16), zero)) << parameter.name();
    } else {
      EXPECT_FALSE(std::ranges::all_of(values, zero)) << parameter.name();
    }
  }
  EXPECT_TRUE(table);
}

TEST(SoundEncoder, refuses_a_sound_longer_than_its_positions_by_the_sample) {
  Heard heard;
  Pictures long_sound = heard.pictures.part(0, 5);
  long_sound.places[13] = 20;
  try {
    (void)heard.features(long_sound);
    FAIL() << "accepted";
  } catch (const JobError& error) {
    EXPECT_THAT(std::string(error.what()),
                AllOf(HasSubstr("sample 0: sound 0 has 21 rows, more than the position table's 20; cut the sounds"), IsOneLine()));
  }
}

TEST(SoundProjector, drops_the_rest_of_each_sound_and_needs_its_places) {  // PN-1
  Bench bench;
  const ProjectorConfig config{.vision_width = 4, .width = 8, .products = 1, .pool = 2, .drops_rest = true};
  const auto refusal = [&](const std::vector<std::int32_t>& sounds, std::int32_t visual, bool connected) {
    Projector projector(bench.context("projector", false), {config, {}, {}});
    Batch batch({0}, {0}, {0, 1});
    batch.with_patches({static_cast<std::int32_t>(sounds.size())}).with_visual({visual});
    const OwnedTensor features = random_tensor(5, std::ssize(sounds), 4);
    std::vector<std::int32_t> places;
    for (const std::int32_t sound : sounds) places.insert(places.end(), {sound, 0, 0});
    MicroBatch pass(bench, projector, batch, Pass::evaluate);
    pass.connect("features", features);
    if (connected) pass.connect("places", Tensor(places.data(), DType::i32, Shape{std::ssize(sounds), 3}));
    try {
      pass.forward();
    } catch (const JobError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refusal({0, 0, 0, 1, 1, 1, 1, 1}, 3, true), "accepted");
  EXPECT_THAT(refusal({0, 0, 0, 1, 1, 1, 1, 1}, 4, true), HasSubstr("sample 0 has 8 rows of features for 4 rows"));
  EXPECT_EQ(refusal({0, 0, 0}, 1, false),
            "projector: nothing is connected to places, but the model drops rows at a tile's end");
}

}  // namespace
}  // namespace maestro::testing
