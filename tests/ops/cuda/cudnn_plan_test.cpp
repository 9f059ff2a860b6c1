// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda/attention/cudnn_plan.hpp"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace maestro::cuda {
namespace {

const AttentionShape shape{6, 2, 16, true};

SequenceSummary summary_of(const std::vector<std::int32_t>& offsets) {
  return summarize(offsets);
}

TEST(CudnnPlan, sequences_are_uniform_when_all_are_equally_long_and_not_empty) {
  EXPECT_TRUE(summary_of({0, 5, 10, 15}).uniform);
  EXPECT_TRUE(summary_of({0, 5}).uniform);
  EXPECT_FALSE(summary_of({0, 5, 11}).uniform);
  EXPECT_FALSE(summary_of({0, 0, 0}).uniform);
  EXPECT_FALSE(summary_of({0}).uniform);
  EXPECT_FALSE(summary_of({}).uniform);
  const SequenceSummary mixed = summary_of({0, 5, 5, 12});
  EXPECT_EQ(mixed.sequences, 3);
  EXPECT_EQ(mixed.rows, 12);
  EXPECT_EQ(mixed.longest, 7);
}

TEST(CudnnPlan, buckets_hold_their_values_and_waste_less_than_half) {
  std::int64_t before = 0;
  std::set<std::int64_t> seen;
  for (std::int64_t value = 0; value <= 20000; ++value) {
    const std::int64_t size = bucket(value, 128);
    ASSERT_GE(size, value);
    ASSERT_GE(size, before);
    if (value > 128) {
      ASSERT_LT(size, value + value / 2);
    }
    before = size;
    seen.insert(size);
  }
  EXPECT_LE(seen.size(), 16U);
  EXPECT_EQ(bucket(128, 128), 128);
  EXPECT_EQ(bucket(129, 128), 192);
  EXPECT_EQ(bucket(193, 128), 256);
  EXPECT_EQ(bucket(5, 4), 6);
}

TEST(CudnnPlan, micro_batches_of_about_the_same_size_share_a_ragged_plan) {
  const CudnnKey a = ragged_key(shape, summary_of({0, 100, 1000, 1900}));
  const CudnnKey b = ragged_key(shape, summary_of({0, 950, 1000, 1100, 1600}));
  EXPECT_EQ(a, b);
  EXPECT_FALSE(a.dense);
  EXPECT_GE(a.rows, 1900);
  EXPECT_GE(a.length, 950);
  EXPECT_GE(a.batch, 4);
}

/// Returns the place of element (b, h, s, d) in a view, which must be the row-major packed view.
std::int64_t place(const HeadView& view, std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t d) {
  return view.first + b * view.strides[0] + h * view.strides[1] + s * view.strides[2] + d * view.strides[3];
}

TEST(CudnnPlan, dense_views_are_the_packed_tensors) {
  const CudnnKey key = dense_key(shape, summary_of({0, 5, 10, 15, 20}));
  EXPECT_TRUE(key.dense);
  EXPECT_EQ(key.batch, 4);
  EXPECT_EQ(key.length, 5);
  const std::int64_t columns = shape.qkv_columns();
  for (const auto& [b, h, s, d] : {std::array<std::int64_t, 4>{0, 0, 0, 0}, {3, 1, 4, 15}, {2, 1, 3, 7}}) {
    const std::int64_t row = b * 5 + s;
    EXPECT_EQ(place(part_of_qkv(key, HeadPart::query), b, h, s, d), row * columns + h * 16 + d);
    EXPECT_EQ(place(part_of_qkv(key, HeadPart::key), b, h, s, d), row * columns + (6 + h) * 16 + d);
    EXPECT_EQ(place(part_of_qkv(key, HeadPart::value), b, h, s, d), row * columns + (8 + h) * 16 + d);
    EXPECT_EQ(place(view_of_out(key), b, h, s, d), row * shape.out_columns() + h * 16 + d);
  }
  EXPECT_EQ(part_of_qkv(key, HeadPart::key).sizes, (std::array<std::int64_t, 4>{4, 2, 5, 16}));
  EXPECT_EQ(part_of_qkv(key, HeadPart::query).sizes, (std::array<std::int64_t, 4>{4, 6, 5, 16}));
}

TEST(CudnnPlan, statistics_of_either_kind_fill_M_H_numbers_once) {
  const CudnnKey dense = dense_key(shape, summary_of({0, 5, 10}));
  std::set<std::int64_t> places;
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t h = 0; h < 6; ++h) {
      for (std::int64_t s = 0; s < 5; ++s) places.insert(place(view_of_stats(dense), b, h, s, 0));
    }
  }
  EXPECT_EQ(places.size(), 60U);
  EXPECT_EQ(*places.rbegin(), 59);
  places.clear();
  const std::vector<std::int32_t> offsets = {0, 3, 10};
  const CudnnKey ragged = ragged_key(shape, summary_of(offsets));
  for (std::size_t b = 0; b < 2; ++b) {
    for (std::int64_t h = 0; h < 6; ++h) {
      for (std::int64_t s = 0; s < offsets[b + 1] - offsets[b]; ++s) {
        places.insert(offsets[b] * 6 + place(view_of_stats(ragged), 0, h, s, 0));  // the sequence begins at its offset
      }
    }
  }
  EXPECT_EQ(places.size(), 60U);
  EXPECT_EQ(*places.rbegin(), 59);
}

