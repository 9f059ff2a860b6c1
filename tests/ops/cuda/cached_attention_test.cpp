// SPDX-License-Identifier: Apache-2.0
// Attention over a cache against the CPU's results, and against attention over the complete sequence.
#include "runtime/ops/cuda/attention/cached_attention.hpp"

#include "tests/ops/cuda/kernel_test.hpp"
#include "tests/ops/random_ends.hpp"

namespace maestro::cuda {
namespace {

struct CachedCase {
  AttentionShape shape;
  std::int64_t first;
  std::int64_t rows;
  std::vector<std::int32_t> ends = {};
  bool sinks = false;
};

class CachedAttentionTest : public KernelTest, public ::testing::WithParamInterface<DType> {
 protected:
  [[nodiscard]] static DType act() { return GetParam(); }
  void compare(const CachedCase& c) {
    SCOPED_TRACE("D " + std::to_string(c.shape.head_size) + ", " + std::to_string(c.rows) + " rows from " +
                 std::to_string(c.first) + ", window " + std::to_string(c.shape.window));
    const Shape cache{c.first + c.rows + 3, c.shape.kv_heads * c.shape.head_size};
    const OwnedTensor qkv = random(act(), {c.rows, c.shape.qkv_columns()});
    const OwnedTensor keys = random(act(), cache);
    const OwnedTensor values = random(act(), cache);
    const OwnedTensor out(act(), {c.rows, c.shape.out_columns()});
    const OwnedTensor sinks = random(DType::f32, Shape{c.shape.heads}, 3);
    const Values ends(c.ends.begin(), c.ends.end());
    const CachedAttention call{
        .qkv = upload(qkv),
        .shape = c.shape,
        .keys = upload(keys),
        .values = upload(values),
        .first = c.first,
        .out = empty(act(), {c.rows, c.shape.out_columns()}),
        .ends = span_of(upload(OwnedTensor(DType::i32, Shape{static_cast<std::int64_t>(c.ends.size())}, ends))),
        .sinks = c.sinks ? upload(sinks) : Tensor()};
    reference_.run(CachedAttention{.qkv = qkv,
                                   .shape = c.shape,
                                   .keys = keys,
                                   .values = values,
                                   .first = c.first,
                                   .out = out,
                                   .ends = c.ends,
                                   .sinks = c.sinks ? sinks.tensor() : Tensor()});
    run([&] { cached_attention(at_, call); });
    EXPECT_EQ(download(call.keys), keys.values());
    EXPECT_EQ(download(call.values), values.values());
    expect_near(call.out, out.values(), "out", 2e-5);
  }
};

TEST_P(CachedAttentionTest, agrees_with_the_processor_from_the_first_row_on) {
  for (const std::int64_t size : {16, 24, 80, 256}) {
    for (const std::int64_t first : {0, 1, 31, 200}) {
      for (const std::int64_t rows : {0, 1, 17}) compare({{4, 2, size, true}, first, rows});
    }
  }
}

TEST_P(CachedAttentionTest, agrees_with_the_processor_for_windows_scales_and_soft_caps) {
  for (const std::int64_t window : {1, 9, 128}) {
    for (const double softcap : {0.0, 2.0}) {
      compare({{6, 2, 64, true, 0.25, window, softcap}, 100, 1});
      compare({{2, 2, 128, true, 0, window, softcap}, 3, 40});
    }
  }
}

TEST_P(CachedAttentionTest, agrees_with_the_processor_for_sinks) {
  for (const std::int64_t window : {0, 9}) {
    compare({{8, 2, 64, true, 0, window}, 100, 1, {}, true});
    compare({{4, 4, 24, true, 0, window}, 0, 17, {}, true});
  }
}

TEST_P(CachedAttentionTest, agrees_with_the_processor_for_ends) {
  std::mt19937 generator(3);
  for (const std::int64_t window : {0, 9}) {
    for (const std::int32_t first : {0, 40}) {
      std::vector<std::int32_t> ends = testing::random_ends(generator, {37});
      for (std::int32_t& end : ends) end += first;
      compare({{4, 2, 24, true, 0, window}, first, 37, ends});
    }
  }
}

TEST_P(CachedAttentionTest, agrees_with_the_processor_for_a_row_of_each_sequence) {
  const AttentionShape shape{6, 2, 64, true, 0, 50};
  const std::vector<CachedSequence> sequences{{200, 0}, {0, 99}, {100, 41}};
  const OwnedTensor qkv = random(act(), {3, shape.qkv_columns()});
  const OwnedTensor keys = random(act(), {300, 128}), values = random(act(), {300, 128});
  const OwnedTensor out(act(), {3, shape.out_columns()});
  Values numbers;
  for (const CachedSequence& each : sequences) numbers.insert(numbers.end(), {1.0 * each.begin, 1.0 * each.rows});
  const Tensor table = upload(OwnedTensor(DType::i32, Shape{6}, numbers));
  CachedAttention call{.qkv = upload(qkv),
                       .shape = shape,
                       .keys = upload(keys),
                       .values = upload(values),
                       .out = empty(act(), {3, shape.out_columns()})};
  call.sequences = {reinterpret_cast<const CachedSequence*>(table.raw()), sequences.size()};
  reference_.run(
      CachedAttention{.qkv = qkv, .shape = shape, .keys = keys, .values = values, .out = out, .sequences = sequences});
  run([&] { cached_attention(at_, call); });
  EXPECT_EQ(download(call.keys), keys.values());
  EXPECT_EQ(download(call.values), values.values());
  expect_near(call.out, out.values(), "out", 2e-5);
}

INSTANTIATE_TEST_SUITE_P(Types, CachedAttentionTest, ::testing::Values(DType::f32, DType::bf16),
                         [](const auto& of) { return std::string(name_of(of.param)); });

TEST(CachedAttentionRefusal, is_an_error_of_a_call) {
  const Tensor none(nullptr, DType::f32, Shape{0, 60});
  EXPECT_THROW(cached_attention({}, {none, {1, 1, 20, true}, none, none, 0, none}), DeviceError);
}

}  // namespace
}  // namespace maestro::cuda
