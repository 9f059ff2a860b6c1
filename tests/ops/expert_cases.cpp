// SPDX-License-Identifier: Apache-2.0
// Operators of mixtures of experts as test cases: products by groups and sums of a token's rows.
#include <numeric>

#include "tests/ops/operator_case.hpp"

namespace maestro::testing {

namespace {

constexpr std::int64_t groups = 4;

/// Returns offsets of groups whose sizes differ: the second is empty, and the first has a row more than the others.
OwnedTensor offsets_of(std::int64_t rows) {
  const std::int64_t third = (rows + 2) / 3, rest = rows - third;
  OwnedTensor offsets(DType::i32, Shape{groups + 1});
  const std::int64_t starts[] = {0, third, third, third + rest / 2, rows};
  for (std::int64_t i = 0; i <= groups; ++i) offsets.set(i, static_cast<double>(starts[i]));
  return offsets;
}

struct GroupedLinearCase final : OperatorCase {
  static std::int64_t outputs(Size size) { return 2 * size.columns + 1; }
  std::string name() const override { return "grouped_linear"; }
  std::vector<Operand> operands(Size size) const override {
    return {{"x", {size.rows, size.columns}, Storage::act},
            {"weight", {groups * outputs(size), size.columns}, Storage::f32, true}};
  }
  Operand result(Size size) const override { return {"y", {size.rows, outputs(size)}, Storage::act}; }
  Values reference(Size size, const std::vector<Values>& in) const override {
    const auto k = count(1, size.columns);
    const auto n = count(1, outputs(size));
    const Values starts = offsets_of(size.rows).values();
    Values y;
    for (std::size_t group = 0; group < count(groups, 1); ++group) {
      for (auto row = static_cast<std::size_t>(starts[group]); row < static_cast<std::size_t>(starts[group + 1]);
           ++row) {
        for (std::size_t j = 0; j < n; ++j) {
          y.push_back(std::inner_product(&in[0][row * k], &in[0][row * k] + k, &in[1][(group * n + j) * k], 0.0));
        }
      }
    }
    return y;
  }
  static std::unique_ptr<PackedWeight> packed(const Call& c, PackFor use) {
    const Tensor& weight = c.operands[1];
    const std::int64_t rows = weight.rows() / groups;
    std::unique_ptr<PackedWeight> pack;
    for (std::int64_t group = 0; group < groups; ++group) {
      pack = c.ops.pack(weight.row_slice(group * rows, rows), c.act, use, std::move(pack), {group, groups});
    }
    return pack;
  }
  void forward(Call& c) const override {
    const auto weight = packed(c, PackFor::forward);
    const OwnedTensor offsets = offsets_of(c.size.rows);
    c.ops.run(GroupedLinear{.x = c.operands[0], .w = weight.get(), .offsets = offsets, .y = c.result});
  }
  void backward(Call& c) const override {
    const auto weight = packed(c, PackFor::backward_input);
    const OwnedTensor offsets = offsets_of(c.size.rows);
    c.ops.run(
        GroupedLinearBackwardWeight{.dy = c.dresult, .x = c.operands[0], .offsets = offsets, .dw = c.gradients[1]});
    c.ops.run(GroupedLinearBackwardInput{.dy = c.dresult, .w = weight.get(), .offsets = offsets, .dx = c.gradients[0]});
  }
};

/// Sums of three rows each, from rows in another order.
struct CombineRowsCase final : OperatorCase {
  static constexpr std::int64_t slots = 3;
  static OwnedTensor places(Size size) {
    const std::int64_t rows = slots * size.rows;
    OwnedTensor all(DType::i32, {size.rows, slots});
    for (std::int64_t i = 0; i < rows; ++i) all.set(i, static_cast<double>(rows - 1 - i));
    return all;
  }
  std::string name() const override { return "combine_rows"; }
  std::vector<Operand> operands(Size size) const override {
    return {{"rows", {slots * size.rows, size.columns}, Storage::act}};
  }
  Operand result(Size size) const override { return {"y", {size.rows, size.columns}, Storage::act}; }
  Values reference(Size size, const std::vector<Values>& in) const override {
    const Values place = places(size).values();
    const auto columns = count(1, size.columns);
    Values y(count(size.rows, size.columns));
    for (std::size_t route = 0; route < place.size(); ++route) {
      for (std::size_t i = 0; i < columns; ++i) {
        y[route / slots * columns + i] += in[0][static_cast<std::size_t>(place[route]) * columns + i];
      }
    }
    return y;
  }
  void forward(Call& c) const override {
    const OwnedTensor place = places(c.size);
    c.ops.run(CombineRows{.rows = c.operands[0], .places = place, .y = c.result});
  }
  void backward(Call& c) const override {
    std::vector<std::int32_t> tokens;
    for (std::int64_t row = slots * c.size.rows - 1; row >= 0; --row) {
      tokens.push_back(static_cast<std::int32_t>(row / slots));
    }
    c.ops.run(IndexSelect{.from = c.dresult, .index = tokens, .to = c.gradients[0]});
  }
};

/// Rows plus their group's bias, times a weight of each row or not.
struct GroupedBiasCase final : OperatorCase {
  explicit GroupedBiasCase(bool with_weights) : weighted(with_weights) {}
  bool weighted;
  std::string name() const override { return weighted ? "weighted_bias" : "grouped_bias"; }
  std::vector<Operand> operands(Size size) const override {
    std::vector<Operand> all{{"x", {size.rows, size.columns}, Storage::act},
                             {"bias", {groups, size.columns}, Storage::f32, true}};
    if (weighted) all.push_back({"weights", {size.rows, 1}, Storage::f32, true});
    return all;
  }
  Operand result(Size size) const override { return {"y", {size.rows, size.columns}, Storage::act}; }
  Values reference(Size size, const std::vector<Values>& in) const override {
    const Values starts = offsets_of(size.rows).values();
    const auto columns = count(1, size.columns);
    Values y = in[0];
    for (std::size_t group = 0; group < count(groups, 1); ++group) {
      for (auto row = static_cast<std::size_t>(starts[group]); row < static_cast<std::size_t>(starts[group + 1]);
           ++row) {
        for (std::size_t i = 0; i < columns; ++i) {
          y[row * columns + i] += (weighted ? in[2][row] : 1) * in[1][group * columns + i];
        }
      }
    }
    return y;
  }
  [[nodiscard]] Tensor weights(const Call& c) const { return weighted ? c.operands[2].tensor() : Tensor(); }
  void forward(Call& c) const override {
    const OwnedTensor offsets = offsets_of(c.size.rows);
    c.ops.run(Cast{.from = c.operands[0], .to = c.result});
    c.ops.run(GroupedBias{.bias = c.operands[1], .offsets = offsets, .weights = weights(c), .y = c.result});
  }
  void backward(Call& c) const override {
    const OwnedTensor offsets = offsets_of(c.size.rows);
    c.ops.run(Cast{.from = c.dresult, .to = c.gradients[0]});
    c.ops.run(GroupedBiasBackward{.dy = c.dresult,
                                  .bias = c.operands[1],
                                  .offsets = offsets,
                                  .weights = weights(c),
                                  .dbias = c.gradients[1],
                                  .dweights = weighted ? c.gradients[2].tensor() : Tensor()});
  }
};

}  // namespace

std::vector<std::shared_ptr<const OperatorCase>> expert_cases() {
  return {std::make_shared<GroupedLinearCase>(), std::make_shared<CombineRowsCase>(),
          std::make_shared<GroupedBiasCase>(false), std::make_shared<GroupedBiasCase>(true)};
}

}  // namespace maestro::testing
