// SPDX-License-Identifier: Apache-2.0
// Stores and loads a section over ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "runtime/model/hf_config.hpp"
#include "sections/decoder/decoder_lm.hpp"
#include "sections/state_io.hpp"
#include "tests/sections/parallel_bench.hpp"

namespace maestro::testing {
namespace {

DecoderConfig saved_part(DecoderFamily family) {
  DecoderConfig config;
  config.family = family;
  config.layers = 2;
  config.width = 32;
  config.heads = 8;
  config.kv_heads = family == DecoderFamily::llama ? 4 : 0;
  config.ffn = 24;
  config.vocabulary = 37;
  config.positions = 12;
  config.tied = family == DecoderFamily::gpt2;
  return config;
}

ParallelBench on(Bench& bench, Layout layout, DecoderFamily family) {
  return {layout, bench.context("lm", true), [family](const SectionContext& context) {
            return std::make_unique<DecoderLm>(context, DecoderLm::Options{saved_part(family), {}});
          }};
}

std::vector<float> values_of(Section& section) {
  const auto values = section.parameters().values();
  return {values.begin(), values.end()};
}

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(ParallelState, moments_survive_the_way_over_any_layouts) {  // IO-1
  Bench bench;
  for (const DecoderFamily family : {DecoderFamily::gpt2, DecoderFamily::llama}) {
    ParallelBench first = on(bench, {}, family);
    const Tensor moments = first.section(0).parameters().second_moments();
    for (Parameter& parameter : first.section(0).parameters().all()) {
      const auto part = first.section(0).parameters().part(moments, parameter).span<float>();
      for (std::size_t i = 0; i < part.size(); ++i) part[i] = static_cast<float>(i) + 0.25f;
    }
    TensorSnapshot stored = first.whole(ParameterBuffer::second_moments);
    for (const Layout layout : {Layout{2, 1}, Layout{4, 1}, Layout{2, 2}, Layout{1, 1}}) {
      ParallelBench next = on(bench, layout, family);
      for (std::int64_t rank = 0; rank < layout.ranks(); ++rank) {
        Section& section = next.section(rank);
        ASSERT_TRUE(
            import_tensors(section, ParameterBuffer::second_moments, stored.tensors, "optimizer.safetensors").ok());
      }
      TensorSnapshot again = next.whole(ParameterBuffer::second_moments);
      expect_same(again, stored);
      stored = std::move(again);
    }
    expect_same(stored, first.whole(ParameterBuffer::second_moments));
  }
}

TEST(ParallelState, weights_folders_do_not_tell_the_number_of_ranks) {
  Bench bench;
  for (const DecoderFamily family : {DecoderFamily::gpt2, DecoderFamily::llama}) {
    ParallelBench single = on(bench, {}, family), two = on(bench, {2, 1}, family), four = on(bench, {4, 1}, family);
    randomise(single.section(0), 11);
    two.load(single.whole());
    const TemporaryFolder out;
    save_weights(single.section(0), out.path() / "one").or_throw();
    save_weights(two.holders(), out.path() / "two").or_throw();
    for (const char* file : {"model.safetensors", "config.json"}) {
      EXPECT_FALSE(bytes_of(out.path() / "one" / file).empty());
      EXPECT_EQ(bytes_of(out.path() / "one" / file), bytes_of(out.path() / "two" / file)) << file;
    }
    for (Section* rank : four.holders()) load_weights(*rank, out.path() / "two").or_throw();
    expect_same(four.whole(), single.whole());
  }
}

TEST(ParallelState, a_shape_that_does_not_fit_is_named_as_the_whole_and_changes_no_rank) {  // IO-2
  Bench bench;
  ParallelBench ranks = on(bench, {2, 1}, DecoderFamily::llama);
  TensorSnapshot stored = ranks.whole();
  const auto found = std::ranges::find(stored.tensors, "model.layers.1.self_attn.k_proj.weight", &NamedTensor::name);
  ASSERT_NE(found, stored.tensors.end());
  found->tensor = found->tensor.reshaped({32, 16});
  std::ranges::fill(values_in(stored, stored.tensors.front()), 9.0f);
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    Section& section = ranks.section(rank);
    const std::vector<float> before = values_of(section);
    const Status status = import_tensors(section, ParameterBuffer::values, stored.tensors, "model.safetensors");
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(
        status.error().message,
        "model.safetensors: tensor 'model.layers.1.self_attn.k_proj.weight' has shape (32, 16), expected (16, 32)");
    EXPECT_EQ(values_of(section), before);
  }
}

TEST(ParallelState, one_rank_of_several_cannot_be_stored_as_if_it_were_the_whole) {
  Bench bench;
  ParallelBench ranks = on(bench, {2, 1}, DecoderFamily::gpt2);
  const auto alone = export_tensors(ranks.section(0), ParameterBuffer::values);
  ASSERT_FALSE(alone.ok());
  EXPECT_EQ(alone.error().message,
            "'transformer.wte.weight' is held in parts, 576 of 1184 elements here; store all "
            "tensor ranks together");
}

TEST(ParallelState, files_of_another_tool_load_on_ranks_as_on_one) {
  Bench bench;
  for (const char* name : {"gpt2_tied", "llama_untied"}) {
    const DecoderConfig config = read_hf_config(reference_folder(name)).value_or_throw();
    const auto build = [config](const SectionContext& context) {
      return std::make_unique<DecoderLm>(context, DecoderLm::Options{config, {}});
    };
    ParallelBench single({}, bench.context("lm", true), build), ranks({2, 1}, bench.context("lm", true), build);
    load_weights(single.section(0), reference_folder(name)).or_throw();
    for (Section* rank : ranks.holders()) load_weights(*rank, reference_folder(name)).or_throw();
    expect_same(ranks.whole(), single.whole());
  }
}

}  // namespace
}  // namespace maestro::testing
