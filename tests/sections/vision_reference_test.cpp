// SPDX-License-Identifier: Apache-2.0
// Vision sections against Hugging Face transformers and PyTorch, recorded by record_vision_references.py. Both sides
// compute in fp32; only the order of sums differs: 1e-5 for values of order one, more for sums of large gradients over
// all patches.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <fstream>

#include "runtime/model/hf_config.hpp"
#include "sections/state_io.hpp"
#include "tests/sections/vision_images.hpp"

namespace maestro::testing {
namespace {

struct Recorded {
  explicit Recorded(const std::string& model)
      : folder(reference_folder(model)),
        file(SafetensorsFile::open(folder / "expected.safetensors").value_or_throw()) {}
  [[nodiscard]] ConstTensor at(const std::string& name) const { return file.tensor(name).value_or_throw(); }
  /// Returns a copy that this owns.
  [[nodiscard]] Tensor copied(const std::string& name) const {
    const ConstTensor stored = at(name);
    std::vector<float>& copy = copies_.emplace_back(stored.data<float>(), stored.data<float>() + stored.elements());
    return {copy.data(), DType::f32, stored.shape()};
  }
  template <class T>
  [[nodiscard]] std::vector<T> values(const std::string& name) const {
    const ConstTensor tensor = at(name);
    const auto span = tensor.span<T>();
    return {span.begin(), span.end()};
  }
  void expect_gradients(Section& section, double tolerance) const {
    const auto gradients = export_tensors(section, ParameterBuffer::gradients, "gradient.");
    ASSERT_TRUE(gradients.ok());
    for (const NamedTensor& gradient : gradients->tensors) {
      EXPECT_EQ(gradient.tensor.shape(), at(gradient.name).shape()) << gradient.name;
      EXPECT_LT(largest_difference(gradient.tensor, at(gradient.name)), tolerance) << gradient.name;
    }
  }
  std::filesystem::path folder;
  SafetensorsFile file;

