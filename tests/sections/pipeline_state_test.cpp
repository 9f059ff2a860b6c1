// SPDX-License-Identifier: Apache-2.0
// Stores and loads pipeline stages.
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/model/hf_config.hpp"
#include "sections/decoder/decoder_lm.hpp"
#include "sections/state_io.hpp"
#include "tests/sections/pipeline_bench.hpp"

namespace maestro::testing {
namespace {

DecoderConfig saved_model(DecoderFamily family, bool tied) {
  DecoderConfig config;
  config.family = family;
  config.layers = staged_layers;
  config.width = 32;
  config.heads = 8;
  config.kv_heads = family == DecoderFamily::llama ? 4 : 0;
  config.ffn = 24;
  config.vocabulary = 37;
  config.positions = 12;
  config.tied = tied;
  return config;
}

PipelineBench cut(Bench& bench, const DecoderConfig& config, std::int64_t stages, Layout layout = {}) {
  return {{stages, config.layers, layout}, bench.context("lm", true), [config](const SectionContext& context) {
            return std::make_unique<DecoderLm>(context, DecoderLm::Options{config, {}});
          }};
}

/// Sets every element to a different value.
void count_up(TensorSnapshot& snapshot) {
  float next = 0.25f;
  for (const NamedTensor& each : snapshot.tensors) {
    for (float& value : values_in(snapshot, each)) value = next += 1;
  }
}

void import_everywhere(PipelineBench& bench, ParameterBuffer which, const TensorSnapshot& stored) {
  for (std::int64_t index = 0; index < bench.stages(); ++index) {
    for (std::int64_t rank = 0; rank < bench.ranks(); ++rank) {
      Section& section = bench.stage(index).section(rank);
      import_tensors(section, which, stored.tensors, "stored").or_throw();
    }
  }
}

std::vector<std::string> names_of(const TensorSnapshot& snapshot) {
  std::vector<std::string> names;
  for (const NamedTensor& each : snapshot.tensors) names.push_back(each.name);
  return names;
}

TEST(PipelineState, state_survives_the_way_over_any_number_of_stages) {  // IO-1
  Bench bench;
  for (const auto& [family, tied] : {std::pair{DecoderFamily::gpt2, true}, std::pair{DecoderFamily::llama, true},
                                     std::pair{DecoderFamily::llama, false}}) {
    const DecoderConfig config = saved_model(family, tied);
    for (const ParameterBuffer which : {ParameterBuffer::values, ParameterBuffer::second_moments}) {
      PipelineBench uncut = cut(bench, config, 1);
      TensorSnapshot first = uncut.whole(which);
      count_up(first);
      TensorSnapshot stored = by_name(std::move(first));
      const std::tuple<std::int64_t, Layout> next[] = {{2, {}}, {3, {2, 1}}, {2, {1, 2}}, {1, {}}, {3, {}}};
      for (const auto& [stages, layout] : next) {
        PipelineBench parts = cut(bench, config, stages, layout);
        import_everywhere(parts, which, stored);
        for (std::int64_t rank = 0; tied && stages > 1 && rank < parts.ranks(); ++rank) {
          Section& front = parts.stage(0).section(rank);
          Section& back = parts.stage(stages - 1).section(rank);
          EXPECT_EQ(largest_difference(front.parameters().part(front.parameters().buffer(which), *front.tied()),
                                       back.parameters().part(back.parameters().buffer(which), *back.tied())),
                    0);
        }
        TensorSnapshot again = parts.whole(which);
        expect_same(again, stored);
        stored = std::move(again);
      }
    }
  }
}

TEST(PipelineState, every_tensor_is_stored_by_one_stage) {
  Bench bench;
  for (const auto& [family, tied] : {std::pair{DecoderFamily::gpt2, true}, std::pair{DecoderFamily::llama, true},
                                     std::pair{DecoderFamily::llama, false}}) {
    PipelineBench uncut = cut(bench, saved_model(family, tied), 1), parts = cut(bench, saved_model(family, tied), 3);
    EXPECT_EQ(names_of(parts.whole()), names_of(uncut.whole()));
    const std::vector<StateEntry> last = parts.stage(2).section(0).state();
    EXPECT_EQ(std::ranges::count(last, true, &StateEntry::copy), tied ? 1 : 0);
    const TemporaryFolder out;
    save_weights(parts.stage(2).section(0), out.path()).or_throw();
    const SafetensorsFile file = SafetensorsFile::open(out.path() / "model.safetensors").value_or_throw();
    EXPECT_EQ(file.names().size() + (tied ? 1 : 0), last.size());
  }
}

TEST(PipelineState, every_stage_loads_its_part_of_a_whole_models_folder) {
  Bench bench;
  for (const char* name : {"gpt2_tied", "gpt2_untied", "llama_tied", "llama_untied"}) {
    const DecoderConfig config = read_hf_config(reference_folder(name)).value_or_throw();
    ASSERT_EQ(config.layers, 2);
    PipelineBench uncut = cut(bench, config, 1), parts = cut(bench, config, 2);
    for (PipelineBench* each : {&uncut, &parts}) {
      for (std::int64_t index = 0; index < each->stages(); ++index) {
        load_weights(each->stage(index).section(0), reference_folder(name)).or_throw();
      }
    }
    expect_same(parts.whole(), uncut.whole());
    if (!config.tied) continue;
    EXPECT_EQ(largest_difference(parts.stage(1).section(0).tied()->value(), parts.stage(0).section(0).tied()->value()),
              0);
  }
}

std::string import_error(Section& section, TensorSnapshot& stored) {
  const Status status = import_tensors(section, ParameterBuffer::values, stored.tensors, "model.safetensors");
  return status ? "no error" : status.error().message;
}

TEST(PipelineState, a_tensor_that_is_no_part_of_the_model_is_still_an_error) {  // IO-2
  Bench bench;
  PipelineBench parts = cut(bench, saved_model(DecoderFamily::gpt2, true), 3);
  TensorSnapshot stored = parts.whole();
  Section& middle = parts.stage(1).section(0);
  EXPECT_EQ(import_error(middle, stored), "no error");
  const NamedTensor any = stored.tensors.front();
  for (const char* name : {"transformer.h.3.ln_1.weight", "transformer.h.0.ln_3.weight", "transformer.wtf.weight"}) {
    stored.tensors.push_back({name, any.tensor});
    EXPECT_TRUE(
        import_error(middle, stored).starts_with("model.safetensors: tensor '" + std::string(name) + "' is unexpected"))
        << import_error(middle, stored);
    stored.tensors.pop_back();
  }
  std::erase_if(stored.tensors, [](const NamedTensor& each) { return each.name == "transformer.wte.weight"; });
  EXPECT_EQ(import_error(middle, stored), "no error") << "the ends have the embedding";
  EXPECT_EQ(import_error(parts.stage(2).section(0), stored),
            "model.safetensors: tensor 'transformer.wte.weight' is missing; the nearest is 'transformer.wpe.weight'");
}

}  // namespace
}  // namespace maestro::testing
