// SPDX-License-Identifier: Apache-2.0
// Sections of the vision-language model over a layout's ranks, and comparisons with a single rank.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/sections/parallel_bench.hpp"
#include "tests/sections/vision_images.hpp"

namespace maestro::testing {

// Sums over ranks have another order than on a single rank.
inline constexpr double tolerance = 1e-5;
inline constexpr std::int64_t width = 32;
// A sample with two images, a sample without, images with other sizes: no layout below divides the rows only between
// samples or images.
inline const std::vector<std::vector<PictureSize>> shown = {{{2, 3}, {1, 2}}, {}, {{3, 3}}, {{1, 1}, {2, 2}}};

inline VisionConfig encoder_shape(PatchPositions positions) {
  VisionConfig config = tiny_vision(positions);
  config.heads = 4;
  return config;
}

inline DecoderConfig decoder_shape(DecoderFamily family) {
  DecoderConfig config = tiny_decoder(family);
  config.width = width;
  config.heads = 8;
  config.kv_heads = family == DecoderFamily::llama ? 4 : 0;
  return config;
}

inline ParallelBench::Build encoder_of(const VisionConfig& config) {
  return [config](const SectionContext& context) {
    return std::make_unique<VisionEncoder>(context, VisionEncoder::Options{config, {}});
  };
}
inline ParallelBench::Build projector_to(std::int64_t columns, std::optional<DType> features = {}) {
  return [columns, features](const SectionContext& context) {
    return std::make_unique<Projector>(context, Projector::Options{{16, columns, 0.02}, features, {}});
  };
}
inline ParallelBench::Build decoder_of(DecoderFamily family, std::optional<DType> visual = {}) {
  return [family, visual](const SectionContext& context) {
    return std::make_unique<VisionLanguageDecoder>(context,
                                                   VisionLanguageDecoder::Options{decoder_shape(family), {visual}, {}});
  };
}

inline OwnedTensor random_tensor(std::uint64_t seed, std::int64_t rows, std::int64_t columns,
                                 DType dtype = DType::f32) {
  std::mt19937 generator(static_cast<std::mt19937::result_type>(seed));
  return {dtype, {rows, columns}, exact_normals(generator, rows * columns)};
}

inline void expect_near(const OwnedTensor& found, const OwnedTensor& expected, const std::string& name) {
  EXPECT_LE(worst_error(found.values(), expected.values(), 1e-6), tolerance) << name;
}

inline void expect_same_metrics(const ParallelPass& found, const ParallelPass& expected) {
  ASSERT_EQ(found.metrics.size(), expected.metrics.size());
  for (const MetricSum& metric : expected.metrics) {
    EXPECT_NEAR(found.metric(metric.name).sum, metric.sum, loss_tolerance * metric.sum) << metric.name;
    EXPECT_EQ(found.metric(metric.name).weight, metric.weight) << metric.name;
  }
}

inline void expect_same_passes(const ParallelPass& found, const ParallelPass& expected) {
  expect_same_metrics(found, expected);
  for (const auto& [name, tensor] : expected.outputs) expect_near(found.outputs.at(name), tensor, name);
  for (const auto& [name, tensor] : expected.input_gradients) {
    expect_near(found.input_gradients.at(name), tensor, name);
  }
}

/// Removes key biases' gradients: a key bias adds the same to all scores of a query, which softmax ignores, so its
/// gradient is only rounding errors without a relative size.
inline void expect_no_key_bias_learns(TensorSnapshot& gradients, double norm) {
  std::erase_if(gradients.tensors, [&](const NamedTensor& each) {
    if (!each.name.ends_with("k_proj.bias")) return false;
    for (const float value : each.tensor.span<float>()) EXPECT_NEAR(value, 0, tolerance * norm) << each.name;
    return true;
  });
}

inline void expect_same_gradients(ParallelBench& found, ParallelBench& expected) {
  const double squares = expected.gradient_sum_of_squares();
  EXPECT_NEAR(found.gradient_sum_of_squares(), squares, tolerance * squares);
  TensorSnapshot gradients = found.whole(ParameterBuffer::gradients);
  TensorSnapshot of_one_rank = expected.whole(ParameterBuffer::gradients);
  for (TensorSnapshot* each : {&gradients, &of_one_rank}) expect_no_key_bias_learns(*each, std::sqrt(squares));
  expect_close(gradients, of_one_rank, tolerance);
}

/// A section on a single rank and on a layout's ranks, with equal values large enough for every term to matter.
struct Pair {
  Pair(const SectionContext& context, Layout layout, const ParallelBench::Build& build)
      : single({}, context, build), ranks(layout, context, build) {
    EXPECT_TRUE(ranks.section(0).spreads_over_ranks());
    expect_same(ranks.whole(), single.whole());  // PA-3
    randomise(single.section(0), 11);
    ranks.load(single.whole());
  }
  void freeze(std::int64_t count) {
    single.section(0).freeze();
    for (std::int64_t rank = 0; rank < count; ++rank) {
      ranks.section(rank).freeze();
      EXPECT_FALSE(ranks.section(rank).shareable());  // ranks meet in collectives
    }
  }
  /// Trains, compares everything, and returns the results of the single rank.
  ParallelPass expect_equal(const Batch& batch, const std::vector<Feed>& feeds,
                            const std::map<std::string, Tensor>& gradients = {}) {
    ParallelPass expected = single.run(batch, Pass::train, feeds, gradients);
    expect_same_passes(ranks.run(batch, Pass::train, feeds, gradients), expected);
    expect_same_gradients(ranks, single);
    return expected;
  }
  ParallelBench single, ranks;
};

inline const auto layouts =
    ::testing::Values(Layout{2, 1}, Layout{1, 2}, Layout{2, 2}, Layout{4, 1}, Layout{1, 4}, Layout{1, 3}, Layout{2, 4});
inline const auto layout_name = [](const auto& test) {
  return std::to_string(test.param.tensor) + "x" + std::to_string(test.param.context);
};

}  // namespace maestro::testing
