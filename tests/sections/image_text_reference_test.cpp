// SPDX-License-Identifier: Apache-2.0
// Complete models for images or sounds in the folders of transformers: three sections that begin from one folder,
// against results of record_vision_references.py; and the folder that they are exported as. Both sides compute in fp32.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "runtime/data/corpus.hpp"
#include "runtime/data/image/mark_rows.hpp"
#include "runtime/files/posix_file.hpp"
#include "runtime/images/encoder_grid.hpp"
#include "runtime/images/image_processor.hpp"
#include "runtime/images/mixed_rows.hpp"
#include "runtime/model/hf_config.hpp"
#include "runtime/model/text_part.hpp"
#include "runtime/model/vision_part.hpp"
#include "sections/decoder/completions.hpp"
#include "sections/model_folder.hpp"
#include "sections/state_io.hpp"
#include "sections/vision/row_mix.hpp"
#include "sections/weights_folder.hpp"
#include "tests/sections/parallel_vision.hpp"
#include "tests/sections/renamed_tensors.hpp"
#include "tests/support/one_line.hpp"

namespace maestro::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<std::int32_t> counts_of(const SafetensorsFile& file, const std::string& offsets) {
  std::vector<std::int32_t> counts = integers(file, offsets);
  std::adjacent_difference(counts.begin(), counts.end(), counts.begin());
  counts.erase(counts.begin());
  return counts;
}

/// How features become the decoder's rows, for models that mix them.
struct Mix {
  std::vector<std::int32_t> sources;
  std::vector<float> weights;
  [[nodiscard]] std::vector<Feed> feeds() const {
    const auto rows = static_cast<std::int64_t>(sources.size()) / row_mix_terms;
    return {{"sources", Tensor(const_cast<std::int32_t*>(sources.data()), DType::i32, {rows, row_mix_terms})},
            {"weights", Tensor(const_cast<float*>(weights.data()), DType::f32, {rows, row_mix_terms})}};
  }
};

/// The recorded inputs and results of a model.
struct Recording {
  explicit Recording(const std::string& model)
      : folder(reference_folder("image_text") / model),
        file(SafetensorsFile::open(folder / "expected.safetensors").value_or_throw()),
        batch(integers(file, "tokens"), integers(file, "targets"), integers(file, "offsets")) {
    pictures.counts = counts_of(file, "patch_offsets");
    pictures.places = integers(file, "places");
    const ConstTensor pixels = at("pixels");
    pictures.columns = pixels.columns();
    pictures.pixels.assign(pixels.data<float>(), pixels.data<float>() + pixels.elements());
    batch.with_patches(pictures.counts).with_visual(counts_of(file, "visual_offsets"));
    if (type() == "llava_onevision") plan_images();
    if (!rule.plain()) marks = rule.axes ? integers(file, "marks") : testing::marks_of(batch, rule);
  }
  /// Returns the marks of a sample's first `rows` rows; empty if the model does not need marks.
  [[nodiscard]] std::span<const std::int32_t> marks_of(std::size_t sample, std::int32_t rows) const {
    if (marks.empty()) return {};
    return std::span(marks).subspan(static_cast<std::size_t>(batch.offsets[sample]) * mark_columns,
                                    static_cast<std::size_t>(rows) * mark_columns);
  }
  /// Returns whether a sample's first `rows` rows see the same rows as in the complete sample.
  [[nodiscard]] bool keeps_marks(std::size_t sample, std::int32_t rows) const {
    return rule.mask != ImageMask::prefix || rows >= marks_of(sample, 1)[mark_columns - 1];
  }
  void connect_marks(MicroBatch& pass) const {
    if (!marks.empty()) pass.connect("marks", mark_tensor(marks));
  }
  /// Plans the images by the folder's settings, with as many rows as transformers.
  void plan_images() {
    const ImageProcessor processor(read_image_settings(folder).value_or_throw(),
                                   read_encoder_grid(folder).value_or_throw());
    const std::vector<std::int32_t> sizes = integers(file, "image_sizes");
    auto size = sizes.begin();
    for (const std::int32_t images : counts_of(file, "image_offsets")) {
      Mix& mix = mixes.emplace_back();
      std::int64_t rows = 0;
      for (std::int32_t image = 0; image < images; ++image, size += 2) {
        const ImagePlan plan = processor.plan({size[1], size[0]}, images).value_or_throw();
        const std::size_t before = mix.sources.size(), count = static_cast<std::size_t>(plan.visual_rows) * mixed_terms;
        mix.sources.resize(before + count);
        mix.weights.resize(before + count);
        processor.mix(plan, static_cast<std::int32_t>(rows), std::span(mix.sources).subspan(before),
                      std::span(mix.weights).subspan(before));
        rows += plan.encoder_rows;
      }
      EXPECT_EQ(rows, pictures.counts[mixes.size() - 1]);
      const std::size_t sample = mixes.size();
      EXPECT_EQ(mix.sources.size() / mixed_terms,
                static_cast<std::size_t>(batch.visual_offsets[sample] - batch.visual_offsets[sample - 1]));
      all.sources.insert(all.sources.end(), mix.sources.begin(), mix.sources.end());
      all.weights.insert(all.weights.end(), mix.weights.begin(), mix.weights.end());
    }
  }
  /// Returns the inputs of the projector in addition to features, for all samples or one sample.
  [[nodiscard]] std::vector<Feed> mix() const { return mixes.empty() ? std::vector<Feed>() : all.feeds(); }
  [[nodiscard]] std::vector<Feed> mix(std::size_t sample) const {
    return mixes.empty() ? std::vector<Feed>() : mixes[sample].feeds();
  }
  [[nodiscard]] ConstTensor at(const std::string& name) const { return file.tensor(name).value_or_throw(); }
  [[nodiscard]] std::string type() const { return vision_language_type(folder); }

