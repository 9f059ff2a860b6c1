// SPDX-License-Identifier: Apache-2.0
// A model for images and sounds in the folder of transformers: five sections that begin from it, against results of
// record_vision_references.py. Both sides compute in fp32.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "runtime/data/corpus.hpp"
#include "runtime/data/image/mark_rows.hpp"
#include "runtime/model/hf_config.hpp"
#include "runtime/model/text_part.hpp"
#include "sections/decoder/completions.hpp"
#include "sections/state_io.hpp"
#include "tests/sections/parallel_vision.hpp"
#include "tests/sections/renamed_tensors.hpp"
#include "tests/support/one_line.hpp"

namespace maestro::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<std::int32_t> row_counts(const SafetensorsFile& file, const std::string& offsets) {
  std::vector<std::int32_t> counts = integers(file, offsets);
  std::adjacent_difference(counts.begin(), counts.end(), counts.begin());
  counts.erase(counts.begin());
  return counts;
}

/// An encoder with its projector.
struct Tower {
  Tower(const Bench& bench, const fs::path& folder, Modality modality, const char* name)
      : encoder(bench.context(name, true), {read_hf_vision_config(folder, modality).value_or_throw(), {}}),
        projector(bench.context(name, true), {read_hf_projector_config(folder, modality).value_or_throw(), {}, {}}) {
    load_weights(encoder, folder).or_throw();
    load_weights(projector, folder).or_throw();
  }
  VisionEncoder encoder;
  Projector projector;
};

struct TowerPass {
  TowerPass(Bench& bench, Tower& tower, const Batch& batch, const Pictures& pictures)
      : encoding(bench, tower.encoder, batch), projecting(bench, tower.projector, batch) {
    pictures.connect(encoding);
    encoding.forward();
    projecting.connect("features", encoding.output("features"), true);
    projecting.connect("places", pictures.place_tensor());
    projecting.forward();
  }
  void backward(const Tensor& gradient) {
    projecting.seed("visual", gradient);
    projecting.backward();
    encoding.seed("features", projecting.input("features").gradient());
    encoding.backward();
  }
  MicroBatch encoding, projecting;
};

class Omni : public ::testing::Test {
 protected:
  Omni()
      : file_(SafetensorsFile::open(folder_ / "expected.safetensors").value_or_throw()),
        batch_(integers(file_, "tokens"), integers(file_, "targets"), integers(file_, "offsets")),
        heard_(batch_),
        images_(pictures_of("", "patch_offsets")),
        sounds_(pictures_of("sound_", "frame_offsets")) {
    batch_.with_patches(images_.counts).with_visual(row_counts(file_, "visual_offsets"));
    heard_.with_patches(sounds_.counts).with_visual(row_counts(file_, "heard_offsets"));
    batch_.heard_offsets = heard_.visual_offsets;
    batch_.heard_positions = heard_.visual_positions;
  }
  [[nodiscard]] Pictures pictures_of(const std::string& start, const std::string& offsets) const {
    Pictures pictures;
    pictures.counts = row_counts(file_, offsets);
    pictures.places = integers(file_, start + "places");
    const ConstTensor pixels = file_.tensor(start + "pixels").value_or_throw();
    pictures.columns = pixels.columns();
    pictures.pixels.assign(pixels.data<float>(), pixels.data<float>() + pixels.elements());
    return pictures;
  }
  [[nodiscard]] ConstTensor at(const std::string& name) const { return file_.tensor(name).value_or_throw(); }

  using Gradients = std::map<ModelPart, TensorSnapshot>;
  /// Compares each stored tensor's gradient; `type` gives the names.
  void expect_gradients(const Gradients& found, const fs::path& folder, const std::string& type) const {
    const SafetensorsFile weights = SafetensorsFile::open(folder / "model.safetensors").value_or_throw();
    std::size_t compared = 0, held = 0;
    for (const std::string& stored : weights.names()) {
      SCOPED_TRACE(stored);
      const PartName own = part_name(type, stored).value();
      if (own.part == ModelPart::other) continue;
      const auto& tensors = found.at(own.part).tensors;
      const auto gradient = std::ranges::find(tensors, own.name, &NamedTensor::name);
      ASSERT_NE(gradient, tensors.end());
      const std::string name = stored.starts_with("thinker.") ? stored.substr(8) : stored;
      const ConstTensor expected = at("gradient." + name);
      double largest = 1e-3;  // gradients of key biases are only rounding errors
      for (const float value : expected.span<float>()) largest = std::max(largest, std::abs(double{value}));
      EXPECT_LT(largest_difference(gradient->tensor, expected.reshaped(gradient->tensor.shape())), 1e-4 * largest);
      ++compared;
    }
    for (const auto& [part, snapshot] : found) held += snapshot.tensors.size();
    EXPECT_EQ(compared, held);
  }
  void expect_loss_and_gradients(const fs::path& folder, const std::string& type) {
    Tower vision(bench_, folder, Modality::image, "vision"), audio(bench_, folder, Modality::sound, "audio");
    DataShape data;
    data.sounds = true;
    VisionLanguageDecoder decoder(bench_.context("decoder", true),
                                  {read_hf_config(folder).value_or_throw(), {}, data, {}});
    load_weights(decoder, folder).or_throw();
    TowerPass seen(bench_, vision, batch_, images_), heard(bench_, audio, heard_, sounds_);
    const std::vector<std::int32_t> marks = integers(file_, "marks");
    MicroBatch deciding(bench_, decoder, batch_);
    deciding.connect("visual", seen.projecting.output("visual"), true);
    deciding.connect("heard", heard.projecting.output("visual"), true);
    deciding.connect("marks", mark_tensor(marks));
    deciding.forward();
    EXPECT_NEAR(deciding.metric("loss"), at("loss").data<float>()[0], 1e-5);
    deciding.backward();
    seen.backward(deciding.input("visual").gradient());
    heard.backward(deciding.input("heard").gradient());
    Gradients gradients;
    const std::pair<ModelPart, Section*> parts[] = {{ModelPart::vision, &vision.encoder},
                                                    {ModelPart::projector, &vision.projector},
                                                    {ModelPart::audio, &audio.encoder},
                                                    {ModelPart::audio_projector, &audio.projector},
                                                    {ModelPart::language_model, &decoder}};
    for (const auto& [part, section] : parts) {
      gradients.emplace(part, export_tensors(*section, ParameterBuffer::gradients).value_or_throw());
    }
    expect_gradients(gradients, folder, type);
  }

