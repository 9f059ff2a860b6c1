// SPDX-License-Identifier: Apache-2.0
// Loads values into sections that were built without initial values.
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/model/hf_config.hpp"
#include "sections/decoder/decoder_lm.hpp"
#include "sections/decoder/decoder_trunk.hpp"
#include "sections/state_io.hpp"
#include "tests/sections/section_bench.hpp"

namespace maestro::testing {
namespace {

TEST(Loading, values_that_come_later_are_written_by_the_loader_alone) {
  Bench bench;
  const std::filesystem::path folder = reference_folder("llama_tied");
  const DecoderConfig config = read_hf_config(folder).value_or_throw();
  SectionContext context = bench.context("lm", true);
  DecoderLm drawn(context, {config, {}});
  context.values = InitialValues::later;
  DecoderLm later(context, {config, {}});
  for (const float value : later.parameters().values()) ASSERT_EQ(value, 0);
  load_weights(drawn, folder).or_throw();
  load_weights(later, folder).or_throw();
  EXPECT_TRUE(std::ranges::equal(later.parameters().values(), drawn.parameters().values()));
}

TEST(Loading, a_section_that_is_frozen_first_computes_as_when_it_is_loaded_first) {  // IO-3
  for (const char* model : {"gpt2_tied", "llama_untied", "qwen2_moe", "mixtral", "gpt_oss"}) {
    for (const DType precision : {DType::f32, DType::bf16}) {
      Bench bench;
      const std::filesystem::path folder = reference_folder(model);
      const DecoderConfig config = read_hf_config(folder).value_or_throw();
      SectionContext context = bench.context("lm", false, precision);
      const DecoderTrunk::Options options{config, TeacherOutput::logits, 1, {}};
      DecoderTrunk loaded(context, options);
      load_weights(loaded, folder).or_throw();
      context.values = InitialValues::later;
      DecoderTrunk frozen(context, options);
      frozen.freeze();
      load_weights(frozen, folder).or_throw();
      const Batch batch = Batch::random(5, {9, 1, 6}, config.vocabulary);
      MicroBatch expected(bench, loaded, batch, Pass::evaluate, precision);
      MicroBatch found(bench, frozen, batch, Pass::evaluate, precision);
      expected.forward();
      found.forward();
      EXPECT_EQ(largest_difference(found.output("logits"), expected.output("logits")), 0) << model;
    }
  }
}

}  // namespace
}  // namespace maestro::testing