  fs::path folder;
  SafetensorsFile file;
  Batch batch;
  Pictures pictures;
  std::vector<Mix> mixes;  // by sample
  Mix all;
  MarkRule rule = read_mark_rule(folder).value_or_throw();
  std::vector<std::int32_t> marks;  // empty: as a text
};

/// The three sections of a folder.
struct Model {
  Model(const Bench& bench, const fs::path& folder, bool trained = true)
      : vision(bench.context("vision", trained), {read_hf_vision_config(folder).value_or_throw(), {}}),
        projector(bench.context("projector", trained), {read_hf_projector_config(folder).value_or_throw(), {}, {}}),
        decoder(bench.context("decoder", trained), {read_hf_config(folder).value_or_throw(),
                                                    {{}, read_hf_projector_config(folder).value_or_throw().taps},
                                                    {}}) {
    for (const auto& [part, section] : parts()) load_weights(*section, folder).or_throw();
  }
  [[nodiscard]] std::vector<std::pair<ModelPart, Section*>> parts() {
    return {{ModelPart::vision, &vision}, {ModelPart::projector, &projector}, {ModelPart::language_model, &decoder}};
  }
  VisionEncoder vision;
  Projector projector;
  VisionLanguageDecoder decoder;
};

bool reads_places(const Projector& projector) {
  return std::ranges::any_of(projector.ports().inputs, [](const Port& port) { return port.name == "places"; });
}

/// A pass of the three sections, one after the other.
struct ModelPass {
  ModelPass(Bench& bench, Model& model, const Batch& batch, const Pictures& pictures, const std::vector<Feed>& mix,
            Pass pass = Pass::train)
      : seeing(bench, model.vision, batch, pass),
        projecting(bench, model.projector, batch, pass),
        deciding(bench, model.decoder, batch, pass) {
    for (const Port& port : model.vision.ports().outputs) features.push_back(port.name);
    for (const Port& port : model.projector.ports().outputs) rows.push_back(port.name);
    pictures.connect(seeing);
    seeing.forward();
    for (const std::string& port : features) projecting.connect(port, seeing.output(port), true);
    for (const Feed& feed : mix) projecting.connect(feed.port, feed.whole);
    if (reads_places(model.projector)) projecting.connect("places", pictures.place_tensor());
    projecting.forward();
    for (const std::string& port : rows) deciding.connect(port, projecting.output(port), true);
  }
  void backward() {
    deciding.backward();
    for (const std::string& port : rows) projecting.seed(port, deciding.input(port).gradient());
    projecting.backward();
    for (const std::string& port : features) seeing.seed(port, projecting.input(port).gradient());
    seeing.backward();
  }
  /// Returns the rows of visual_1, ...
  [[nodiscard]] std::vector<Tensor> taps() const {
    std::vector<Tensor> found;
    for (std::size_t tap = 1; tap < rows.size(); ++tap) found.push_back(projecting.output(rows[tap]));
    return found;
  }
  std::vector<std::string> features, rows;  // ports
  MicroBatch seeing, projecting, deciding;
};

