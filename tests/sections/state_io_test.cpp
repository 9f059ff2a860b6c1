// SPDX-License-Identifier: Apache-2.0
#include "sections/state_io.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <deque>
#include <fstream>

#include "runtime/model/hf_config.hpp"
#include "sections/decoder/decoder_lm.hpp"
#include "sections/decoder/decoder_trunk.hpp"
#include "sections/decoder/language_model_head.hpp"
#include "tests/sections/section_bench.hpp"
#include "tests/sections/stored_model.hpp"

namespace maestro::testing {
namespace {

TEST(StateIo, moments_survive_the_way_out_and_in_under_a_prefix) {  // IO-1
  for (const char* model : {"gpt2_untied", "llama_tied"}) {
    Bench bench;
    const StoredModel stored(model);
    DecoderLm section(bench.context("lm", true), {stored.config, {}});
    const Tensor buffer = section.parameters().second_moments();
    for (Parameter& parameter : section.parameters().all()) {
      const auto part = section.parameters().part(buffer, parameter).span<float>();
      for (std::size_t i = 0; i < part.size(); ++i) part[i] = static_cast<float>(i) + 0.25f;
    }
    const auto moments = buffer.span<float>();
    const std::vector<float> before(moments.begin(), moments.end());
    const auto snapshot = export_tensors(section, ParameterBuffer::second_moments, "exp_avg_sq.");
    ASSERT_TRUE(snapshot.ok());
    EXPECT_EQ(snapshot->tensors[0].name.find("exp_avg_sq."), 0u);
    std::ranges::fill(moments, 0.0f);
    ASSERT_TRUE(import_tensors(section, ParameterBuffer::second_moments, snapshot->tensors, "optimizer.safetensors",
                               "exp_avg_sq.")
                    .ok());
    EXPECT_TRUE(std::ranges::equal(before, moments)) << model;
  }
}

TEST(StateIo, a_snapshot_does_not_change_with_the_section) {
  Bench bench;
  DecoderLm section(bench.context("lm", true), {StoredModel("gpt2_tied").config, {}});
  const auto snapshot = export_tensors(section, ParameterBuffer::values);
  ASSERT_TRUE(snapshot.ok());
  const float before = snapshot->tensors[0].tensor.data<float>()[3];
  std::ranges::fill(section.parameters().values(), 9.0f);
  EXPECT_EQ(snapshot->tensors[0].tensor.data<float>()[3], before);
}

TEST(StateIo, a_forward_pass_after_an_import_uses_the_new_values) {
  Bench bench;
  const StoredModel stored("gpt2_tied");
  DecoderLm source(bench.context("lm", true), {stored.config, {}}),
      section(bench.context("lm", true), {stored.config, {}});
  randomise(source, 3);
  randomise(section, 4);
  const Batch batch = Batch::random(5, {4, 3}, stored.config.vocabulary);
  const double expected = evaluate(bench, source, batch);
  ASSERT_NE(evaluate(bench, section, batch), expected);  // packs the weights
  const auto snapshot = export_tensors(source, ParameterBuffer::values);
  ASSERT_TRUE(snapshot.ok());
  ASSERT_TRUE(import_tensors(section, ParameterBuffer::values, snapshot->tensors, "model.safetensors").ok());
  EXPECT_EQ(evaluate(bench, section, batch), expected);
}

TEST(StateIo, an_ignored_name_under_another_prefix_is_unexpected) {
  Bench bench;
  const StoredModel stored("gpt2_tied");
  DecoderLm section(bench.context("lm", true), {stored.config, {}});
  const auto snapshot = export_tensors(section, ParameterBuffer::first_moments, "exp_avg.");
  ASSERT_TRUE(snapshot.ok());
  std::uint8_t mask[16] = {};
  const auto import_with = [&](const std::string& name) {
    std::vector<NamedTensor> tensors = snapshot->tensors;
    tensors.push_back({name, Tensor(mask, DType::u8, {1, 1, 4, 4})});
    return import_tensors(section, ParameterBuffer::first_moments, tensors, "optimizer.safetensors", "exp_avg.");
  };
  EXPECT_TRUE(import_with("exp_avg.transformer.h.0.attn.bias").ok());
  const Status refused = import_with("exp_sum.transformer.h.0.attn.bias");
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("'exp_sum.transformer.h.0.attn.bias' is unexpected"), std::string::npos);
}

TEST(StateIo, a_missing_an_unexpected_and_a_misshapen_tensor_are_named_and_change_nothing) {  // IO-2
  Bench bench;
  StoredModel stored("gpt2_tied");
  DecoderLm section(bench.context("lm", true), {stored.config, {}});
  const std::vector<float> before = values_of(section);
  const auto load = [&] {
    const TemporaryFolder out;
    const Status status = load_weights(section, stored.write(out));
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(values_of(section), before);
    EXPECT_NE(status.error().message.find("model.safetensors: tensor 'transformer."), std::string::npos)
        << status.error().message;
    return status.error().message.substr(status.error().message.find("tensor '"));
  };
  stored.find("transformer.ln_f.bias").name = "transformer.ln_f.biass";
  EXPECT_EQ(load(), "tensor 'transformer.ln_f.bias' is missing; the nearest is 'transformer.ln_f.biass'");
  stored = StoredModel("gpt2_tied");
  stored.tensors.push_back({"transformer.h.2.ln_1.bias", stored.find("transformer.h.1.ln_1.bias").tensor});
  EXPECT_NE(load().find("tensor 'transformer.h.2.ln_1.bias' is unexpected; the nearest known is "), std::string::npos);
  stored = StoredModel("gpt2_tied");
  NamedTensor& transposed = stored.find("transformer.h.0.attn.c_attn.weight");
  transposed.tensor = transposed.tensor.reshaped(Shape{72, 24});
  EXPECT_EQ(load(), "tensor 'transformer.h.0.attn.c_attn.weight' has shape (72, 24), expected (24, 72)");
}

TEST(StateIo, files_of_the_base_model_and_with_mask_buffers_load_too) {
  for (const char* model : {"gpt2_tied", "llama_tied"}) {
    Bench bench;
    StoredModel stored(model);
    DecoderLm expected(bench.context("lm", true), {stored.config, {}}),
        section(bench.context("lm", true), {stored.config, {}});
    load_weights(expected, stored.folder).or_throw();
    for (NamedTensor& tensor : stored.tensors) tensor.name = tensor.name.substr(tensor.name.find('.') + 1);
    std::uint8_t mask[16] = {};
    if (stored.config.family == DecoderFamily::gpt2)
      stored.tensors.push_back({"h.0.attn.bias", Tensor(mask, DType::u8, {1, 1, 4, 4})});
    const TemporaryFolder out;
    load_weights(section, stored.write(out)).or_throw();
    EXPECT_EQ(values_of(section), values_of(expected)) << model;
  }
}

TEST(StateIo, bf16_files_load_as_the_nearest_fp32) {
  Bench bench;
  StoredModel stored("gpt2_untied");
  NamedTensor& weight = stored.find("transformer.h.0.mlp.c_fc.weight");
  std::vector<bfloat16> rounded;
  for (const float value : weight.tensor.span<float>()) rounded.emplace_back(value);
  weight.tensor = Tensor(rounded.data(), DType::bf16, weight.tensor.shape());
  DecoderLm section(bench.context("lm", true), {stored.config, {}});
  const TemporaryFolder out;
  load_weights(section, stored.write(out)).or_throw();
  const Tensor value = section.parameters().find("transformer.h.0.mlp.c_fc.weight")->value();
  for (std::int64_t row = 0; row < value.rows(); ++row) {
    for (std::int64_t column = 0; column < value.columns(); ++column) {
      const auto at = static_cast<std::size_t>(column * value.rows() + row);
      ASSERT_EQ(value.data<float>()[row * value.columns() + column], static_cast<float>(rounded[at]));
    }
  }
}

TEST(StateIo, a_tied_table_may_stand_under_either_name_or_twice_but_not_differ) {
  for (const char* model : {"gpt2_tied", "llama_tied"}) {
    Bench bench;
    StoredModel stored(model);
    DecoderLm expected(bench.context("lm", true), {stored.config, {}}),
        section(bench.context("lm", true), {stored.config, {}});
    load_weights(expected, stored.folder).or_throw();
    const std::string name(embedding_name(stored.config));
    const NamedTensor table = stored.find(name);
    {
      const TemporaryFolder both;
      stored.tensors.push_back({"lm_head.weight", table.tensor});
      load_weights(section, stored.write(both)).or_throw();
      EXPECT_EQ(values_of(section), values_of(expected)) << model;
    }
    {
      const TemporaryFolder alone;
      std::erase_if(stored.tensors, [&](const NamedTensor& tensor) { return tensor.name == name; });
      DecoderLm again(bench.context("lm", true), {stored.config, {}});
      load_weights(again, stored.write(alone)).or_throw();
      EXPECT_EQ(values_of(again), values_of(expected)) << model;
    }
    const TemporaryFolder different;
    std::vector<float> other(table.tensor.span<float>().begin(), table.tensor.span<float>().end());
    other.back() += 1;
    stored.find("lm_head.weight").tensor = Tensor(other.data(), DType::f32, table.tensor.shape());
    stored.tensors.push_back(table);
    const Status refused = load_weights(section, stored.write(different));
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("lm_head.weight differs from " + name + ", but tie_word_embeddings is true"),
              std::string::npos)
        << refused.error().message;
  }
}