 private:
  mutable std::deque<std::vector<float>> copies_;
};

std::vector<std::int32_t> counts_of(const std::vector<std::int32_t>& offsets) {
  std::vector<std::int32_t> counts;
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i) counts.push_back(offsets[i + 1] - offsets[i]);
  return counts;
}

Pictures pictures_of(const Recorded& recorded) {
  Pictures pictures;
  pictures.pixels = recorded.values<float>("pixels");
  pictures.places = recorded.values<std::int32_t>("places");
  pictures.counts = counts_of(recorded.values<std::int32_t>("offsets"));
  pictures.columns = recorded.at("pixels").columns();
  return pictures;
}

VisionEncoder siglip(const Bench& bench, const Recorded& recorded) {
  return VisionEncoder(bench.context("vision", true), {read_hf_vision_config(recorded.folder).value_or_throw(), {}});
}

TEST(VisionReference, features_and_gradients_are_those_of_siglip) {
  Bench bench;
  const Recorded recorded("siglip");
  VisionEncoder encoder = siglip(bench, recorded);
  load_weights(encoder, recorded.folder).or_throw();
  const Pictures pictures = pictures_of(recorded);
  const Batch batch = pictures.batch();
  MicroBatch pass(bench, encoder, batch);
  pictures.connect(pass);
  pass.forward();
  EXPECT_LT(largest_difference(pass.output("features"), recorded.at("features")), 2e-5);
  pass.seed("features", recorded.copied("dfeatures"));
  pass.backward();
  recorded.expect_gradients(encoder, 2e-4);
}

TEST(VisionReference, a_siglip_written_again_holds_the_same_tensors_under_full_names) {
  Bench bench;
  const Recorded recorded("siglip");
  VisionEncoder encoder = siglip(bench, recorded);
  load_weights(encoder, recorded.folder).or_throw();
  const TemporaryFolder out;
  save_weights(encoder, out.path()).or_throw();
  const auto theirs = SafetensorsFile::open(recorded.folder / "model.safetensors").value_or_throw();
  const auto ours = SafetensorsFile::open(out.path() / "model.safetensors").value_or_throw();
  for (const std::string& name : ours.names()) {
    ASSERT_EQ(name.find("vision_model."), 0u);
    const ConstTensor stored = theirs.tensor(name.substr(13)).value_or_throw(),
                      written = ours.tensor(name).value_or_throw();
    EXPECT_EQ(written.shape(), stored.shape()) << name;
    EXPECT_EQ(largest_difference(written, stored), 0) << name;
  }
  VisionEncoder again(bench.context("other", true), {read_hf_vision_config(out.path()).value_or_throw(), {}});
  load_weights(again, out.path()).or_throw();
  EXPECT_TRUE(std::ranges::equal(again.parameters().values(), encoder.parameters().values()));
}

TEST(VisionReference, a_whole_siglip_model_gives_its_vision_part) {
  Bench bench;
  const Recorded recorded("siglip");
  const auto stored = SafetensorsFile::open(recorded.folder / "model.safetensors").value_or_throw();
  const TemporaryFolder out;
  std::vector<NamedTensor> tensors;
  for (const std::string& name : stored.names()) {
    tensors.push_back({"vision_model." + name, stored.tensor(name).value_or_throw()});
  }
  std::int32_t ids[9] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  float scale = 10;
  tensors.push_back({"vision_model.embeddings.position_ids", Tensor(ids, DType::i32, {1, 9})});
  tensors.push_back({"logit_scale", Tensor(&scale, DType::f32, {1})});
  tensors.push_back({"text_model.final_layer_norm.bias", Tensor(&scale, DType::f32, {1})});
  ASSERT_TRUE(write_safetensors(out.path() / "model.safetensors", tensors).ok());
  std::ifstream in(recorded.folder / "config.json");
  std::ofstream(out.path() / "config.json")
      << R"({"model_type": "siglip", "text_config": {}, "vision_config": )" << in.rdbuf() << "}";
  VisionEncoder part = siglip(bench, recorded), alone = siglip(bench, recorded);
  load_weights(part, out.path()).or_throw();
  load_weights(alone, recorded.folder).or_throw();
  EXPECT_TRUE(std::ranges::equal(part.parameters().values(), alone.parameters().values()));
}

TEST(VisionReference, another_vision_model_is_refused_with_the_first_setting_that_differs) {
  Bench bench;
  const Recorded recorded("siglip");
  const VisionConfig stored = read_hf_vision_config(recorded.folder).value_or_throw();
  const auto error = [&](const std::function<void(VisionConfig&)>& change) {
    VisionConfig config = stored;
    change(config);
    VisionEncoder encoder(bench.context("vision", false), {config, {}});
    const Status loaded = load_weights(encoder, recorded.folder);
    return loaded ? "no error" : loaded.error().message.substr(recorded.folder.string().size() + 1);
  };
  EXPECT_EQ(error([](VisionConfig&) {}), "no error");
  EXPECT_EQ(error([](VisionConfig& config) { config.layers = 3; }),
            "config.json: num_hidden_layers is 2, but the section has 3");
  EXPECT_EQ(error([](VisionConfig& config) { config.max_patches = 16; }),
            "config.json: (image_size / patch_size)^2 is 9, but the section has 16");
  EXPECT_EQ(error([](VisionConfig& config) { config.positions = PatchPositions::grid; }),
            "config.json: position_tables is learned, but the section has 2d");
}

TEST(VisionReference, the_projector_is_that_of_llava) {
  Bench bench;
  const Recorded recorded("projector");
  const ProjectorConfig config = read_hf_projector_config(recorded.folder).value_or_throw();
  EXPECT_EQ(config.vision_width, 32);
  EXPECT_EQ(config.width, 24);
  Projector projector(bench.context("projector", true), {config, {}, {}});
  load_weights(projector, recorded.folder).or_throw();
  Batch batch({0}, {0}, {0, 1});
  batch.with_patches({7});
  MicroBatch pass(bench, projector, batch);
  pass.connect("features", recorded.copied("features"), true);
  pass.forward();
  EXPECT_LT(largest_difference(pass.output("visual"), recorded.at("visual")), 1e-5);
  pass.seed("visual", recorded.copied("dvisual"));
  pass.backward();
  recorded.expect_gradients(projector, 2e-5);
  EXPECT_LT(largest_difference(pass.input("features").gradient(), recorded.at("gradient.features")), 1e-5);
  const TemporaryFolder out;
  save_weights(projector, out.path()).or_throw();
  Projector again(bench.context("other", true), {read_hf_projector_config(out.path()).value_or_throw(), {}, {}});
  load_weights(again, out.path()).or_throw();
  EXPECT_TRUE(std::ranges::equal(again.parameters().values(), projector.parameters().values()));
}

class VisionLanguageReference : public ::testing::TestWithParam<const char*> {
 protected:
  VisionLanguageReference()
      : recorded(std::string("vision_language_") + GetParam()),
        config(read_hf_config(recorded.folder).value_or_throw()),
        batch(recorded.values<std::int32_t>("tokens"), recorded.values<std::int32_t>("targets"),
              recorded.values<std::int32_t>("offsets")) {
    batch.with_patches(counts_of(recorded.values<std::int32_t>("patch_offsets")));
  }
  std::unique_ptr<VisionLanguageDecoder> model(bool trained, bool passes_gradient = false) {
    SectionContext context = bench.context("decoder", trained);
    context.passes_gradient = passes_gradient;
    auto made = std::make_unique<VisionLanguageDecoder>(context, VisionLanguageDecoder::Options{config, {}, {}});
    load_weights(*made, recorded.folder).or_throw();
    return made;
  }
  void expect_visual_gradient(const MicroBatch& pass) const {
    EXPECT_LT(largest_difference(pass.input("visual").gradient(), recorded.at("gradient.visual")), 5e-6);
  }
  Bench bench;
  Recorded recorded;
  DecoderConfig config;
  Batch batch;
};

TEST_P(VisionLanguageReference, loss_and_gradients_are_those_of_transformers_with_rows_put_in) {  // IP-1
  const auto decoder = model(true);
  MicroBatch pass(bench, *decoder, batch);
  pass.connect("visual", recorded.copied("visual"), true);
  pass.forward();
  EXPECT_NEAR(pass.metric("loss"), recorded.values<float>("loss")[0], 1e-5);
  EXPECT_EQ(pass.metric_sum("ce").weight, batch.target_tokens());
  pass.backward();
  recorded.expect_gradients(*decoder, 5e-6);
  expect_visual_gradient(pass);
}

TEST_P(VisionLanguageReference, a_frozen_decoder_passes_the_gradient_to_visual) {  // VD-4
  const auto decoder = model(false, true);
  for (const bool packed_alone : {false, true}) {
    if (packed_alone) decoder->freeze();
    MicroBatch pass(bench, *decoder, batch);
    pass.connect("visual", recorded.copied("visual"), true);
    pass.forward();
    EXPECT_NEAR(pass.metric("loss"), recorded.values<float>("loss")[0], 1e-5);
    pass.backward();
    expect_visual_gradient(pass);
  }
}

TEST_P(VisionLanguageReference, exact_match_counts_samples_whose_every_target_is_the_largest_logit) {
  const auto decoder = model(false);
  MicroBatch pass(bench, *decoder, batch, Pass::evaluate);
  pass.connect("visual", recorded.copied("visual"));
  pass.forward();
  const MetricSum match = pass.metric_sum("exact_match");
  EXPECT_EQ(match.sum, recorded.values<float>("exact_match")[0]);
  EXPECT_EQ(match.weight, recorded.values<float>("exact_match")[1]);
}

INSTANTIATE_TEST_SUITE_P(families, VisionLanguageReference, ::testing::Values("gpt2", "llama"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace maestro::testing