class ImageText : public ::testing::TestWithParam<const char*> {
 protected:
  /// Compares the gradient of each stored tensor; a tensor without one is not in the sections.
  void expect_gradients(const std::map<ModelPart, TensorSnapshot>& found) const {
    const SafetensorsFile weights = SafetensorsFile::open(recorded_.folder / "model.safetensors").value_or_throw();
    std::size_t compared = 0;
    for (const std::string& stored : weights.names()) {
      SCOPED_TRACE(stored);
      const PartName own = part_name(recorded_.type(), stored).value();
      const auto& tensors = found.at(own.part).tensors;
      const auto gradient = std::ranges::find(tensors, own.name, &NamedTensor::name);
      const bool used = recorded_.file.contains("gradient." + stored);
      ASSERT_EQ(gradient != tensors.end(), used) << "a passenger has no gradient";
      if (!used) continue;
      ++compared;
      const ConstTensor expected = recorded_.at("gradient." + stored);
      ASSERT_EQ(gradient->tensor.shape().rank() + own.leading_ones, expected.shape().rank());
      double largest = 1e-3;  // gradients of key biases are only rounding errors
      for (const float value : expected.span<float>()) largest = std::max(largest, std::abs(double{value}));
      EXPECT_LT(largest_difference(gradient->tensor, expected.reshaped(gradient->tensor.shape())), 1e-4 * largest);
    }
    std::size_t held = 0;
    for (const auto& [part, snapshot] : found) held += snapshot.tensors.size();
    EXPECT_EQ(compared, held);
  }
  void expect_loss_and_gradients(const fs::path& folder) {
    Model model(bench_, folder);
    ModelPass pass(bench_, model, recorded_.batch, recorded_.pictures, recorded_.mix());
    recorded_.connect_marks(pass.deciding);
    pass.deciding.forward();
    EXPECT_NEAR(pass.deciding.metric("loss"), recorded_.at("loss").data<float>()[0], 1e-5);
    pass.backward();
    std::map<ModelPart, TensorSnapshot> gradients;
    for (const auto& [part, section] : model.parts()) {
      gradients.emplace(part, export_tensors(*section, ParameterBuffer::gradients).value_or_throw());
    }
    expect_gradients(gradients);
  }
  /// Writes the recorded folder under other names.
  fs::path renamed(const json& names) const {
    fs::copy_file(recorded_.folder / "config.json", out_.path() / "config.json", fs::copy_options::overwrite_existing);
    write_renamed(recorded_.folder / "model.safetensors", names, out_.path() / "model.safetensors");
    return out_.path();
  }

  [[nodiscard]] static std::int32_t tile_rows(const Model& model) {
    const VisionConfig& config = model.vision.vision();
    return static_cast<std::int32_t>(config.max_patches + (config.class_row ? 1 : 0));
  }

  Bench bench_;
  Recording recorded_{GetParam()};
  TemporaryFolder out_;
};

TEST_P(ImageText, three_sections_have_the_loss_and_the_gradients_of_transformers) {  // PN-1, VE-4
  expect_loss_and_gradients(recorded_.folder);
}

