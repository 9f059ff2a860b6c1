// SPDX-License-Identifier: Apache-2.0
// Decoders that train low-rank adapters: against PEFT, as recorded by record_lora_references.py, and against the same
// decoders over ranks, in stages and with recomputed layers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runtime/model/hf_config.hpp"
#include "sections/decoder/decoder_lm.hpp"
#include "sections/decoder/decoder_trunk.hpp"
#include "sections/model_folder.hpp"
#include "tests/sections/pipeline_bench.hpp"
#include "tests/sections/random_decoder.hpp"

namespace maestro::testing {
namespace {

SectionContext context_of(const Bench& bench, const LoraConfig& lora, bool trained = true,
                          DType precision = DType::f32) {
  SectionContext context = bench.context("lm", trained, precision);
  context.lora = lora;
  return context;
}

class LoraReference : public ::testing::TestWithParam<const char*> {
 protected:
  LoraReference()
      : folder(reference_folder(GetParam())),
        samples(SafetensorsFile::open(folder / "expected.safetensors").value_or_throw()),
        expected(SafetensorsFile::open(folder / "lora.safetensors").value_or_throw()),
        config(read_hf_config(folder).value_or_throw()) {}

  [[nodiscard]] Batch batch() const {
    return {integers(samples, "tokens"), integers(samples, "targets"), integers(samples, "offsets")};
  }
  [[nodiscard]] std::vector<NamedTensor> adapters() const {
    std::vector<NamedTensor> adapters;
    for (const std::string& name : expected.names()) {
      if (name.starts_with(adapter_prefix)) adapters.push_back({name, expected.tensor(name).value_or_throw()});
    }
    return adapters;
  }
  void load(Section& section) const {
    load_weights(section, folder).or_throw();
    import_tensors(section, ParameterBuffer::values, adapters(), "lora.safetensors").or_throw();
  }
  [[nodiscard]] Tensor logits(Section& trunk) {
    const Batch rows = batch();
    pass.emplace(bench, trunk, rows, Pass::evaluate);
    pass->forward();
    return pass->output("logits");
  }