TEST(StateIo, f16_files_load_as_the_same_values) {
  const StoredModel stored("llama_tied");
  const TemporaryFolder out;
  // The binary16 values nearest to the model's, and their values in binary32.
  const auto half_of = [](float value) {  // of normal numbers, truncated
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t exponent = bits >> 23 & 0xffU;
    if (exponent < 113 || exponent > 142) return std::uint16_t{0};
    return static_cast<std::uint16_t>((bits >> 16 & 0x8000U) | (exponent - 112) << 10 | (bits >> 13 & 0x3ffU));
  };
  std::string header, data;
  std::vector<NamedTensor> expected = stored.tensors;
  std::deque<std::vector<float>> kept;
  for (NamedTensor& tensor : expected) {
    const Shape shape = tensor.tensor.shape();
    const std::size_t begin = data.size();
    std::vector<float>& values = kept.emplace_back();
    for (const float value : tensor.tensor.span<float>()) {
      const std::uint16_t half = half_of(value);
      data.append({static_cast<char>(half & 0xff), static_cast<char>(half >> 8)});
      const std::uint32_t wide =
          (half & 0x8000U) << 16 | ((half & 0x7fffU) == 0 ? 0 : ((half & 0x7fffU) << 13) + (112U << 23));
      values.push_back(std::bit_cast<float>(wide));
    }
    tensor.tensor = Tensor(values.data(), DType::f32, shape);
    const std::string sizes =
        shape.rank() == 1 ? std::to_string(shape[0]) : std::to_string(shape[0]) + "," + std::to_string(shape[1]);
    header += (header.empty() ? "{\"" : ",\"") + tensor.name + "\":{\"dtype\":\"F16\",\"shape\":[" + sizes +
              "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(data.size()) + "]}";
  }
  header += "}";
  std::string length(8, '\0');
  for (std::size_t at = 0; at < 8; ++at) length[at] = static_cast<char>(header.size() >> (8 * at) & 0xff);
  std::ofstream(out.path() / "model.safetensors", std::ios::binary) << length << header << data;
  std::filesystem::copy_file(stored.folder / "config.json", out.path() / "config.json");
  Bench bench;
  DecoderLm section(bench.context("lm", true), {stored.config, {}}),
      wide(bench.context("lm", true), {stored.config, {}});
  load_weights(section, out.path()).or_throw();
  ASSERT_TRUE(import_tensors(wide, ParameterBuffer::values, expected, "expected").ok());
  EXPECT_EQ(values_of(section), values_of(wide));
}