TEST_P(ImageText, every_prefix_after_the_images_has_the_logits_of_transformers) {
  Model model(bench_, recorded_.folder, false);
  Generation generation(*bench_.ops, recorded_.folder, DType::f32);
  const std::vector<std::int32_t> offsets = recorded_.batch.offsets;
  std::int32_t compared = 0;
  for (std::size_t sample = 0; sample + 1 < offsets.size(); ++sample) {
    const auto begin = recorded_.batch.tokens.begin() + offsets[sample];
    const std::int32_t length = offsets[sample + 1] - offsets[sample];
    const std::int32_t patches = recorded_.batch.patch_offsets[sample + 1] - recorded_.batch.patch_offsets[sample];
    const auto marked = static_cast<std::int32_t>(std::count(begin, begin + length, image_token));
    const auto same = [&](std::int32_t end) {
      return std::count(begin, begin + end, image_token) == marked && recorded_.keeps_marks(sample, end);
    };
    for (std::int32_t end = length; end > 0 && same(end); --end) {
      const std::vector<std::int32_t> tokens(begin, begin + end);
      Batch prefix(tokens, std::vector<std::int32_t>(tokens.size(), 0), {0, end});
      prefix.with_patches({patches}).with_visual({marked});
      const Pictures seen = recorded_.pictures.part(recorded_.batch.patch_offsets[sample], patches);
      ModelPass pass(bench_, model, prefix, seen, recorded_.mix(sample), Pass::evaluate);
      generation.reserve(1, end);
      generation.begin(0, tokens,
                       {marked > 0 ? pass.projecting.output("visual") : Tensor(), recorded_.marks_of(sample, end),
                        marked > 0 ? pass.taps() : std::vector<Tensor>()});
      while (!generation.advance(0)) {
      }
      std::vector<float> next(generation.logits().begin(), generation.logits().end());
      const ConstTensor expected = recorded_.at("logits").row_slice(offsets[sample] + end - 1, 1);
      ASSERT_LT(largest_difference(Tensor(next.data(), DType::f32, expected.shape()), expected), 1e-4)
          << sample << ", " << end;
      ++compared;
    }
  }
  EXPECT_GE(compared, recorded_.rule.plain() ? 20 : 10);
}

TEST_P(ImageText, is_found_under_all_names_of_transformers_4_and_5) {  // FP-1, FP-2
  const json modules = json::parse(read_text(recorded_.folder / "names.json").value_or_throw());
  expect_loss_and_gradients(renamed(modules));
  json earlier = json::object();
  for (const auto& [stored, module] : modules.items()) {
    const std::string tower = "vision_tower.", inside = "vision_tower.vision_model.";
    if (stored.starts_with(tower)) earlier[stored] = inside + stored.substr(tower.size());
  }
  if (!earlier.empty()) expect_loss_and_gradients(renamed(earlier));
  const auto refusal = [&](Section& section, const fs::path& folder) {
    const Status loaded = load_weights(section, folder);
    return loaded ? "loaded" : loaded.error().message;
  };
  Model model(bench_, recorded_.folder);
  renamed({{modules.begin().key(), "stranger.weight"}});
  for (const auto& [part, section] : model.parts()) {
    EXPECT_THAT(
        refusal(*section, out_.path()),
        AllOf(HasSubstr("tensor 'stranger.weight' belongs to no known part of a " + recorded_.type()), IsOneLine()));
  }
  for (const auto& [stored, module] : modules.items()) {
    const PartName own = part_name(recorded_.type(), stored).value();
    if (own.part != ModelPart::vision || !own.name.ends_with("layers.0.mlp.fc1.bias")) continue;
    renamed({{stored, stored + "s"}});
    EXPECT_THAT(refusal(model.vision, out_.path()), AllOf(HasSubstr("mlp.fc1.bias"), HasSubstr("is missing")));
  }
}

/// Converts the f32 tensors of a file.
void write_as(const fs::path& from, WeightDtype dtype, const fs::path& to) {
  const SafetensorsFile file = SafetensorsFile::open(from).value_or_throw();
  (void)write_weights(to, file.tensors().value_or_throw(), dtype).value_or_throw();
}

