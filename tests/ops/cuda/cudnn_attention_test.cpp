// SPDX-License-Identifier: Apache-2.0
// Attention by cuDNN against the CPU's, on a device. Tolerances, relative to the largest value: bf16 storage rounds
// results once (2^-9), and probabilities and their gradients are rounded before multiplication: 1.5e-2.
#include "runtime/ops/cuda/attention/cudnn_attention.hpp"

#include <limits>

#include "tests/ops/cuda/kernel_test.hpp"

namespace maestro::cuda {
namespace {

using testing::exact_normals;
using testing::worst_error;

struct Case {
  std::vector<std::int32_t> lengths;
  AttentionShape shape;
};

std::vector<std::int32_t> offsets_of(const std::vector<std::int32_t>& lengths) {
  std::vector<std::int32_t> offsets{0};
  for (const std::int32_t length : lengths) offsets.push_back(offsets.back() + length);
  return offsets;
}

class CudnnAttentionOnDevice : public KernelTest {
 protected:
  struct Answer {
    Values out;
    Values dqkv;
  };
  /// Returns equal inputs for equal cases.
  [[nodiscard]] static OwnedTensor inputs(Shape shape, unsigned seed) {
    std::mt19937 generator(seed);
    return {DType::bf16, shape, exact_normals(generator, shape.elements())};
  }
  [[nodiscard]] Answer on_processor(const Case& problem) const {
    const auto offsets = offsets_of(problem.lengths);
    const std::int64_t rows = offsets.back();
    const AttentionShape& shape = problem.shape;
    const OwnedTensor qkv = inputs(Shape{rows, shape.qkv_columns()}, 1);
    const OwnedTensor dout = inputs(Shape{rows, shape.out_columns()}, 2);
    const OwnedTensor out(DType::bf16, Shape{rows, shape.out_columns()});
    const OwnedTensor lse(DType::f32, Shape{rows, shape.heads});
    const OwnedTensor dqkv(DType::bf16, Shape{rows, shape.qkv_columns()});
    const SequenceLayout layout{.offsets = offsets, .positions = {}};
    reference_.run(Attention{.qkv = qkv, .shape = shape, .layout = layout, .out = out, .lse = lse});
    reference_.run(AttentionBackward{
        .dout = dout, .qkv = qkv, .out = out, .lse = lse, .shape = shape, .layout = layout, .dqkv = dqkv});
    return {out.values(), dqkv.values()};
  }
  static constexpr std::int64_t behind = 256;  // rows after a tensor; kernels process up to 128 at a time