TEST(StateIo, a_trunk_and_a_head_each_take_their_part_of_one_folder) {
  Bench bench;
  const StoredModel stored("llama_untied");
  DecoderTrunk trunk(bench.context("t", true), {stored.config, TeacherOutput::hidden, 1, {}});
  LanguageModelHead head(bench.context("h", true), {stored.config, {}});
  ASSERT_TRUE(load_weights(trunk, stored.folder).ok());
  ASSERT_TRUE(load_weights(head, stored.folder).ok());
  const ConstTensor layer = stored.file.tensor("lm_head.weight").value_or_throw();
  EXPECT_EQ(largest_difference(head.parameters().find("lm_head.weight")->value(), layer), 0);
}

TEST(StateIo, a_folder_of_another_model_is_refused_naming_the_key_and_both_values) {
  Bench bench;
  const StoredModel stored("gpt2_tied");
  const auto load = [&](const std::function<void(DecoderConfig&)>& change) {
    DecoderConfig config = stored.config;
    change(config);
    DecoderLm section(bench.context("lm", false), {config, {}});
    const Status status = load_weights(section, stored.folder);
    EXPECT_FALSE(status.ok());
    return status.error().message.substr(stored.folder.string().size() + 1);
  };
  EXPECT_EQ(load([](DecoderConfig& config) { config.layers = 3; }), "config.json: n_layer is 2, but the section has 3");
  EXPECT_EQ(load([](DecoderConfig& config) { config.tied = false; }),
            "config.json: tie_word_embeddings is true, but the section has false");
  EXPECT_EQ(load([](DecoderConfig& config) { config.norm_epsilon = 1e-6; }),
            "config.json: layer_norm_epsilon is 1e-05, but the section has 1e-06");
  EXPECT_EQ(load([](DecoderConfig& config) { config.family = DecoderFamily::llama; }),
            "config.json: model_type is gpt2, but the section is of family llama");
}