TEST_P(ImageText, goes_out_as_the_folder_that_it_came_from) {  // EX-5
  const fs::path folder = renamed(json::object()), to = out_.path() / "out";
  (void)write_file(folder / "preprocessor_config.json", "{\"size\":  224}\n").value_or_throw();
  for (const WeightDtype dtype : {WeightDtype::f32, WeightDtype::bf16, WeightDtype::f16}) {
    write_as(recorded_.folder / "model.safetensors", dtype, folder / "model.safetensors");
    Model model(bench_, folder);
    std::vector<TensorSnapshot> snapshots;
    const auto write = [&] {
      std::vector<StoredSection> stored;
      for (const auto& [part, section] : model.parts()) {
        snapshots.push_back(export_tensors(*section, ParameterBuffer::values).value_or_throw());
        StoredSection& each = stored.emplace_back();
        each.state.config = section->config_json();
        each.state.parameters = snapshots.back().tensors;
      }
      fs::remove_all(to);
      fs::create_directory(to);
      ExportedModel written;
      write_complete_model(stored, folder, to, written).or_throw();
      EXPECT_EQ(written.dtype, dtype);
    };
    write();
    for (const char* name : {"config.json", "model.safetensors", "preprocessor_config.json"}) {
      EXPECT_EQ(read_text(to / name).value_or_throw(), read_text(folder / name).value_or_throw()) << name;
    }
    for (const auto& [part, section] : model.parts()) {
      for (float& value : section->parameters().values()) value += 1;
    }
    write();
    const SafetensorsFile before = SafetensorsFile::open(folder / "model.safetensors").value_or_throw();
    const SafetensorsFile after = SafetensorsFile::open(to / "model.safetensors").value_or_throw();
    ASSERT_EQ(after.names(), before.names());
    for (const std::string& name : after.names()) {
      const bool trained = recorded_.file.contains("gradient." + name);
      const ConstTensor was = before.tensor(name).value_or_throw(), is = after.tensor(name).value_or_throw();
      const bool same = std::memcmp(was.raw(), is.raw(), was.bytes()) == 0;
      EXPECT_EQ(same, !trained) << name;
    }
  }
}

/// Models whose images are tiles of one size.
class TiledImageText : public ImageText {};

TEST_P(TiledImageText, tiles_with_another_grid_or_a_missing_row_are_refused_by_the_sample) {  // VE-4
  Model model(bench_, recorded_.folder, false);
  const auto refusal = [&](const Pictures& pictures) {
    Batch batch = pictures.batch();
    MicroBatch pass(bench_, model.vision, batch, Pass::evaluate);
    pictures.connect(pass);
    try {
      pass.forward();
    } catch (const JobError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const std::int32_t rows = tile_rows(model);
  const Pictures one = recorded_.pictures.part(0, rows);
  EXPECT_EQ(refusal(one), "accepted");
  EXPECT_THAT(refusal(one.part(0, rows - 1)), HasSubstr("sample 0: image 0 has " + std::to_string(rows - 1) +
                                                        " rows, but the model takes " + std::to_string(rows)));
  Pictures twice = one;
  std::copy_n(twice.places.end() - 6, 3, twice.places.end() - 3);
  EXPECT_THAT(refusal(twice), HasSubstr("image 0 has two rows for the place "));
  Pictures small = Pictures::random(3, {{{3, 4}}}, 2);
  EXPECT_THAT(refusal(small), AllOf(HasSubstr("has 3 x 4 patches, but the model takes tiles of 4 x 4; its image "
                                              "settings must make tiles of 8 x 8 pixels"),
                                    IsOneLine()));
}

TEST_P(TiledImageText, the_order_of_a_tiles_rows_does_not_matter_to_the_encoder) {  // VE-4
  Model model(bench_, recorded_.folder, false);
  const auto rows = static_cast<std::size_t>(tile_rows(model));
  const Pictures one = recorded_.pictures.part(0, static_cast<std::int32_t>(rows));
  Pictures turned = one;
  const auto wide = static_cast<std::size_t>(one.columns);
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t from = rows - 1 - row;
    std::copy_n(one.pixels.data() + from * wide, wide, turned.pixels.data() + row * wide);
    std::copy_n(one.places.data() + from * 3, 3, turned.places.data() + row * 3);
  }
  const auto features = [&](const Pictures& pictures) {
    const Batch batch = pictures.batch();
    MicroBatch pass(bench_, model.vision, batch, Pass::evaluate);
    pictures.connect(pass);
    pass.forward();
    const auto found = pass.output("features").span<float>();
    return std::vector<float>(found.begin(), found.end());
  };
  const std::vector<float> forth = features(one), back = features(turned);
  const auto width = static_cast<std::size_t>(model.vision.vision().width);
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t i = 0; i < width; ++i) {
      ASSERT_NEAR(back[row * width + i], forth[(rows - 1 - row) * width + i], 5e-6) << row;
    }
  }
}

