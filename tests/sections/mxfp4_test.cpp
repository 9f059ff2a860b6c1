// SPDX-License-Identifier: Apache-2.0
// Experts in MXFP4, against the values to which transformers widens them (record_references.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "runtime/core/mxfp4.hpp"
#include "runtime/model/hf_config.hpp"
#include "sections/decoder/decoder_lm.hpp"
#include "sections/decoder/decoder_trunk.hpp"
#include "sections/decoder/generation.hpp"
#include "sections/state_io.hpp"
#include "sections/weights_folder.hpp"
#include "tests/sections/parallel_bench.hpp"

namespace maestro::testing {
namespace {

using ::testing::HasSubstr;

class Mxfp4 : public ::testing::Test {
 protected:
  [[nodiscard]] Batch batch() const {
    const std::vector<std::int32_t> tokens = integers(expected_, "tokens");
    return {tokens, tokens, {0, static_cast<std::int32_t>(tokens.size())}};
  }
  [[nodiscard]] ConstTensor expected(const std::string& name) const { return expected_.tensor(name).value_or_throw(); }
  /// Returns a context for a frozen section that packs values as they come.
  [[nodiscard]] SectionContext frozen(DType precision) const {
    SectionContext context = bench_.context("teacher", false, precision);
    context.values = InitialValues::later;
    return context;
  }
  /// Copies the folder with a tensor's first byte changed, or without the tensor.
  void write_changed(const std::string& name, std::optional<std::uint8_t> first) const {
    std::filesystem::copy_file(folder_ / "config.json", copy_.path() / "config.json");
    const auto stored = SafetensorsFile::open(folder_ / "model.safetensors").value_or_throw();
    std::vector<NamedTensor> tensors = stored.tensors().value_or_throw();
    if (!first) std::erase_if(tensors, [&](const NamedTensor& tensor) { return tensor.name == name; });
    std::vector<std::uint8_t> bytes;
    for (NamedTensor& tensor : tensors) {
      if (tensor.name != name) continue;
      const std::span<const std::uint8_t> values = tensor.tensor.span<std::uint8_t>();
      bytes.assign(values.begin(), values.end());
      bytes.front() = *first;
      tensor.tensor = ConstTensor(reinterpret_cast<const std::byte*>(bytes.data()), DType::u8, tensor.tensor.shape());
    }
    write_safetensors(copy_.path() / "model.safetensors", tensors, {}).value_or_throw();
  }