  LoraConfig lora{3, 7};
  Bench bench;
  std::filesystem::path folder;
  SafetensorsFile samples, expected;
  DecoderConfig config;
  std::optional<MicroBatch> pass;
};

TEST_P(LoraReference, loss_and_gradients_of_every_a_and_b_are_those_of_peft) {  // DK-3, LO-1
  DecoderLm model(context_of(bench, lora), {config, {}});
  load(model);
  EXPECT_NEAR(differentiate(bench, model, batch()), expected.tensor("loss").value_or_throw().data<float>()[0], 1e-5);
  const auto gradients = export_tensors(model, ParameterBuffer::gradients, "gradient.").value_or_throw();
  EXPECT_EQ(gradients.tensors.size(), adapters().size());
  for (const NamedTensor& gradient : gradients.tensors) {
    // Both sides in fp32, gradients of up to 0.5.
    EXPECT_LT(largest_difference(gradient.tensor, expected.tensor(gradient.name).value_or_throw()), 5e-6)
        << gradient.name;
  }
}

TEST_P(LoraReference, logits_are_those_of_the_model_that_peft_merges) {
  DecoderTrunk trunk(context_of(bench, lora, false), {config, TeacherOutput::logits, 1, {}});
  load(trunk);
  EXPECT_LT(largest_difference(logits(trunk), expected.tensor("merged").value_or_throw()), 2e-5);
}

TEST_P(LoraReference, merged_weights_make_the_same_logits_without_adapters) {
  DecoderLm model(context_of(bench, lora, false), {config, {}});
  AdapterConfig settings = model.adapters().value();
  settings.base = folder.string();
  StoredSection stored;
  stored.state.parameters = adapters();
  const MadeModel merged = merge_adapters(stored, settings).value_or_throw();
  std::vector<NamedTensor> tensors = merged.tensors;
  std::deque<std::vector<float>> memory;
  for (NamedTensor& named : tensors) {
    std::vector<float>& values = memory.emplace_back(static_cast<std::size_t>(named.tensor.elements()));
    named.tensor = ConstTensor(values.data(), DType::f32, named.tensor.shape());
    merged.make(named.name, values).or_throw();
  }
  DecoderTrunk trunk(bench.context("teacher", false), {config, TeacherOutput::logits, 1, {}});
  import_tensors(trunk, ParameterBuffer::values, tensors, "merged").or_throw();
  EXPECT_LT(largest_difference(logits(trunk), expected.tensor("merged").value_or_throw()), 2e-5);
}

TEST_P(LoraReference, fresh_adapters_are_spread_as_those_of_peft_and_leave_the_model_as_it_is) {
  DecoderLm model(context_of(bench, lora), {config, {}});
  load_weights(model, folder).or_throw();
  DecoderLm base(bench.context("lm", false), {config, {}});
  load_weights(base, folder).or_throw();
  EXPECT_EQ(evaluate(bench, model, batch()), evaluate(bench, base, batch()));
  for (const auto& [name, tensor] : export_tensors(model, ParameterBuffer::values).value_or_throw().tensors) {
    const std::span<const float> values = tensor.span<float>();
    const auto [least, largest] = std::ranges::minmax(values);
    const float* theirs = expected.tensor("initial." + name).value_or_throw().data<float>();
    const float bound = name.ends_with(adapter_b) ? 0.0F : 1.0F / std::sqrt(static_cast<float>(tensor.columns()));
    for (const float end : {-least, largest, -theirs[0], theirs[1]}) {
      EXPECT_LE(end, bound) << name;
      EXPECT_GE(end, 0.75F * bound) << name;  // largest of some 70 uniform values
    }
  }
}

TEST_P(LoraReference, names_its_modules_as_peft_does) {  // DK-3
  DecoderLm model(context_of(bench, lora), {config, {}});
  const AdapterConfig settings = model.adapters().value();
  EXPECT_EQ(settings.transposed, config.gpt2());
  EXPECT_EQ(settings.rank, 3);
  EXPECT_EQ(settings.alpha, 7);
  for (const StateEntry& entry : model.state()) {
    const std::string_view module = std::string_view(entry.name).substr(0, entry.name.size() - adapter_a.size());
    EXPECT_TRUE(std::ranges::any_of(settings.modules, [&](const auto& name) { return module.ends_with("." + name); }));
  }
}

INSTANTIATE_TEST_SUITE_P(models, LoraReference, ::testing::Values("llama_untied", "gpt2_tied", "phi3", "lfm2"),
                         [](const auto& test) { return std::string(test.param); });

struct Case {
  DecoderFamily family;
  bool tied = false;
  LoraConfig lora;
};

DecoderConfig model(const Case& shape) {
  DecoderConfig config;
  config.family = shape.family;
  config.layers = 3;
  config.width = 64;
  config.heads = 16;
  config.kv_heads = shape.family == DecoderFamily::gpt2 ? 0 : 8;
  config.ffn = 40;
  config.vocabulary = vocabulary;
  config.positions = 12;
  config.tied = shape.tied;
  config.init_std = 0.15;
  return with_family(with_kinds_of_layers(resolved(config)), shape.family);
}

class Lora : public ::testing::TestWithParam<Case> {
 protected:
  [[nodiscard]] ParallelBench::Build build() const {
    return [config = model(GetParam())](const SectionContext& context) {
      return std::make_unique<DecoderLm>(context, DecoderLm::Options{config, {}});
    };
  }
  [[nodiscard]] SectionContext context(DType precision = DType::f32) const {
    return context_of(bench, GetParam().lora, true, precision);
  }
  [[nodiscard]] ParallelBench single(DType precision = DType::f32) const {
    ParallelBench made({}, context(precision), build());
    randomise(made.section(0), 11);
    return made;
  }
  template <class Ranks>
  static void expect_equal(Ranks& found, ParallelBench& expected, const Batch& batch) {
    const ParallelPass ours = found.run(batch), theirs = expected.run(batch);
    const MetricSum loss = theirs.metric("loss");
    EXPECT_NEAR(ours.metric("loss").sum, loss.sum, 1e-6 * loss.sum);  // sums over ranks have another order
    expect_close(by_name(found.whole(ParameterBuffer::gradients)), by_name(expected.whole(ParameterBuffer::gradients)),
                 1e-5);
    const double squares = expected.gradient_sum_of_squares();
    EXPECT_GT(squares, 0);
    EXPECT_NEAR(found.gradient_sum_of_squares(), squares, 1e-5 * squares);
  }
  Bench bench;
  Batch batch = Batch::random(5, {9, 1, 12}, vocabulary);
};

TEST_P(Lora, losses_and_gradients_over_ranks_are_those_of_one_rank) {  // LO-2
  for (const Layout layout : {Layout{2, 1}, Layout{1, 2}, Layout{2, 2}, Layout{4, 2}}) {
    ParallelBench one = single(), ranks(layout, context(), build());
    ranks.load(one.whole());
    expect_equal(ranks, one, batch);
  }
}

TEST_P(Lora, losses_and_gradients_in_stages_are_those_of_the_uncut_section) {
  for (const Layout layout : {Layout{1, 1}, Layout{2, 1}}) {
    ParallelBench one = single();
    PipelineBench stages({3, 3, layout}, context(), build());
    stages.load(one.whole());
    expect_equal(stages, one, batch);
  }
}

TEST_P(Lora, initial_values_do_not_depend_on_ranks) {  // PA-3
  ParallelBench one({}, context(), build()), ranks({2, 2}, context(), build());
  expect_same(ranks.whole(), one.whole());
}

TEST_P(Lora, recomputed_layers_give_the_same_bits) {  // DK-1
  ParallelBench kept = single();
  SectionContext again = context();
  again.recompute = 2;
  ParallelBench recomputed({}, again, build());
  recomputed.load(kept.whole());
  EXPECT_EQ(recomputed.run(batch).metric("loss").sum, kept.run(batch).metric("loss").sum);
  expect_same(recomputed.whole(ParameterBuffer::gradients), kept.whole(ParameterBuffer::gradients));
}

TEST_P(Lora, bf16_follows_fp32) {
  ParallelBench exact = single(), rounded({}, context(DType::bf16), build());
  rounded.load(exact.whole());
  const MetricSum expected = exact.run(batch).metric("loss");
  // Eight bits of mantissa, some ten roundings in succession, averaged over the batch.
  EXPECT_NEAR(rounded.run(batch).metric("loss").sum / expected.weight, expected.sum / expected.weight, 0.05);
  EXPECT_NEAR(std::sqrt(rounded.gradient_sum_of_squares() / exact.gradient_sum_of_squares()), 1, 0.05);
}

TEST_P(Lora, weights_below_adapters_are_held_as_those_of_a_frozen_section) {  // AO-1
  ParallelBench one = single(DType::bf16);
  Section& section = one.section(0);
  Parameters& below = *section.weights().parameters;
  EXPECT_FALSE(below.trained());
  EXPECT_TRUE(below.values().empty());
  EXPECT_EQ(section.tied(), nullptr);
  EXPECT_GT(below.added_elements(), 4 * section.parameters().added_elements());
  for (const StateEntry& entry : section.state()) EXPECT_TRUE(entry.name.starts_with(adapter_prefix)) << entry.name;
}

std::vector<Case> shapes() {
  return {{DecoderFamily::llama, false, {4, 8}},
          {DecoderFamily::gpt2, true, {3, 5}},
          {DecoderFamily::phi3, true, {2, 2}},
          {DecoderFamily::gemma2, true, {2, 8, true, false, false}},
          {DecoderFamily::llama, true, {5, 5, false, true, false}},
          {DecoderFamily::gpt2, false, {1, 4, false, false, true}},
          {DecoderFamily::lfm2, true, {3, 4}},
          {DecoderFamily::lfm2, false, {2, 4, false, true, false}},
          {DecoderFamily::qwen3_5_text, false, {3, 4}}};
}

INSTANTIATE_TEST_SUITE_P(shapes, Lora, ::testing::ValuesIn(shapes()), [](const auto& test) {
  const LoraConfig& lora = test.param.lora;
  return std::string(name_of(test.param.family)) + "_" + (lora.qkv ? "qkv" : "") + (lora.out ? "out" : "") +
         (lora.ffn ? "ffn" : "");
});

}  // namespace
}  // namespace maestro::testing
