// SPDX-License-Identifier: Apache-2.0
// Attention with sinks on every backend, against a softmax in double precision whose denominator has the sink, and
// central differences of it. Tolerances as in attention_test.cpp; bf16 rounds a result twice, before and after the
// sinks' factor.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <optional>

#include "runtime/ops/functions.hpp"
#include "tests/ops/backends.hpp"
#include "tests/ops/owned_tensor.hpp"

namespace maestro::testing {
namespace {

/// Attention's operands, (M, (H + 2G) D) and (H), and its result in double precision.
struct SunkProblem {
  AttentionShape shape;
  std::vector<std::int32_t> offsets;
  Values qkv;
  Values sinks;

  SunkProblem(const AttentionShape& its_shape, std::vector<std::int32_t> its_offsets)
      : shape(its_shape), offsets(std::move(its_offsets)) {
    std::mt19937 generator(5);
    qkv = exact_normals(generator, rows() * shape.qkv_columns());
    sinks = exact_normals(generator, shape.heads, 2);
  }
  [[nodiscard]] std::int64_t rows() const { return offsets.back(); }
  [[nodiscard]] const double* slot(std::int64_t row, std::int64_t head) const {
    return qkv.data() + row * shape.qkv_columns() + head * shape.head_size;
  }
  [[nodiscard]] Values result() const {
    Values out;
    std::size_t sample = 0;
    for (std::int64_t row = 0; row < rows(); ++row) {
      if (row == offsets[sample + 1]) ++sample;
      for (std::int64_t head = 0; head < shape.heads; ++head) add_head(offsets[sample], row, head, out);
    }
    return out;
  }
  void add_head(std::int64_t first, std::int64_t row, std::int64_t head, Values& out) const {
    const std::int64_t group = head * shape.kv_heads / shape.heads;
    const std::int64_t begin = shape.window > 0 ? std::max(first, row + 1 - shape.window) : first;
    double sum = std::exp(sinks[static_cast<std::size_t>(head)]);
    Values value(static_cast<std::size_t>(shape.head_size));
    for (std::int64_t key = begin; key <= row; ++key) {
      const double* q = slot(row, head);
      const double score =
          std::inner_product(q, q + shape.head_size, slot(key, shape.heads + group), 0.0) * shape.score_scale();
      const double* v = slot(key, shape.heads + shape.kv_heads + group);
      sum += std::exp(score);
      for (std::size_t i = 0; i < value.size(); ++i) value[i] += std::exp(score) * v[i];
    }
    for (const double each : value) out.push_back(each / sum);
  }
};

class SunkAttentionOn : public ::testing::TestWithParam<Backend> {
 protected:
  /// Runs attention and its backward pass.
  void run(const SunkProblem& problem, DType act, const Values& dout) {
    parameters_.emplace();
    Parameter& sinks = parameters_->add({"sinks", Shape{problem.shape.heads}, false, {}});
    parameters_->allocate(true);
    for (std::size_t i = 0; i < problem.sinks.size(); ++i) {
      sinks.value().span<float>()[i] = static_cast<float>(problem.sinks[i]);
    }
    Arena arena;
    Tape tape(*ops_, arena, act, true);
    const OwnedTensor qkv(act, {problem.rows(), problem.shape.qkv_columns()}, problem.qkv);
    const OwnedTensor seed(act, {problem.rows(), problem.shape.out_columns()}, dout);
    const Var x = tape.input(qkv, true);
    const Var y =
        attention(tape, x, {.shape = problem.shape, .rotary = nullptr, .sinks = &sinks}, {.offsets = problem.offsets});
    out_ = values_of(y.value());
    tape.seed(y, seed);
    tape.backward();
    dqkv_ = values_of(x.gradient());
    dsinks_ = values_of(sinks.gradient());
  }
  static Values values_of(const Tensor& tensor) {
    const OwnedTensor copy(tensor.dtype(), tensor.shape());
    std::memcpy(copy.tensor().raw(), tensor.raw(), tensor.bytes());
    return copy.values();
  }

  std::unique_ptr<OperatorTable> ops_ = GetParam().make();
  std::optional<Parameters> parameters_;
  Values out_, dqkv_, dsinks_;
};

TEST_P(SunkAttentionOn, agrees_with_double_precision_and_central_differences) {
  for (const std::int64_t window : {0, 3}) {
    for (const DType act : {DType::f32, DType::bf16}) {
      SunkProblem problem({.heads = 4, .kv_heads = 2, .head_size = 6, .window = window}, {0, 5, 6, 23});
      std::mt19937 generator(6);
      const Values dout = exact_normals(generator, problem.rows() * problem.shape.out_columns());
      run(problem, act, dout);
      const double tolerance = act == DType::f32 ? 2e-5 : 1.5e-2;
      EXPECT_LT(worst_error(out_, problem.result()), tolerance);
      const auto slope = [&](double& at) {
        constexpr double h = 1e-5;
        const double before = at;
        const auto sum = [&](double value) {
          at = value;
          const Values result = problem.result();
          return std::inner_product(result.begin(), result.end(), dout.begin(), 0.0);
        };
        const double difference = sum(before + h) - sum(before - h);
        at = before;
        return difference / (2 * h);
      };
      for (std::size_t head = 0; head < problem.sinks.size(); ++head) {
        EXPECT_NEAR(dsinks_[head], slope(problem.sinks[head]), 2 * tolerance) << head;
      }
      for (std::size_t i = 0; i < problem.qkv.size(); i += 37) {
        EXPECT_NEAR(dqkv_[i], slope(problem.qkv[i]), 2 * tolerance) << i;
      }
    }
  }
}

TEST_P(SunkAttentionOn, a_cache_gives_the_same_rows) {  // LC-1
  for (const std::int64_t window : {0, 3}) {
    const AttentionShape shape{.heads = 4, .kv_heads = 2, .head_size = 6, .window = window};
    const SunkProblem problem(shape, {0, 17});
    const OwnedTensor sinks(DType::f32, Shape{4}, problem.sinks), all(DType::f32, {17, 48}, problem.qkv);
    const OwnedTensor keys(DType::f32, {20, 12}), values(DType::f32, {20, 12}), out(DType::f32, {17, 24});
    const auto add = [&](std::int64_t first, std::int64_t rows, std::span<const CachedSequence> sequences) {
      ops_->run(CachedAttention{.qkv = all.tensor().row_slice(first, rows),
                                .shape = shape,
                                .keys = keys,
                                .values = values,
                                .first = sequences.empty() ? first : 0,
                                .out = out.tensor().row_slice(first, rows),
                                .sequences = sequences,
                                .sinks = sinks});
    };
    add(0, 11, {});
    add(11, 5, {});
    const CachedSequence last[] = {{0, 16}};
    add(16, 1, last);
    EXPECT_LT(worst_error(out.values(), problem.result()), 2e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(all, SunkAttentionOn, ::testing::ValuesIn(backends()),
                         [](const auto& backend) { return backend.param.name; });

}  // namespace
}  // namespace maestro::testing
