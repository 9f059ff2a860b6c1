// SPDX-License-Identifier: Apache-2.0
#include "runtime/images/image_processor.hpp"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "tests/data/temp_folder.hpp"
#include "tests/images/made_image.hpp"

namespace maestro {
namespace {

using Json = nlohmann::json;

const Json& recorded() {
  static const Json all =
      Json::parse(contents_of(std::filesystem::path(MAESTRO_SOURCE_DIR) / "tests/images/references/processors.json"));
  return all;
}

Result<ImageSettings> settings_of(const Json& file, PassOrder order = PassOrder::pillow13) {
  const TempFolder folder;
  folder.write("preprocessor_config.json", file.dump());
  return read_image_settings(folder.path(), order);
}

std::string refusal(const Json& file) {
  const auto read = settings_of(file);
  return read ? "accepted" : read.error().message.substr(read.error().message.find(".json: ") + 7);
}

EncoderGrid encoder_of(const Json& patches) {
  EncoderGrid encoder;
  encoder.patch = patches.at("patch");
  encoder.merge = patches.value("merge", 1);
  encoder.class_row = patches.value("class_row", false);
  encoder.keeps_class_row = patches.value("keeps_class_row", false);
  return encoder;
}

ImageProcessor processor_of(const std::string& name, const std::string& order = "pillow13") {
  const Json& entry = recorded().at(name);
  const PassOrder passes = order == "pillow13" ? PassOrder::pillow13 : PassOrder::horizontal;
  return {settings_of(entry.at("image_processor"), passes).value_or_throw(), encoder_of(entry.at("patches"))};
}

TEST(ImageProcessor, tiles_equal_those_of_transformers_byte_for_byte) {  // IM-1
  const auto lines = reference_lines("tiles");
  ASSERT_EQ(lines.size(), 1384u);
  for (const auto& line : lines) {
    const ImageSize size{std::stoll(line[3]), std::stoll(line[4])};
    const ImageProcessor processor = processor_of(line[0], line[1]);
    const ImagePlan plan = processor.plan(size, std::stoll(line[2])).value_or_throw();
    const std::vector<Image> tiles = processor.tiles(made_image(size), plan);
    std::vector<std::string> crcs;
    for (const Image& tile : tiles) crcs.push_back(crc_of(tile));
    EXPECT_EQ(crcs, std::vector<std::string>(line.begin() + 5, line.end()))
        << line[0] << ", " << line[1] << ", " << line[2] << " images: " << line[3] << " x " << line[4];
  }
}

TEST(ImageProcessor, rows_equal_the_floats_of_transformers_in_blocks_of_patches) {
  const auto lines = reference_lines("rows");
  ASSERT_EQ(lines.size(), 48u);
  for (const auto& line : lines) {
    const ImageSize size{std::stoll(line[1]), std::stoll(line[2])};
    const ImageProcessor processor = processor_of(line[0]);
    const ImagePlan plan = processor.plan(size).value_or_throw();
    const std::int64_t patch = recorded().at(line[0]).at("patches").at("patch");
    std::vector<float> pixels(static_cast<std::size_t>(plan.encoder_rows * 3 * patch * patch));
    std::vector<std::int32_t> places(static_cast<std::size_t>(plan.encoder_rows * 3));
    processor.rows(processor.tiles(made_image(size), plan), pixels, places);
    EXPECT_EQ(crc_text(pixels.data(), pixels.size() * sizeof(float)), line[3]) << line[0] << ": " << line[1];
  }
}

std::string plan_line(const ImageProcessor& processor, ImageSize size) {
  const auto plan = processor.plan(size);
  std::string text = std::to_string(size.width) + " " + std::to_string(size.height);
  if (!plan) return text + " refused\n";
  for (const std::int64_t count : {std::ssize(plan->tiles), plan->cut.rows, plan->cut.columns, plan->visual_rows}) {
    text += " " + std::to_string(count);
  }
  return text + "\n";
}

TEST(ImageProcessor, plans_equal_those_of_transformers_for_5000_sizes) {  // IM-2
  const auto lines = reference_lines("plans");
  ASSERT_EQ(lines.size(), recorded().size());
  for (const auto& line : lines) {
    const ImageProcessor processor = processor_of(line[0]);
    std::uint32_t n = 0;
    for (std::size_t block = 1; block < line.size(); ++block) {
      std::string text;
      for (const std::uint32_t end = n + 50; n < end; ++n) {
        const std::uint32_t most = n % 4 == 0 ? 40 : 3000;
        text += plan_line(processor, {1 + mixed_bits(2 * n) % most, 1 + mixed_bits(2 * n + 1) % most});
      }
      EXPECT_EQ(crc_text(text.data(), text.size()), line[block]) << line[0] << ":\n" << text;
    }
    EXPECT_EQ(n, 5000u);
  }
}

TEST(ImageProcessor, the_place_of_a_row_is_its_patch_in_the_tile) {
  const ImageProcessor processor = processor_of("smolvlm_whole");
  const ImagePlan plan = processor.plan({64, 64}).value_or_throw();
  std::vector<float> pixels(16 * 3 * 16 * 16);
  std::vector<std::int32_t> places(16 * 3);
  processor.rows(processor.tiles(made_image({64, 64}), plan), pixels, places);
  EXPECT_EQ(std::vector<std::int32_t>(places.begin(), places.begin() + 15),
            (std::vector<std::int32_t>{0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 1, 1, 0, 0, 2}));
  EXPECT_THROW(processor.rows({}, pixels, places), std::invalid_argument);
  EXPECT_THROW((void)processor.tiles(made_image({63, 64}), plan), std::invalid_argument);
}

TEST(ImageProcessor, keys_are_used_known_or_refused_by_name) {  // IM-3
  for (const auto& [name, entry] : recorded().items()) {
    for (const auto& [key, value] : entry.at("image_processor").items()) {
      Json file = entry.at("image_processor");
      file.erase(key);
      file[key + "_"] = value.is_boolean() ? Json(true) : value.is_null() ? Json(1) : value;
      EXPECT_NE(refusal(file), "accepted") << name << ": " << key;
    }
  }
  const Json clip{{"image_processor_type", "CLIPImageProcessorFast"}};
  const auto with = [&](const std::string& key, const Json& value) {
    Json file = clip;
    file[key] = value;
    return refusal(file);
  };
  EXPECT_EQ(refusal(clip), "accepted");
  EXPECT_EQ(with("resample", nullptr), "accepted");
  EXPECT_EQ(with("do_resize", false), "do_resize = false is not supported; only true is");
  EXPECT_EQ(with("resample", 4), "resample: expected a whole number from 0 to 3, got 4");
  EXPECT_EQ(with("crop_size", 300), "crop_size = 300 does not fit size = null");
  EXPECT_EQ(with("image_processor_type", "ViTImageProcessor").substr(0, 60),
            "image_processor_type = \"ViTImageProcessor\" is not supported;");
  EXPECT_EQ(refusal(Json{{"image_processor_type", "Gemma3ImageProcessor"}, {"do_pan_and_scan", true}}),
            "do_pan_and_scan = true is not supported; only false is");
}

TEST(ImageProcessor, settings_come_from_processor_config_or_preprocessor_config) {
  const TempFolder folder;
  EXPECT_EQ(read_image_settings(folder.path()).error().code, ErrorCode::not_found);
  folder.write("preprocessor_config.json", R"({"image_processor_type": "GotOcr2ImageProcessorFast", "size": 56})");
  folder.write("processor_config.json", R"({"processor_class": "InternVLProcessor", "image_seq_length": 256})");
  const auto most = [&] {
    return std::get<AspectTiles>(read_image_settings(folder.path()).value_or_throw().geometry).most;
  };
  EXPECT_EQ(most(), 12) << "InternVL's processor cuts images, whatever the file has";
  folder.write("processor_config.json", R"({"image_processor": {"image_processor_type": "GotOcr2ImageProcessor"}})");
  EXPECT_EQ(most(), 1);
}

TEST(ImageProcessor, min_pixels_and_max_pixels_come_before_size) {
  Json file{{"image_processor_type", "Qwen2VLImageProcessor"},
            {"size", {{"shortest_edge", 3136}, {"longest_edge", 9999}}}};
  const auto native = [&] { return std::get<NativeTile>(settings_of(file).value_or_throw().geometry); };
  EXPECT_EQ(native().largest_area, 9999);
  file["max_pixels"] = 12345;
  EXPECT_EQ(native().largest_area, 12345);
  EXPECT_EQ(native().smallest_area, 3136);
}

TEST(ImageProcessor, a_model_that_disagrees_with_the_file_is_refused) {
  const ImageSettings qwen = settings_of(recorded().at("qwen2_vl").at("image_processor")).value_or_throw();
  EXPECT_THROW(ImageProcessor(qwen, EncoderGrid{16, 2}), JobError);
  const ImageSettings siglip = settings_of(recorded().at("paligemma").at("image_processor")).value_or_throw();
  EXPECT_THROW(ImageProcessor(siglip, EncoderGrid{7}), JobError) << "image_seq_length is 49";
  EXPECT_THROW(ImageProcessor(siglip, EncoderGrid{14, 2}), JobError) << "7 x 7 patches have no blocks of 2 x 2";
}

TEST(ImageProcessor, the_fingerprint_differs_with_every_setting) {  // IM-4
  std::map<std::string, std::string> seen;
  for (const auto& [name, entry] : recorded().items()) {
    for (const char* order : {"pillow13", "horizontal"}) {
      const std::string text = processor_of(name, order).fingerprint();
      EXPECT_EQ(text, processor_of(name, order).fingerprint());
      const auto [at, added] = seen.emplace(text, name + order);
      EXPECT_TRUE(added) << name << " has the fingerprint of " << at->second;
    }
  }
}

}  // namespace
}  // namespace maestro
