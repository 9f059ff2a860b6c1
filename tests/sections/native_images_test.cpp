// SPDX-License-Identifier: Apache-2.0
// Encoders and projectors for images of any size: rotary positions by row and column, windows, tables stretched over
// images, norms before the products, taps. Against results of record_vision_references.py, in fp32.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <numeric>

#include "runtime/model/text_part.hpp"
#include "sections/state_io.hpp"
#include "sections/weights_folder.hpp"
#include "tests/sections/parallel_vision.hpp"

namespace maestro::testing {
namespace {

/// The images of a recorded model, and what they become.
struct Recorded {
  explicit Recorded(const std::string& model)
      : folder(reference_folder("image_text") / model),
        file(SafetensorsFile::open(folder / "expected.safetensors").value_or_throw()),
        batch(integers(file, "tokens"), integers(file, "targets"), integers(file, "offsets")) {
    const ConstTensor rows = at("pixels");
    pictures.columns = rows.columns();
    pictures.pixels.assign(rows.data<float>(), rows.data<float>() + rows.elements());
    pictures.places = integers(file, "places");
    pictures.counts = counts("patch_offsets");
    batch.with_patches(pictures.counts).with_visual(counts("visual_offsets"));
  }
  [[nodiscard]] ConstTensor at(const std::string& name) const { return file.tensor(name).value_or_throw(); }
  [[nodiscard]] std::vector<std::int32_t> counts(const std::string& offsets) const {
    std::vector<std::int32_t> found = integers(file, offsets);
    std::adjacent_difference(found.begin(), found.end(), found.begin());
    found.erase(found.begin());
    return found;
  }
  [[nodiscard]] VisionConfig encoder() const { return read_hf_vision_config(folder).value_or_throw(); }
  [[nodiscard]] ProjectorConfig projector() const { return read_hf_projector_config(folder).value_or_throw(); }