TEST(CudnnPlan, versions_that_cannot_do_it_right_are_not_asked) {
  const CudnnKey dense = dense_key(shape, summary_of({0, 5, 10}));
  const CudnnKey ragged = ragged_key(shape, summary_of({0, 5, 11}));
  for (const std::size_t version : {90100, 91700, 91800, 91900, 92600}) EXPECT_EQ(version_refusal(dense, version), "");
  for (const std::size_t version : {91800, 91900, 92600}) EXPECT_EQ(version_refusal(ragged, version), "");
  EXPECT_EQ(version_refusal(ragged, 91501),
            "sequences of several lengths need cuDNN 9.18.0 or newer, and this is 9.15.1");
  for (const std::size_t version : {91000, 91001}) {
    EXPECT_NE(version_refusal(dense, version).find("is faulty"), std::string::npos);
    EXPECT_NE(version_refusal(ragged, version).find("is faulty"), std::string::npos);
  }
  EXPECT_EQ(version_refusal(dense, 91002), "");
}

TEST(CudnnPlan, scales_and_windows_are_part_of_a_plan_and_soft_caps_are_refused) {
  AttentionShape other = shape;
  const SequenceSummary summary = summary_of({0, 5, 10});
  EXPECT_EQ(dense_key(shape, summary).scale, 0.25);
  other.scale = 0.5;
  EXPECT_NE(dense_key(other, summary), dense_key(shape, summary));
  other = shape;
  other.window = 3;
  EXPECT_NE(ragged_key(other, summary), ragged_key(shape, summary));
  EXPECT_EQ(version_refusal(dense_key(other, summary), 92600), "");
  EXPECT_EQ(describe(dense_key(other, summary)),
            "causal attention of 6 heads of 16 over 2 key heads, a window of 3, 2 sequences of 5");
  other.softcap = 50;
  EXPECT_EQ(version_refusal(dense_key(other, summary), 92600), "cuDNN caps no scores");
}

TEST(CudnnPlan, keys_behind_the_last_are_masked_where_neither_length_nor_cause_does_it) {
  const AttentionShape both_ways{4, 4, 64, false};
  const auto masks = [](const AttentionShape& of, std::int32_t length) {
    return masks_last_keys(dense_key(of, summary_of({0, length, 2 * length})));
  };
  for (const std::int32_t length : {1, 64, 129, 192, 577}) {
    EXPECT_TRUE(masks(both_ways, length)) << length;
    EXPECT_FALSE(masks(shape, length)) << length << " in causal attention";
  }
  for (const std::int32_t length : {128, 256, 1024}) EXPECT_FALSE(masks(both_ways, length)) << length;
  EXPECT_FALSE(masks_last_keys(ragged_key(both_ways, summary_of({0, 5, 11})))) << "it has lengths anyway";
}

TEST(CudnnPlan, messages_name_the_shape) {
  EXPECT_EQ(describe(dense_key(shape, summary_of({0, 5, 10}))),
            "causal attention of 6 heads of 16 over 2 key heads, 2 sequences of 5");
  EXPECT_EQ(describe(ragged_key({1, 1, 64, false}, summary_of({0, 5, 11}))),
            "bidirectional attention of 1 heads of 64 over 1 key heads, 4 sequences of up to 128");
}

}  // namespace
}  // namespace maestro::cuda