  /// Returns a tensor followed by NaN, as other tensors' memory may be: no kernel may use it in a result, or write it.
  Tensor before_nans(DType dtype, Shape shape, const Values& values) {
    const OwnedTensor whole(dtype, Shape{shape[0] + behind, shape[1]});
    whole.fill(std::numeric_limits<double>::quiet_NaN());
    whole.fill(values);
    return upload(whole).row_slice(0, shape[0]);
  }
  void expect_nans_behind(const Tensor& used) const {
    for (const double value : download({used.raw() + used.bytes(), used.dtype(), Shape{behind, used.columns()}})) {
      ASSERT_TRUE(std::isnan(value)) << "memory behind a result was written";
    }
  }
  Answer on_device(CudnnAttention& attention, const Case& problem) {
    return on_device(attention, problem, inputs(Shape{rows_of(problem), problem.shape.qkv_columns()}, 1));
  }
  static std::int64_t rows_of(const Case& problem) { return offsets_of(problem.lengths).back(); }
  Answer on_device(CudnnAttention& attention, const Case& problem, const OwnedTensor& qkv) {
    const auto offsets = offsets_of(problem.lengths);
    const std::int64_t rows = offsets.back();
    const AttentionShape& shape = problem.shape;
    const auto count = static_cast<std::int64_t>(offsets.size());
    const Tensor device_offsets = upload(OwnedTensor(DType::i32, Shape{count}, Values(offsets.begin(), offsets.end())));
    const CudnnSequences sequences{summarize(offsets), device_offsets.data<std::int32_t>()};
    const Shape of_out{rows, shape.out_columns()};
    const CudnnForward tensors{before_nans(DType::bf16, Shape{rows, shape.qkv_columns()}, qkv.values()),
                               before_nans(DType::bf16, of_out, {}),
                               before_nans(DType::f32, Shape{rows, shape.heads}, {})};
    const CudnnBackward gradients{before_nans(DType::bf16, of_out, inputs(of_out, 2).values()),
                                  before_nans(DType::bf16, Shape{rows, shape.qkv_columns()}, {})};
    attention.forward(tensors, shape, sequences);
    attention.backward(tensors, gradients, shape, sequences);
    check(cudaStreamSynchronize(stream_), "attention");
    for (const Tensor& result : {tensors.out, tensors.lse, gradients.dqkv}) expect_nans_behind(result);
    return {download(tensors.out), download(gradients.dqkv)};
  }
};

const std::vector<Case> cases = {{{128, 128}, {4, 4, 64, true}},           {{128, 128}, {4, 2, 64, false}},
                                 {{33, 33, 33}, {8, 2, 128, true}},        {{1, 7, 33, 64, 129}, {4, 4, 64, true}},
                                 {{129, 300, 5}, {6, 2, 128, true}},       {{64, 100}, {3, 1, 80, false}},
                                 {{192, 192}, {4, 4, 64, false}},          {{100, 100}, {4, 2, 64, false}},
                                 {{9, 0, 17}, {4, 4, 64, true}},           {{300, 300}, {4, 2, 64, true, 0.25, 100}},
                                 {{129, 300, 5}, {6, 2, 128, true, 0, 33}}};

TEST_F(CudnnAttentionOnDevice, agrees_with_the_processor_where_it_does_not_refuse) {
  for (const bool deterministic : {true, false}) {
    CudnnAttention attention(at_, {.deterministic = deterministic});
    int done = 0;
    for (const Case& problem : cases) {
      SCOPED_TRACE(::testing::PrintToString(problem.lengths) + " D " + std::to_string(problem.shape.head_size));
      const SequenceSummary summary = summarize(offsets_of(problem.lengths));
      const std::string refusal = attention.refusal(problem.shape, DType::bf16, summary);
      if (!refusal.empty()) {
        std::printf("refused: %s\n", refusal.c_str());
        continue;
      }
      ++done;
      const Answer got = on_device(attention, problem);
      const Answer wanted = on_processor(problem);
      EXPECT_LT(worst_error(got.out, wanted.out), 1.5e-2);
      EXPECT_LT(worst_error(got.dqkv, wanted.dqkv), 1.5e-2);
    }
    EXPECT_GE(done, 2) << "cuDNN is good for nothing here";
  }
}

/// Sets q and k so that every scaled score is `score`.
void set_scores(const Case& problem, double score, const OwnedTensor& qkv) {
  const AttentionShape& shape = problem.shape;
  const std::int64_t rows = offsets_of(problem.lengths).back();
  const std::int64_t queries = shape.out_columns();
  const std::int64_t keys = shape.kv_heads * shape.head_size;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t at = 0; at < queries + keys; ++at) {
      const bool counts = at % shape.head_size == 0;  // only the first number in a head
      const double key = counts ? score * std::sqrt(static_cast<double>(shape.head_size)) : 0;
      qkv.set(row * shape.qkv_columns() + at, at < queries ? 1 : key);
    }
  }
}

TEST_F(CudnnAttentionOnDevice, gradients_are_finite_where_every_score_is_far_below_zero) {
  constexpr double score = -120;  // exp(120) exceeds f32
  for (const bool deterministic : {true, false}) {
    CudnnAttention attention(at_, {.deterministic = deterministic});
    for (const std::int32_t length : {64, 100, 192, 256}) {
      for (const bool causal : {true, false}) {
        const Case problem{{length, length}, {2, 2, 64, causal}};
        if (!attention.refusal(problem.shape, DType::bf16, summarize(offsets_of(problem.lengths))).empty()) continue;
        const OwnedTensor qkv = inputs(Shape{rows_of(problem), problem.shape.qkv_columns()}, 1);
        set_scores(problem, score, qkv);
        const Answer got = on_device(attention, problem, qkv);
        for (const double value : got.out) ASSERT_TRUE(std::isfinite(value)) << length << (causal ? " causal" : "");
        for (const double value : got.dqkv) ASSERT_TRUE(std::isfinite(value)) << length << (causal ? " causal" : "");
      }
    }
  }
}

TEST_F(CudnnAttentionOnDevice, two_runs_are_bitwise_equal_CA_3) {  // CA-3
  CudnnAttention attention(at_);
  for (const Case& problem : cases) {
    if (!attention.refusal(problem.shape, DType::bf16, summarize(offsets_of(problem.lengths))).empty()) continue;
    const Answer first = on_device(attention, problem);
    const Answer second = on_device(attention, problem);
    EXPECT_EQ(first.out, second.out);
    EXPECT_EQ(first.dqkv, second.dqkv);
  }
}

TEST_F(CudnnAttentionOnDevice, lengths_of_about_the_same_size_share_a_plan) {  // CA-1
  CudnnAttention attention(at_);
  const AttentionShape shape{4, 4, 64, true};
  for (const std::int32_t length : {70, 80, 90, 100}) {
    static_cast<void>(attention.refusal(shape, DType::bf16, summarize(offsets_of({length, 33}))));
  }
  EXPECT_EQ(attention.plans(), 1U);
}

TEST_F(CudnnAttentionOnDevice, f32_is_refused_by_name) {
  CudnnAttention attention(at_);
  EXPECT_EQ(attention.refusal({4, 4, 64, true}, DType::f32, summarize(offsets_of({8, 8}))),
            "cuDNN's attention is used for bf16 only, not for fp32");
}

}  // namespace
}  // namespace maestro::cuda
