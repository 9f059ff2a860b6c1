// SPDX-License-Identifier: Apache-2.0
// Ranks that share a layer's experts: parts and norms, stored files, small micro-batches, refusals.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "runtime/schedule/version_map.hpp"
#include "sections/decoder/decoder_lm.hpp"
#include "sections/weight_version.hpp"
#include "tests/sections/parallel_bench.hpp"
#include "tests/sections/route_book.hpp"

namespace maestro::testing {
namespace {

constexpr Layout mappings[] = {{1, 2, 2}, {2, 1, 2}, {2, 2, 2}, {2, 2, 4}, {1, 4, 2}, {4, 1, 4}};

std::string text_of_mapping(const Layout& layout) {
  return "tensor " + std::to_string(layout.tensor) + ", context " + std::to_string(layout.context) + ", expert " +
         std::to_string(layout.expert);
}

/// Names by expert and a shared expert (qwen2_moe), by expert (lfm2_moe has a bias of scores), and all experts in a
/// transposed tensor with biases (gpt_oss).
constexpr DecoderFamily mapped_families[] = {DecoderFamily::qwen2_moe, DecoderFamily::lfm2_moe, DecoderFamily::gpt_oss};

DecoderConfig mapped_model(DecoderFamily family) {
  DecoderConfig config;
  config.layers = 2;
  config.width = 16;
  config.heads = 4;
  config.kv_heads = 4;
  config.ffn = 24;
  config.vocabulary = vocabulary;
  config.positions = 16;
  config.experts.count = 8;
  config.experts.per_token = 2;
  config.experts.ffn = 24;
  if (family == DecoderFamily::qwen2_moe) config.experts.shared_ffn = 8;
  config.experts.balance = LoadBalance::none;
  return with_family(config, family);
}

ParallelBench experts_on(const Bench& bench, const Layout& layout, DecoderFamily family, DType precision = DType::f32) {
  return {layout, bench.context("lm", true, precision), [family](const SectionContext& context) {
            return std::make_unique<DecoderLm>(context, DecoderLm::Options{mapped_model(family), {}});
          }};
}

std::string mapped_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(ExpertMapping, counts_each_element_of_the_norm_once) {
  Bench bench;
  const Batch batch = Batch::random(5, {9, 1, 12}, vocabulary);
  ParallelBench single = experts_on(bench, {}, DecoderFamily::qwen2_moe);
  randomise(single.section(0), 3);
  RouteBook book = RouteBook::of_chance(3);
  single.set_routes(&book);
  single.run(batch);
  book.replay();
  for (const Layout& layout : mappings) {
    SCOPED_TRACE(text_of_mapping(layout));
    ParallelBench ranks = experts_on(bench, layout, DecoderFamily::qwen2_moe);
    ranks.load(single.whole());
    ranks.set_routes(&book);
    ranks.run(batch);
    const double expected = single.gradient_sum_of_squares();
    EXPECT_NEAR(ranks.gradient_sum_of_squares(), expected, 1e-5 * expected);
  }
}

TEST(ExpertMapping, gives_a_rank_its_part_of_the_experts) {
  const Bench bench;
  for (const DecoderFamily family : mapped_families) {
    ParallelBench ranks = experts_on(bench, {1, 4, 4}, family), single = experts_on(bench, {}, family);
    std::int64_t experts = 0, all = 0;
    for (const Parameter& parameter : ranks.section(1).parameters().all()) {
      const Parameter* whole = single.section(0).parameters().find(parameter.name());
      if (parameter.holding() == Holding::expert_parts) {
        EXPECT_EQ(parameter.shape().elements() * 4, whole->shape().elements()) << parameter.name();
        EXPECT_EQ(parameter.groups(), parameter.whole_groups() == 1 ? 1 : 2) << parameter.name();
        ++experts;
      } else {
        EXPECT_EQ(parameter.shape(), whole->shape()) << parameter.name();
      }
      ++all;
    }
    EXPECT_GE(experts, 4);
    EXPECT_LT(experts, all);
  }
}

TEST(ExpertMapping, is_not_seen_in_stored_files) {  // IO-1
  Bench bench;
  for (const DecoderFamily family : mapped_families) {
    ParallelBench single = experts_on(bench, {}, family);
    randomise(single.section(0), 11);
    const TemporaryFolder out;
    save_weights(single.section(0), out.path() / "single").or_throw();
    const Tensor second = single.section(0).parameters().second_moments();
    std::ranges::copy(single.section(0).parameters().values(), second.span<float>().begin());
    TensorSnapshot moments = single.whole(ParameterBuffer::second_moments);
    for (const Layout& layout : mappings) {
      SCOPED_TRACE(text_of_mapping(layout));
      ParallelBench ranks = experts_on(bench, layout, family);
      const std::filesystem::path folder = out.path() / text_of_mapping(layout);
      for (std::int64_t rank = 0; rank < layout.ranks(); ++rank) {
        load_weights(ranks.section(rank), out.path() / "single").or_throw();
        import_tensors(ranks.section(rank), ParameterBuffer::second_moments, moments.tensors, "optimizer").or_throw();
      }
      expect_same(ranks.whole(), single.whole());
      save_weights(ranks.holders(), folder).or_throw();
      for (const char* file : {"model.safetensors", "config.json"}) {
        EXPECT_FALSE(mapped_bytes(folder / file).empty());
        EXPECT_EQ(mapped_bytes(folder / file), mapped_bytes(out.path() / "single" / file)) << file;
      }
      TensorSnapshot again = ranks.whole(ParameterBuffer::second_moments);
      expect_same(again, moments);
      moments = std::move(again);  // the next mapping reads this one's
    }
  }
}

TEST(ExpertMapping, draws_the_values_of_a_single_rank) {  // PA-3
  const Bench bench;
  for (const DecoderFamily family : mapped_families) {
    ParallelBench single = experts_on(bench, {}, family);
    for (const Layout& layout : mappings) expect_same(experts_on(bench, layout, family).whole(), single.whole());
  }
}

TEST(ExpertMapping, sends_each_value_of_a_version_once) {
  const Bench bench;
  for (const Layout& layout : mappings) {
    SCOPED_TRACE(text_of_mapping(layout));
    ParallelBench ranks = experts_on(bench, layout, DecoderFamily::qwen2_moe),
                  single = experts_on(bench, {}, DecoderFamily::qwen2_moe);
    std::vector<WeightBlock> blocks;
    for (std::uint32_t rank = 0; rank < layout.ranks(); ++rank) {
      WeightBlock block{SectionId(0), LayoutRank(rank), 1, sent_weights(ranks.section(rank), {layout, rank})};
      EXPECT_EQ(block.elements() > 0, rank < layout.holders());
      blocks.push_back(std::move(block));
    }
    EXPECT_NO_THROW(VersionMap(std::move(blocks)).require(weight_elements(single.section(0))));
  }
}

TEST(ExpertMapping, has_the_losses_and_gradients_of_one_rank_for_few_rows) {  // MO-1, MO-3
  const Bench bench;
  for (const DecoderFamily family : mapped_families) {
    for (const std::vector<std::int32_t>& lengths : {std::vector<std::int32_t>{1}, {2, 1}, {1, 1, 1, 2}}) {
      const Batch batch = Batch::random(5, lengths, vocabulary);
      ParallelBench single = experts_on(bench, {}, family);
      randomise(single.section(0), 3);
      RouteBook book = RouteBook::of_chance(3);
      single.set_routes(&book);
      const ParallelPass expected = single.run(batch);
      book.replay();
      for (const Layout& layout : mappings) {
        SCOPED_TRACE(text_of_mapping(layout) + ", rows " + std::to_string(batch.rows()));
        ParallelBench ranks = experts_on(bench, layout, family);
        ranks.load(single.whole());
        ranks.set_routes(&book);
        EXPECT_NEAR(ranks.run(batch).metric("loss").sum, expected.metric("loss").sum, 1e-5);
        expect_close(ranks.whole(ParameterBuffer::gradients), single.whole(ParameterBuffer::gradients), 1e-5, 0.1);
      }
    }
  }
}

TEST(ExpertMapping, repeats_to_the_bit) {
  const Bench bench;
  const Batch batch = Batch::random(5, {9, 1, 12}, vocabulary);
  ParallelBench ranks = experts_on(bench, {2, 2, 2}, DecoderFamily::qwen2_moe);
  const double loss = ranks.run(batch).metric("loss").sum;
  const TensorSnapshot gradients = ranks.whole(ParameterBuffer::gradients);
  EXPECT_EQ(ranks.run(batch).metric("loss").sum, loss);
  expect_same(ranks.whole(ParameterBuffer::gradients), gradients);
}

TEST(ExpertMapping, in_bf16_is_near_one_rank) {
  const Bench bench;
  const Batch batch = Batch::random(5, {9, 1, 12}, vocabulary);
  for (const DecoderFamily family : mapped_families) {
    ParallelBench exact = experts_on(bench, {}, family);
    randomise(exact.section(0), 3);
    RouteBook book = RouteBook::of_chance(3);
    exact.set_routes(&book);
    const double loss = exact.run(batch).metric("loss").sum;
    book.replay();
    for (const Layout& layout : {Layout{2, 1, 2}, Layout{2, 2, 4}, Layout{1, 4, 2}}) {
      ParallelBench rounded = experts_on(bench, layout, family, DType::bf16);
      rounded.load(exact.whole());
      rounded.set_routes(&book);
      EXPECT_NEAR(rounded.run(batch).metric("loss").sum, loss, 0.03 * loss) << text_of_mapping(layout);
    }
  }
}

TEST(ExpertMapping, ends_for_all_ranks_if_one_fails) {
  const Bench bench;
  Batch batch = Batch::random(5, {9, 1, 12}, vocabulary);
  ParallelBench ranks = experts_on(bench, {1, 4, 4}, DecoderFamily::qwen2_moe);
  class Failing final : public RouteHook {
   public:
    std::vector<std::int32_t> named(const RoutedRows& rows) override {
      if (rows.own.first == 0) throw std::runtime_error("no routes");
      return {};
    }
    void taken(const RoutedRows&, const OperatorTable&, const Tensor&) override {}
  } failing;
  ranks.set_routes(&failing);
  EXPECT_THROW(ranks.run(batch), std::runtime_error);
}

TEST(ExpertMapping, is_refused_by_name) {
  const Bench bench;
  const auto refusal = [&](const Layout& layout, const DecoderConfig& config, bool for_cuda = false) -> std::string {
    SectionContext context = bench.context("lm", true);
    context.meta = true;
    context.for_cuda = for_cuda;
    context.parallel.layout = layout;
    try {
      DecoderLm(context, {config, {}});
    } catch (const JobError& error) {
      return error.what();
    }
    return "none";
  };
  DecoderConfig experts = mapped_model(DecoderFamily::qwen2_moe);
  EXPECT_EQ(refusal({2, 2, 4}, experts), "none");
  EXPECT_EQ(refusal({3, 1, 3}, experts), "lm.tensor = 3: 4 heads cannot be cut in 3; nearest that fits: tensor = 2");
  EXPECT_EQ(refusal({2, 2, 3}, experts),
            "lm.expert = 3: tensor * context = 4 ranks cannot be cut in 3; nearest that fits: expert = 4");
  experts.experts.count = 6;
  EXPECT_EQ(refusal({2, 2, 4}, experts), "lm.expert = 4: 6 experts cannot be cut in 4; nearest that fits: expert = 2");
  experts.head_size = 64;
  EXPECT_EQ(refusal({2, 1, 2}, experts, true),
            "lm.expert = 2 on cuda devices is not built; leave expert out, or use cpu devices");
  DecoderConfig dense;
  dense.layers = 1;
  dense.width = 16;
  dense.heads = 4;
  dense.vocabulary = vocabulary;
  dense.positions = 12;
  EXPECT_EQ(refusal({2, 1, 2}, dense), "lm.expert = 2: the section has no experts; leave expert out");
}

}  // namespace
}  // namespace maestro::testing