  Bench bench_;
  std::filesystem::path folder_ = reference_folder("gpt_oss_mxfp4");
  SafetensorsFile expected_ = SafetensorsFile::open(folder_ / "expected.safetensors").value_or_throw();
  DecoderConfig config_ = read_hf_config(folder_).value_or_throw();
  DecoderTrunk::Options options_{config_, TeacherOutput::logits, 1, {}};
  TemporaryFolder copy_;
};

TEST_F(Mxfp4, each_byte_with_any_scale_has_transformers_value) {  // BF-1
  const ConstTensor blocks = expected("all.blocks"), values = expected("all.values");
  const Mxfp4Rows rows{blocks.data<std::uint8_t>(), expected("all.scales").data<std::uint8_t>(), blocks.shape()[1],
                       blocks.shape()[2] * mxfp4_block};
  std::vector<float> row(static_cast<std::size_t>(rows.columns));
  for (std::int64_t i = 0; i < rows.rows; ++i) {
    rows.widen(i, 0, row);
    for (std::size_t column = 0; column < row.size(); ++column) {
      const auto at = static_cast<std::int64_t>(column) * rows.rows + i;  // transformers' are transposed
      ASSERT_EQ(bfloat16(row[column]).bits, values.data<bfloat16>()[at].bits) << i << ", " << column;
    }
    std::vector<float> some(70);  // neither begins nor ends with a block
    rows.widen(i, 29, some);
    EXPECT_TRUE(std::ranges::equal(some, std::span(row).subspan(29, 70)));
  }
}

TEST_F(Mxfp4, a_trained_section_gets_the_values_that_transformers_gets) {  // BF-1
  DecoderLm model(bench_.context("lm", true), {config_, {}});
  load_weights(model, folder_).or_throw();
  const TensorSnapshot values = export_tensors(model, ParameterBuffer::values).value_or_throw();
  int compared = 0;
  for (const NamedTensor& each : values.tensors) {
    if (!each.name.ends_with("_proj")) continue;
    const ConstTensor wanted = expected("values." + each.name);
    ASSERT_EQ(each.tensor.shape(), wanted.shape()) << each.name;
    const auto equal = [](float value, bfloat16 other) { return value == float(other); };
    EXPECT_TRUE(std::ranges::equal(each.tensor.span<float>(), wanted.span<bfloat16>(), equal)) << each.name;
    ++compared;
  }
  EXPECT_EQ(compared, 4);
}

TEST_F(Mxfp4, a_frozen_section_keeps_blocks_and_has_transformers_logits) {
  for (const DType precision : {DType::f32, DType::bf16}) {
    DecoderTrunk trunk(frozen(precision), options_);
    trunk.freeze();
    load_weights(trunk, folder_).or_throw();
    const Batch samples = batch();
    MicroBatch pass(bench_, trunk, samples, Pass::evaluate, precision);
    pass.forward();
    EXPECT_LT(largest_difference(pass.output("logits"), expected("logits")), precision == DType::f32 ? 2e-5 : 0.1);
    int in_blocks = 0;
    for (Parameter& parameter : trunk.parameters().all()) {
      if (parameter.groups() == 1) continue;
      in_blocks += parameter.in_blocks() ? 1 : 0;
      EXPECT_FALSE(parameter.value().defined());
      // 4.25 bits a value.
      EXPECT_EQ(parameter.packed(*bench_.ops, precision, PackFor::forward).bytes() * 32,
                static_cast<std::size_t>(parameter.shape().elements()) * 17);
    }
    EXPECT_EQ(in_blocks, 4);
  }
}

TEST_F(Mxfp4, text_is_generated_from_blocks) {
  for (const DType precision : {DType::f32, DType::bf16}) {
    Generation generation(*bench_.ops, folder_, precision);
    const std::vector<std::int32_t> tokens = integers(expected_, "tokens");
    generation.reserve(1, std::ssize(tokens));
    generation.begin(0, tokens);
    while (!generation.advance(0)) {
    }
    const ConstTensor all = expected("logits");
    const std::span<const float> last = all.span<float>().last(static_cast<std::size_t>(config_.vocabulary));
    double worst = 0;
    for (std::size_t i = 0; i < last.size(); ++i) {
      worst = std::max(worst, std::abs(double{generation.logits()[i]} - double{last[i]}));
    }
    EXPECT_LT(worst, precision == DType::f32 ? 2e-5 : 0.1);
  }
}

TEST_F(Mxfp4, tensor_ranks_have_their_parts_of_the_blocks) {
  const auto build = [&](const SectionContext& context) { return std::make_unique<DecoderTrunk>(context, options_); };
  // On tensor ranks 32 columns of a second product each, which is a block; or complete experts, or a single one.
  for (const Layout layout : {Layout{2, 1}, Layout{2, 1, 2}, Layout{1, 4, 4}}) {
    ParallelBench ranks(layout, frozen(DType::f32), build);
    for (std::int64_t rank = 0; rank < layout.ranks(); ++rank) {
      ranks.section(rank).freeze();
      load_weights(ranks.section(rank), folder_).or_throw();
      for (const Parameter& parameter : ranks.section(rank).parameters().all()) {
        EXPECT_EQ(parameter.in_blocks(), parameter.whole_groups() > 1) << parameter.name();
      }
    }
    const ParallelPass pass = ranks.run(batch(), Pass::evaluate);
    EXPECT_LT(largest_difference(pass.outputs.at("logits").tensor(), expected("logits")), 2e-5);
  }
}

TEST_F(Mxfp4, gradients_pass_through_a_frozen_section) {
  const auto input_gradient = [&](bool in_blocks) {
    DecoderTrunk trunk(in_blocks ? frozen(DType::f32) : bench_.context("teacher", false), options_);
    if (in_blocks) trunk.freeze();
    load_weights(trunk, folder_).or_throw();
    Parameter* in = trunk.parameters().find("model.layers.0.mlp.experts.gate_up_proj");
    EXPECT_EQ(in->in_blocks(), in_blocks);
    std::mt19937 generator(3);
    const std::int64_t rows = 7, groups = config_.experts.count, columns = in->shape()[0] / groups;
    const OwnedTensor dy(DType::f32, {rows, columns}, exact_normals(generator, rows * columns));
    const OwnedTensor offsets(DType::i32, Shape{groups + 1}, {0, 3, 3, 6, 7}), dx(DType::f32, {rows, config_.width});
    bench_.ops->run(GroupedLinearBackwardInput{
        .dy = dy, .w = &in->packed(*bench_.ops, DType::f32, PackFor::backward_input), .offsets = offsets, .dx = dx});
    return dx.values();
  };
  EXPECT_LT(worst_error(input_gradient(true), input_gradient(false)), 1e-6);
}

TEST_F(Mxfp4, a_block_that_is_not_numbers_is_refused_by_name) {
  const std::string name = "model.layers.1.mlp.experts.down_proj";
  write_changed(name + "_scales", 255);
  DecoderTrunk trunk(frozen(DType::bf16), options_);
  trunk.freeze();
  DecoderLm trained(bench_.context("lm", true), {config_, {}});
  for (Section* section : std::vector<Section*>{&trunk, &trained}) {
    try {
      load_weights(*section, copy_.path()).or_throw();
      ADD_FAILURE() << "accepted";
    } catch (const JobError& error) {
      EXPECT_THAT(error.what(), HasSubstr("'" + name + "_scales' has the scale 255"));
    }
  }
}

TEST_F(Mxfp4, blocks_without_scales_are_refused_by_name) {
  const std::string name = "model.layers.1.mlp.experts.down_proj";
  write_changed(name + "_scales", std::nullopt);
  const auto opened = WeightsFolder::open(copy_.path());
  ASSERT_FALSE(opened.ok());
  EXPECT_THAT(opened.error().message, HasSubstr("has no tensor '" + name + "_scales'"));
}

TEST_F(Mxfp4, other_quantisations_are_refused) {
  std::ifstream file(folder_ / "config.json");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  const auto at = text.find("\"mxfp4\"");
  ASSERT_NE(at, std::string::npos);
  text.replace(at, 7, "\"gptq\"");
  const auto other = parse_hf_config(text, "config.json");
  ASSERT_FALSE(other.ok());
  EXPECT_THAT(other.error().message, HasSubstr("quant_method"));
}

}  // namespace
}  // namespace maestro::testing