  fs::path folder_ = reference_folder("omni");
  SafetensorsFile file_;
  Bench bench_;
  Batch batch_, heard_;  // of images and text, and of sounds
  Pictures images_, sounds_;
  TemporaryFolder out_;
};

TEST_F(Omni, five_sections_have_the_loss_and_the_gradients_of_transformers) {  // HI-1, OS-4
  expect_loss_and_gradients(folder_, "qwen2_5_omni_thinker");
}

TEST_F(Omni, is_found_under_the_names_of_modules_and_in_the_complete_model) {  // FP-1, FP-2, HI-3
  const json modules = json::parse(read_text(folder_ / "names.json").value_or_throw());
  fs::copy_file(folder_ / "config.json", out_.path() / "config.json");
  write_renamed(folder_ / "model.safetensors", modules, out_.path() / "model.safetensors");
  const SafetensorsFile raw = SafetensorsFile::open(out_.path() / "model.safetensors").value_or_throw();
  for (const std::string& stored : raw.names()) EXPECT_TRUE(part_name("qwen2_5_omni_thinker", stored)) << stored;
  json complete = json::object(), names = json::object();
  complete["model_type"] = "qwen2_5_omni";
  complete["thinker_config"] = json::parse(read_text(folder_ / "config.json").value_or_throw());
  complete["talker_config"] = {{"vocab_size", 3}};
  complete["token2wav_config"] = {{"dit_config", json::object()}};
  for (const auto& [stored, module] : modules.items()) names[stored] = "thinker." + stored;
  (void)write_file(out_.path() / "config.json", complete.dump()).value_or_throw();
  write_renamed(folder_ / "model.safetensors", names, out_.path() / "model.safetensors");
  expect_loss_and_gradients(out_.path(), "qwen2_5_omni");
}

TEST_F(Omni, positions_are_those_of_transformers) {  // HI-2
  const std::vector<std::int32_t> marks = integers(file_, "marks");
  const std::vector<ImageGrid> grids[] = {{{3, 5}}, {}, {{1, 2}}, {{2, 1}, {1, 7}}, {{4, 3}}, {}};
  const MarkRule rule = read_mark_rule(folder_).value_or_throw();
  for (std::size_t sample = 0; sample + 1 < batch_.offsets.size(); ++sample) {
    const auto first = static_cast<std::size_t>(batch_.offsets[sample]);
    const auto count = static_cast<std::size_t>(batch_.offsets[sample + 1]) - first;
    std::vector<std::int32_t> own(count * mark_columns);
    write_marks(rule, {std::span(batch_.tokens).subspan(first, count), 1, grids[sample]}, own);
    const auto expected = std::span(marks).subspan(first * mark_columns, own.size());
    EXPECT_TRUE(std::ranges::equal(own, expected)) << sample;
  }
}

TEST_F(Omni, refuses_other_numbers_of_rows_and_missing_sounds) {  // HI-1
  Tower audio(bench_, folder_, Modality::sound, "audio");
  DataShape data;
  data.sounds = true;
  VisionLanguageDecoder decoder(bench_.context("llm", true), {read_hf_config(folder_).value_or_throw(), {}, data, {}});
  const Batch batch({1, -2, 2}, {2, 2, 2}, {0, 3});
  MicroBatch deciding(bench_, decoder, batch);
  try {
    deciding.forward();
    FAIL() << "a sound without its rows";
  } catch (const JobError& problem) {
    const std::string message = problem.what();
    EXPECT_THAT(message, AllOf(HasSubstr("llm: sample 0 has 1 sound tokens, but its sounds have 0 rows"), IsOneLine()));
  }
  const Status loaded = load_weights(audio.encoder, reference_folder("image_text") / "qwen2_5_vl");
  EXPECT_FALSE(loaded);
}

}  // namespace
}  // namespace maestro::testing