constexpr const char* tiled_models[] = {"llava_clip", "llava_siglip", "smolvlm",  "onevision",
                                        "gemma3",     "paligemma",    "internvl", "internvl_rms"};
constexpr const char* native_models[] = {"qwen2_vl", "qwen2_5_vl", "qwen3_vl"};
constexpr const char* heard_models[] = {"qwen2_audio", "voxtral"};
constexpr auto model_name = [](const auto& test) { return std::string(test.param); };

INSTANTIATE_TEST_SUITE_P(tiled, ImageText, ::testing::ValuesIn(tiled_models), model_name);
INSTANTIATE_TEST_SUITE_P(native, ImageText, ::testing::ValuesIn(native_models), model_name);
INSTANTIATE_TEST_SUITE_P(heard, ImageText, ::testing::ValuesIn(heard_models), model_name);
INSTANTIATE_TEST_SUITE_P(models, TiledImageText, ::testing::ValuesIn(tiled_models), model_name);

/// The sections of a recorded folder over ranks, against a single rank.
class ImageTextOverRanks : public ::testing::TestWithParam<const char*> {
 protected:
  [[nodiscard]] ParallelBench::Build encoder() const {
    return [config = read_hf_vision_config(recorded_.folder).value_or_throw()](const SectionContext& context) {
      return std::make_unique<VisionEncoder>(context, VisionEncoder::Options{config, {}});
    };
  }
  [[nodiscard]] ParallelBench::Build projector() const {
    return [config = read_hf_projector_config(recorded_.folder).value_or_throw()](const SectionContext& context) {
      return std::make_unique<Projector>(context, Projector::Options{config, {}, {}});
    };
  }
  [[nodiscard]] OwnedTensor random(std::uint64_t seed, Axis axis) const {
    return random_tensor(seed, recorded_.batch.layout_of(axis).rows(), 16);
  }
  Bench bench_;
  Recording recorded_{GetParam()};
};

TEST_P(ImageTextOverRanks, the_encoder_is_that_of_one_rank) {  // VE-3
  const std::vector<Feed> feeds = {{"pixels", recorded_.pictures.pixel_tensor()},
                                   {"places", recorded_.pictures.place_tensor()}};
  const OwnedTensor gradient = random(8, Axis::patches);
  for (const Layout layout : {Layout{2, 1}, Layout{1, 2}, Layout{1, 3}}) {
    Pair encoders(bench_.context("vision", true), layout, encoder());
    encoders.expect_equal(recorded_.batch, feeds, {{"features", gradient}});
  }
}