  std::filesystem::path folder;
  SafetensorsFile file;
  Batch batch;
  Pictures pictures;
};

/// Returns a writable copy of a recorded f32 tensor.
OwnedTensor copied(const ConstTensor& from) {
  return {DType::f32, from.shape(), {from.data<float>(), from.data<float>() + from.elements()}};
}

std::vector<float> features_of(Bench& bench, VisionEncoder& encoder, const Pictures& pictures) {
  const Batch batch = pictures.batch();
  MicroBatch pass(bench, encoder, batch, Pass::evaluate);
  pictures.connect(pass);
  pass.forward();
  const auto found = pass.output("features").span<float>();
  return {found.begin(), found.end()};
}

class NativeImages : public ::testing::TestWithParam<const char*> {
 protected:
  /// Returns the ports of both sections, main and taps.
  [[nodiscard]] std::vector<std::string> ports(const char* name) const {
    std::vector<std::string> all{name};
    for (std::int64_t tap = 0; tap < recorded_.projector().taps; ++tap) all.push_back(tap_name(name, tap));
    return all;
  }
  void expect_gradients(Section& section, ModelPart part, std::size_t& compared) const {
    const TensorSnapshot found = export_tensors(section, ParameterBuffer::gradients).value_or_throw();
    const std::string type = vision_language_type(recorded_.folder);
    std::size_t own = 0;
    for (const std::string& stored :
         SafetensorsFile::open(recorded_.folder / "model.safetensors").value_or_throw().names()) {
      const PartName name = part_name(type, stored).value();
      if (name.part != part) continue;
      SCOPED_TRACE(stored);
      const auto gradient = std::ranges::find(found.tensors, name.name, &NamedTensor::name);
      ASSERT_NE(gradient, found.tensors.end());
      const ConstTensor expected = recorded_.at("gradient." + stored);
      double largest = 1e-3;
      for (const float value : expected.span<float>()) largest = std::max(largest, std::abs(double{value}));
      EXPECT_LT(largest_difference(gradient->tensor, expected), 1e-4 * largest);
      ++own;
    }
    EXPECT_EQ(own, found.tensors.size());
    compared += own;
  }
  Bench bench_;
  Recorded recorded_{GetParam()};
};

TEST_P(NativeImages, rows_and_gradients_are_those_of_transformers) {  // ER-2, PN-1
  VisionEncoder encoder(bench_.context("vision", true), {recorded_.encoder(), {}});
  Projector projector(bench_.context("projector", true), {recorded_.projector(), {}, {}});
  load_weights(encoder, recorded_.folder).or_throw();
  load_weights(projector, recorded_.folder).or_throw();
  MicroBatch seeing(bench_, encoder, recorded_.batch), projecting(bench_, projector, recorded_.batch);
  recorded_.pictures.connect(seeing);
  seeing.forward();
  for (const std::string& port : ports("features")) projecting.connect(port, seeing.output(port), true);
  projecting.forward();
  std::vector<OwnedTensor> gradients;
  for (const std::string& port : ports("visual")) {
    SCOPED_TRACE(port);
    EXPECT_LT(largest_difference(projecting.output(port), recorded_.at(port)), 1e-5);
    projecting.seed(port, gradients.emplace_back(copied(recorded_.at("gradient." + port))));
  }
  projecting.backward();
  for (const std::string& port : ports("features")) seeing.seed(port, projecting.input(port).gradient());
  seeing.backward();
  std::size_t compared = 0;
  expect_gradients(encoder, ModelPart::vision, compared);
  expect_gradients(projector, ModelPart::projector, compared);
  EXPECT_GT(compared, 40U);
}

TEST_P(NativeImages, the_order_of_an_images_rows_does_not_matter) {  // VE-4
  VisionEncoder encoder(bench_.context("vision", false), {recorded_.encoder(), {}});
  randomise(encoder, 4);
  const Pictures one = Pictures::random(7, {{{6, 10}}}, 2);
  Pictures turned = one;
  const auto rows = static_cast<std::size_t>(one.rows()), wide = static_cast<std::size_t>(one.columns);
  for (std::size_t row = 0; row < rows; ++row) {
    std::copy_n(one.pixels.data() + (rows - 1 - row) * wide, wide, turned.pixels.data() + row * wide);
    std::copy_n(one.places.data() + (rows - 1 - row) * 3, 3, turned.places.data() + row * 3);
  }
  const std::vector<float> forth = features_of(bench_, encoder, one), back = features_of(bench_, encoder, turned);
  const std::size_t columns = forth.size() / rows;
  for (std::size_t at = 0; at < forth.size(); ++at) {
    const std::size_t row = at / columns;
    ASSERT_NEAR(back[(rows - 1 - row) * columns + at % columns], forth[at], 1e-5) << row;
  }
}

TEST_P(NativeImages, over_ranks_both_sections_are_those_of_one_rank) {  // VE-3, VE-5, PN-2
  const std::int64_t wide = recorded_.encoder().width;
  const std::vector<Feed> feeds = {{"pixels", recorded_.pictures.pixel_tensor()},
                                   {"places", recorded_.pictures.place_tensor()}};
  const std::int64_t patches = recorded_.batch.layout_of(Axis::patches).rows();
  std::map<std::string, Tensor> seen, rows;
  std::deque<OwnedTensor> held;
  std::vector<Feed> features;
  for (const std::string& port : ports("features")) {
    const std::uint64_t seed = held.size();
    seen[port] = held.emplace_back(random_tensor(seed, patches, wide));
    features.push_back({port, held.emplace_back(random_tensor(seed + 20, patches, wide)), true});
  }
  for (const std::string& port : ports("visual")) {
    rows[port] = held.emplace_back(random_tensor(40 + held.size(), recorded_.batch.visual().rows(), 16));
  }
  for (const Layout layout : {Layout{2, 1}, Layout{1, 2}, Layout{2, 2}, Layout{1, 3}}) {
    const auto build = [&](const SectionContext& context) {
      return std::make_unique<VisionEncoder>(context, VisionEncoder::Options{recorded_.encoder(), {}});
    };
    if (layout.tensor > recorded_.encoder().heads) continue;
    Pair(bench_.context("vision", true), layout, build).expect_equal(recorded_.batch, feeds, seen);
  }
  const auto build = [&](const SectionContext& context) {
    return std::make_unique<Projector>(context, Projector::Options{recorded_.projector(), {}, {}});
  };
  Pair(bench_.context("projector", true), {2, 1}, build).expect_equal(recorded_.batch, features, rows);
}

TEST_P(NativeImages, configurations_and_their_text_agree) {
  EXPECT_EQ(parse_hf_vision_config(hf_vision_config_text(recorded_.encoder()), "config.json").value_or_throw(),
            recorded_.encoder());
  EXPECT_EQ(parse_hf_projector_config(hf_projector_config_text(recorded_.projector()), "config.json").value_or_throw(),
            recorded_.projector());
}

INSTANTIATE_TEST_SUITE_P(models, NativeImages, ::testing::Values("qwen2_vl", "qwen2_5_vl", "qwen3_vl"),
                         [](const auto& test) { return std::string(test.param); });

TEST(Windows, let_a_patch_see_its_window_alone) {  // VE-5, ER-1
  Bench bench;
  VisionConfig config = Recorded("qwen2_5_vl").encoder();
  config.full_layers.clear();
  VisionEncoder encoder(bench.context("vision", false), {config, {}});
  randomise(encoder, 4);
  const Pictures one = Pictures::random(7, {{{6, 10}, {5, 3}}}, 2);
  Pictures other = one;
  const auto window = [&](std::size_t row) {
    const std::int32_t* place = one.places.data() + row * 3;
    return std::array{place[0], place[1] / 4, place[2] / 4};
  };
  constexpr std::size_t changed = 59;  // the last patch of the first image, in a window of 2 x 2
  other.pixels[changed * static_cast<std::size_t>(one.columns)] += 1;
  const std::vector<float> before = features_of(bench, encoder, one), after = features_of(bench, encoder, other);
  const auto wide = static_cast<std::size_t>(config.width);
  std::size_t inside = 0;
  for (std::size_t row = 0; row < static_cast<std::size_t>(one.rows()); ++row) {
    const bool same = std::equal(before.begin() + static_cast<std::ptrdiff_t>(row * wide),
                                 before.begin() + static_cast<std::ptrdiff_t>((row + 1) * wide),
                                 after.begin() + static_cast<std::ptrdiff_t>(row * wide));
    EXPECT_EQ(same, window(row) != window(changed)) << row;
    inside += same ? 0 : 1;
  }
  EXPECT_EQ(inside, 4U);
}

TEST(Windows, are_counted_in_the_cost) {
  const Bench bench;
  VisionConfig config = Recorded("qwen2_5_vl").encoder();
  const auto flops = [&] {
    return VisionEncoder(bench.context("vision", false), {config, {}}).cost({.patches = 80, .images = 2}).flops;
  };
  const double windows = flops();
  config.full_layers = {0, 1, 2};
  EXPECT_DOUBLE_EQ(flops() - windows, 2 * 2.0 * 2 * 80 * 16 * (40 - 16));
}

}  // namespace
}  // namespace maestro::testing