TEST(StateIo, a_folder_without_weights_is_refused_by_path) {
  Bench bench;
  const StoredModel stored("gpt2_tied");
  DecoderLm section(bench.context("lm", false), {stored.config, {}});
  const TemporaryFolder out;
  EXPECT_NE(load_weights(section, out.path() / "none").error().message.find((out.path() / "none").string()),
            std::string::npos);
  std::filesystem::copy_file(stored.folder / "config.json", out.path() / "config.json");
  EXPECT_EQ(load_weights(section, out.path()).error().message,
            out.path().string() + ": holds neither model.safetensors nor model-*.safetensors");
}

TEST(StateIo, moments_that_replicas_share_go_by_way_of_the_gradients_and_never_in_part) {
  Bench bench;
  const StoredModel stored("gpt2_untied");
  DecoderLm section(bench.context("lm", true), {stored.config, {}});
  Parameters& parameters = section.parameters();
  const auto elements = static_cast<std::size_t>(parameters.elements());
  parameters.shard_optimizer_state(shard_range(elements, 2, 1));
  const auto part = export_tensors(section, ParameterBuffer::first_moments);
  ASSERT_FALSE(part.ok());
  EXPECT_NE(part.error().message.find("replicas share"), std::string::npos) << part.error().message;
  for (std::size_t at = 0; at < elements; ++at) parameters.gradients()[at] = static_cast<float>(at % 1000);
  const auto whole = export_tensors(section, ParameterBuffer::gradients, "exp_avg.");
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  parameters.clear_gradients(*bench.ops);
  ASSERT_TRUE(import_tensors(section, ParameterBuffer::gradients, whole->tensors, "optimizer", "exp_avg.").ok());
  parameters.load_gathered_moments(ParameterBuffer::first_moments);
  const ShardRange own = parameters.kept_moments();
  for (Parameter& parameter : parameters.all()) {
    const auto first = static_cast<std::size_t>(parameter.gradient().data<float>() - parameters.gradients().data());
    const auto count = static_cast<std::size_t>(parameter.shape().elements());
    for (std::size_t at = std::max(first, own.first); at < std::min(first + count, own.first + own.count); ++at) {
      ASSERT_EQ(parameters.first_moments().data<float>()[at - own.first], static_cast<float>(at % 1000))
          << parameter.name();
    }
  }
}

TEST(StateIo, state_that_is_not_there_is_an_error) {
  Bench bench;
  const StoredModel stored("gpt2_tied");
  DecoderLm section(bench.context("lm", false, DType::bf16), {stored.config, {}});
  EXPECT_FALSE(export_tensors(section, ParameterBuffer::first_moments).ok());
  section.freeze();
  const auto exported = export_tensors(section, ParameterBuffer::values);
  ASSERT_FALSE(exported.ok());
  EXPECT_NE(exported.error().message.find("frozen"), std::string::npos) << exported.error().message;
}

}  // namespace
}  // namespace maestro::testing
