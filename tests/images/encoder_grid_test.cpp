// SPDX-License-Identifier: Apache-2.0
#include "runtime/images/encoder_grid.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/temp_folder.hpp"

namespace maestro {
namespace {

using ::testing::HasSubstr;

class EncoderGridOf : public ::testing::Test {
 protected:
  void write(const char* name, const std::string& text) const { folder_.write(name, text); }
  [[nodiscard]] EncoderGrid grid() const { return read_encoder_grid(folder_.path()).value_or_throw(); }
  [[nodiscard]] std::string refusal() const {
    const auto grid = read_encoder_grid(folder_.path());
    return grid ? "accepted" : grid.error().message;
  }
  TempFolder folder_;
};

TEST_F(EncoderGridOf, a_llava_has_a_class_row_that_the_decoder_receives_if_all_features_are_selected) {
  write("config.json", R"({"model_type": "llava", "text_config": {}})");
  EXPECT_EQ(grid().patch, 14);
  EXPECT_EQ(grid().merge, 1);
  EXPECT_TRUE(grid().class_row);
  EXPECT_FALSE(grid().keeps_class_row);
  EXPECT_EQ(read_image_token(folder_.path()).value_or_throw(), 32000);
  write("config.json", R"({"model_type": "llava", "text_config": {}, "vision_feature_select_strategy": "full"})");
  EXPECT_TRUE(grid().keeps_class_row);
}

TEST_F(EncoderGridOf, a_smolvlm_joins_blocks) {
  write("config.json", R"({"model_type": "smolvlm", "text_config": {}, "scale_factor": 4, "image_token_id": 7,
    "vision_config": {"image_size": 512, "patch_size": 16}})");
  EXPECT_EQ(grid().patch, 16);
  EXPECT_EQ(grid().merge, 4);
  EXPECT_FALSE(grid().class_row);
  EXPECT_EQ(read_image_token(folder_.path()).value_or_throw(), 7);
}

TEST_F(EncoderGridOf, a_gemma3_averages_blocks) {
  write("config.json", R"({"model_type": "gemma3", "text_config": {}, "mm_tokens_per_image": 256,
    "vision_config": {"model_type": "siglip_vision_model", "image_size": 896, "patch_size": 14}})");
  EXPECT_EQ(grid().merge, 4);
  EXPECT_EQ(read_image_token(folder_.path()).value_or_throw(), 262144);
}

TEST_F(EncoderGridOf, a_onevision_fits_images_into_the_canvases_of_its_image_settings) {
  write("config.json", R"({"model_type": "llava_onevision", "text_config": {}, "vision_aspect_ratio": "anyres_max_4",
    "image_grid_pinpoints": [[384, 768], [768, 384]]})");
  EXPECT_THAT(refusal(), HasSubstr("preprocessor_config.json"));
  write("preprocessor_config.json", R"({"image_processor_type": "LlavaOnevisionImageProcessor",
    "image_grid_pinpoints": [[384, 768], [768, 384]]})");
  EXPECT_EQ(grid().most_tiles, 4);
  EXPECT_FALSE(grid().class_row);
  write("preprocessor_config.json", R"({"image_processor_type": "LlavaOnevisionImageProcessor",
    "image_grid_pinpoints": [[768, 384], [384, 768]]})");
  EXPECT_THAT(refusal(), HasSubstr("config.json: image_grid_pinpoints differs from the canvases in "));
}

TEST_F(EncoderGridOf, a_model_of_another_type_is_refused_by_name) {
  write("config.json", R"({"model_type": "llama"})");
  EXPECT_THAT(refusal(), HasSubstr("model_type = \"llama\" is not supported for images or sounds; these are: llava, "));
  EXPECT_FALSE(read_image_token(folder_.path()).ok());
}

}  // namespace
}  // namespace maestro