TEST_P(ImageTextOverRanks, the_projector_is_that_of_one_rank_or_refuses_context) {  // PN-2
  const OwnedTensor features = random(5, Axis::patches), gradient = random(6, Axis::visual);
  const bool changes_rows = features.tensor().rows() != gradient.tensor().rows();
  for (const Layout layout : {Layout{2, 1}, Layout{3, 1}, Layout{1, 2}}) {
    SectionContext context = bench_.context("projector", true);
    if (changes_rows && layout.context > 1) {
      context.meta = true;
      context.parallel.layout = layout;
      try {
        (void)projector()(context);
        FAIL() << "not refused";
      } catch (const JobError& error) {
        EXPECT_THAT(error.what(), HasSubstr("projector.context = 2: a projector that "));
        EXPECT_THAT(error.what(), HasSubstr("set context = 1"));
      }
      continue;
    }
    Pair projectors(context, layout, projector());
    std::vector<Feed> feeds = recorded_.mix();
    feeds.push_back({"features", features, true});
    const auto options = read_hf_projector_config(recorded_.folder).value_or_throw();
    if (options.drops_rest) feeds.push_back({"places", recorded_.pictures.place_tensor()});
    projectors.expect_equal(recorded_.batch, feeds, {{"visual", gradient}});
    EXPECT_GT(projectors.single.gradient_sum_of_squares(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(models, ImageTextOverRanks, ::testing::ValuesIn(tiled_models), model_name);
INSTANTIATE_TEST_SUITE_P(heard, ImageTextOverRanks, ::testing::ValuesIn(heard_models), model_name);

TEST(ImageTextProjector, a_sample_whose_features_make_no_whole_rows_is_refused_by_its_number) {  // PN-1
  Bench bench;
  const auto refusal = [&](std::int64_t join, std::int64_t tile_rows, std::int32_t rows, std::int32_t visual) {
    ProjectorConfig config{.vision_width = 16, .width = 8, .join = join, .tile_rows = tile_rows};
    Projector projector(bench.context("projector", false), {config, {}, {}});
    Batch batch({0, 0}, {0, 0}, {0, 1, 2});
    batch.with_patches({4, rows}).with_visual({tile_rows > 0 ? 0 : 1, visual});
    if (tile_rows > 0) batch.with_patches({0, rows});
    const OwnedTensor features = random_tensor(5, batch.patches().rows(), 16);
    MicroBatch pass(bench, projector, batch, Pass::evaluate);
    pass.connect("features", features);
    try {
      pass.forward();
    } catch (const JobError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refusal(4, 0, 8, 2), "accepted");
  EXPECT_EQ(refusal(4, 0, 8, 3),
            "projector: sample 1 has 8 rows of features for 3 rows of the decoder, but 4 features make one row; image "
            "settings and model disagree");
  EXPECT_EQ(refusal(1, 5, 10, 8), "accepted");
  EXPECT_THAT(refusal(1, 5, 9, 7), HasSubstr("9 rows of features for 7 rows of the decoder, but a tile has 5 rows"));
}

TEST(ImageTextProjector, sources_outside_of_the_sample_are_refused_by_its_number) {  // MX-1
  Bench bench;
  const ProjectorConfig config{.vision_width = 16, .width = 8, .newline = true};
  const auto refusal = [&](std::vector<std::int32_t> sources, std::vector<float> weights, bool connected = true) {
    Projector projector(bench.context("projector", false), {config, {}, {}});
    Batch batch({0, 0}, {0, 0}, {0, 1, 2});
    batch.with_patches({3, 2}).with_visual({0, static_cast<std::int32_t>(sources.size()) / 4});
    const OwnedTensor features = random_tensor(5, 5, 16);
    const Mix mix{std::move(sources), std::move(weights)};
    MicroBatch pass(bench, projector, batch, Pass::evaluate);
    pass.connect("features", features);
    for (const Feed& feed : connected ? mix.feeds() : std::vector<Feed>()) pass.connect(feed.port, feed.whole);
    try {
      pass.forward();
    } catch (const JobError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refusal({0, 1, 9, 9, -1, 0, 0, 0}, {0.5F, 0.5F, 0, 0, 1, 0, 0, 0}), "accepted");
  EXPECT_EQ(refusal({-1, 0, 0, 0, 0, 2, 0, 0}, {1, 0, 0, 0, 0.5F, 0.5F, 0, 0}),
            "projector: sample 1: row 1 of the decoder takes the feature 2 of 2");
  EXPECT_THAT(refusal({-1, 0, 0, 0}, {0.5F, 0.5F, 0, 0}), HasSubstr("takes the newline row with the weight 0.5"));
  EXPECT_EQ(refusal({0, 0, 0, 0}, {1, 0, 0, 0}, false),
            "projector: nothing is connected to sources, but the model mixes rows of features");
}

TEST(ImageTextCost, counts_the_layers_that_are_run_and_the_rows_that_the_decoder_receives) {
  const Bench bench;
  VisionConfig config = read_hf_vision_config(reference_folder("image_text") / "llava_clip").value_or_throw();
  const auto flops = [&](const VisionConfig& of) {
    return VisionEncoder(bench.context("vision", false), {of, {}})
        .cost({.patches = 34, .visual = 32, .images = 2})
        .flops;
  };
  const double run = flops(config);
  config.layers_run = 0;
  const double layer = 2.0 * 34 * 16 * (4 * 16 + 2 * 24) + 2.0 * 2 * 34 * 17 * 16;
  EXPECT_DOUBLE_EQ(flops(config) - run, layer);
  const ProjectorConfig joins{.vision_width = 16, .width = 8, .join = 4, .products = 1, .biases = false};
  EXPECT_DOUBLE_EQ(Projector(bench.context("projector", false), {joins, {}, {}})
                       .cost({.patches = 32, .visual = 8, .images = 2})
                       .flops,
                   2.0 * 8 * 64 * 8);
}

}  // namespace
}  // namespace maestro::testing
