// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/ops/operator_case.hpp"

namespace maestro::testing {

namespace {

constexpr double epsilon = 1e-5;

/// Returns the largest dy weight rstd; dx is a difference of such terms, almost nothing for a single column.
double largest_norm_term(const Call& c, const OwnedTensor& rstd, double offset = 0) {
  const auto columns = c.size.columns;
  double largest = 0;
  for (std::int64_t i = 0; i < c.size.rows * columns; ++i) {
    largest = std::max<double>(
        largest, std::abs(c.dresult.get(i) * (offset + c.operands[1].get(i % columns)) * rstd.get(i / columns)));
  }
  return largest;
}

/// Appends the RMS norm of a row with as many columns as the weight.
void append_rms_norm(Values& y, const double* from, const Values& weight, double offset) {
  const double squares = std::inner_product(from, from + weight.size(), from, 0.0);
  const double root = std::sqrt(squares / static_cast<double>(weight.size()) + epsilon);
  for (std::size_t i = 0; i < weight.size(); ++i) y.push_back(from[i] / root * (offset + weight[i]));
}

/// x is always f32 in one variant (the residual stream), and has the tested precision in the other.
struct LayerNorm : OperatorCase {
  explicit LayerNorm(Storage x_storage) : x(x_storage) {}
  Storage x;
  std::string name() const override { return x == Storage::act ? "layer_norm" : "layer_norm_of_residual"; }
  std::vector<Operand> operands(Size size) const override {
    return {{"x", {size.rows, size.columns}, x},
            {"weight", {size.columns}, Storage::f32, true},
            {"bias", {size.columns}, Storage::f32, true}};
  }
  Operand result(Size size) const override { return {"y", {size.rows, size.columns}, Storage::act}; }
  Values reference(Size size, const std::vector<Values>& in) const override {
    const auto columns = count(1, size.columns);
    Values y;
    for (std::size_t row = 0; row < count(size.rows, 1); ++row) {
      const double* from = &in[0][row * columns];
      const double mean = std::accumulate(from, from + columns, 0.0) / static_cast<double>(columns);
      double variance = 0;
      for (std::size_t i = 0; i < columns; ++i) variance += (from[i] - mean) * (from[i] - mean);
      const double root = std::sqrt(variance / static_cast<double>(columns) + epsilon);
      for (std::size_t i = 0; i < columns; ++i) y.push_back((from[i] - mean) / root * in[1][i] + in[2][i]);
    }
    return y;
  }
  void forward(Call& c) const override {
    c.saved.clear();
    for (int i = 0; i < 2; ++i) c.saved.emplace_back(DType::f32, Shape{c.size.rows});
    c.ops.run(Norm{.x = c.operands[0],
                   .weight = c.operands[1],
                   .bias = c.operands[2],
                   .epsilon = epsilon,
                   .y = c.result,
                   .mean = c.saved[0],
                   .rstd = c.saved[1]});
  }
  void backward(Call& c) const override {
    c.ops.run(NormBackward{.dy = c.dresult,
                           .x = c.operands[0],
                           .weight = c.operands[1],
                           .mean = c.saved[0],
                           .rstd = c.saved[1],
                           .dx = c.gradients[0],
                           .accumulate = c.accumulate,
                           .dweight = c.gradients[1],
                           .dbias = c.gradients[2]});
  }
  double largest_term(const Call& c) const override { return largest_norm_term(c, c.saved[1]); }
  bool accumulates() const override { return true; }
};

struct RmsNorm : OperatorCase {
  explicit RmsNorm(Storage x_storage, double weight_offset = 0) : x(x_storage), offset(weight_offset) {}
  Storage x;
  double offset;
  std::string name() const override {
    return std::string(offset == 0 ? "rms_norm" : "rms_norm_with_offset") + (x == Storage::act ? "" : "_of_residual");
  }
  std::vector<Operand> operands(Size size) const override {
    return {{"x", {size.rows, size.columns}, x}, {"weight", {size.columns}, Storage::f32, true}};
  }
  Operand result(Size size) const override { return {"y", {size.rows, size.columns}, Storage::act}; }
  Values reference(Size size, const std::vector<Values>& in) const override {
    const auto columns = count(1, size.columns);
    Values y;
    for (std::size_t row = 0; row < count(size.rows, 1); ++row) {
      append_rms_norm(y, &in[0][row * columns], in[1], offset);
    }
    return y;
  }
  void forward(Call& c) const override {
    c.saved.clear();
    c.saved.emplace_back(DType::f32, Shape{c.size.rows});
    c.ops.run(Norm{.x = c.operands[0],
                   .weight = c.operands[1],
                   .epsilon = epsilon,
                   .offset = offset,
                   .y = c.result,
                   .rstd = c.saved[0]});
  }
  void backward(Call& c) const override {
    c.ops.run(NormBackward{.dy = c.dresult,
                           .x = c.operands[0],
                           .weight = c.operands[1],
                           .rstd = c.saved[0],
                           .dx = c.gradients[0],
                           .accumulate = c.accumulate,
                           .dweight = c.gradients[1],
                           .offset = offset});
  }
  double largest_term(const Call& c) const override { return largest_norm_term(c, c.saved[0], offset); }
  bool accumulates() const override { return true; }
};

/// Two query heads, a key and a value head; `whole`: the norm covers both query heads together.
struct HeadNormCase final : OperatorCase {
  explicit HeadNormCase(bool over_all_heads) : whole(over_all_heads), offset(over_all_heads ? 0 : 1) {}
  bool whole;
  double offset;
  static AttentionShape heads(Size size) { return {.heads = 2, .kv_heads = 1, .head_size = size.columns}; }
  std::int64_t query_groups() const { return whole ? 1 : 2; }
  std::string name() const override { return whole ? "whole_head_norm" : "head_norm"; }
  std::vector<Operand> operands(Size size) const override {
    return {{"qkv", {size.rows, 4 * size.columns}, Storage::act},
            {"query_weight", {2 * size.columns / query_groups()}, Storage::f32, true},
            {"key_weight", {size.columns}, Storage::f32, true}};
  }
  Operand result(Size size) const override { return {"y", {size.rows, 4 * size.columns}, Storage::act}; }
  template <class Op>
  Op with_operands(const Call& c) const {
    Op op;
    op.x = c.operands[0];
    op.shape = heads(c.size);
    op.query_weight = c.operands[1];
    op.key_weight = c.operands[2];
    op.epsilon = epsilon;
    op.offset = offset;
    op.whole = whole;
    op.sums = c.saved[0];
    return op;
  }
  Values reference(Size size, const std::vector<Values>& in) const override {
    Values y;
    for (std::int64_t row = 0; row < size.rows; ++row) {
      const double* from = &in[0][count(row, 4 * size.columns)];
      for (std::int64_t group = 0; group < query_groups(); ++group) {
        append_rms_norm(y, from + static_cast<std::size_t>(group) * in[1].size(), in[1], offset);
      }
      append_rms_norm(y, from + 2 * size.columns, in[2], offset);
      y.insert(y.end(), from + 3 * size.columns, from + 4 * size.columns);
    }
    return y;
  }
  void forward(Call& c) const override {
    c.saved.clear();
    c.saved.emplace_back(DType::f32, Shape{c.size.rows, query_groups() + 1});
    auto op = with_operands<HeadNorm>(c);
    op.y = c.result;
    c.ops.run(op);
  }
  void backward(Call& c) const override {
    const OwnedTensor dots(DType::f32, c.saved[0].tensor().shape());
    c.gradients[0].fill(c.dresult.values());  // dx may use dy's memory
    auto op = with_operands<HeadNormBackward>(c);
    op.dy = op.dx = c.gradients[0];
    op.dots = dots;
    op.dquery_weight = c.gradients[1];
    op.dkey_weight = c.gradients[2];
    c.ops.run(op);
  }
  double largest_term(const Call& c) const override {
    double weight = 0;
    double rstd = 0;
    double gradient = 0;
    for (const std::size_t i : {1, 2}) {
      for (const double value : c.operands[i].values()) weight = std::max(weight, std::abs(offset + value));
    }
    for (const double value : c.dresult.values()) gradient = std::max(gradient, std::abs(value));
    for (const double sum : c.saved[0].values()) {
      rstd = std::max(rstd, 1 / std::sqrt(sum / static_cast<double>(c.operands[2].tensor().elements()) + epsilon));
    }
    return weight * rstd * gradient;
  }
};

}  // namespace

std::vector<std::shared_ptr<const OperatorCase>> norm_cases() {
  return {std::make_shared<LayerNorm>(Storage::act),  std::make_shared<LayerNorm>(Storage::f32),
          std::make_shared<RmsNorm>(Storage::act),    std::make_shared<RmsNorm>(Storage::f32),
          std::make_shared<RmsNorm>(Storage::act, 1), std::make_shared<RmsNorm>(Storage::f32, 1),
          std::make_shared<HeadNormCase>(false),      std::make_shared<HeadNormCase>(true)};
}

}  // namespace maestro::testing
