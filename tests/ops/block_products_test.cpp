// SPDX-License-Identifier: Apache-2.0
// Products with weights in MXFP4 on every backend. Tolerances as in operators_test.cpp.
#include <gtest/gtest.h>

#include <cstring>

#include "runtime/ops/cpu/products/matrix_kernels.hpp"
#include "tests/ops/backends.hpp"
#include "tests/ops/owned_tensor.hpp"

namespace maestro::testing {
namespace {

/// Matrices of `groups` groups (n, k) with random blocks, and rows for each group; the second is empty.
struct BlockProblem {
  BlockProblem(std::int64_t row_count, std::int64_t outputs, std::int64_t inputs, DType dtype)
      : rows(row_count), n(outputs), k(inputs), act(dtype) {
    const auto count = static_cast<std::size_t>(groups * n * k / mxfp4_block);
    blocks.resize(count * mxfp4_bytes);
    scales.resize(count);
    for (std::uint8_t& byte : blocks) byte = static_cast<std::uint8_t>(generator());
    for (std::uint8_t& scale : scales) scale = static_cast<std::uint8_t>(124 + generator() % 4);
    x = exact_normals(generator, rows * k);
    dy = exact_normals(generator, rows * n);
    const std::int64_t third = (rows + 2) / 3;
    offsets.fill({0, static_cast<double>(third), static_cast<double>(third), static_cast<double>(rows)});
  }
  [[nodiscard]] Mxfp4Rows all() const { return {blocks.data(), scales.data(), groups * n, k}; }
  [[nodiscard]] std::unique_ptr<PackedWeight> packed(const OperatorTable& ops) const {
    std::unique_ptr<PackedWeight> pack;
    for (std::int64_t group = 0; group < groups; ++group) {
      pack = ops.pack_blocks(all().row_slice(group * n, n), std::move(pack), {group, groups});
    }
    return pack;
  }
  /// Calls body(row, element of the matrix (i, j), value) for each row and element of its group's matrix.
  template <class Body>
  void for_products(Body body) const {
    std::vector<float> weight(static_cast<std::size_t>(k));
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t group = row < static_cast<std::int64_t>(offsets.get(1)) ? 0 : 2;
      for (std::int64_t i = 0; i < n; ++i) {
        all().widen(group * n + i, 0, weight);
        for (std::int64_t j = 0; j < k; ++j) body(row, i, j, weight[static_cast<std::size_t>(j)]);
      }
    }
  }

  static constexpr std::int64_t groups = 3;
  std::int64_t rows, n, k;
  DType act;
  std::mt19937 generator{9};
  std::vector<std::uint8_t> blocks, scales;
  Values x, dy;
  OwnedTensor offsets{DType::i32, Shape{groups + 1}};
};

class BlockProducts : public ::testing::TestWithParam<Backend> {};

TEST_P(BlockProducts, agree_with_double_precision) {
  const auto ops = GetParam().make();
  for (const DType act : {DType::f32, DType::bf16}) {
    for (const std::int64_t rows : {1, 7, 150}) {
      for (const auto& [n, k] : {std::pair<std::int64_t, std::int64_t>{5, 32}, {450, 96}}) {  // the latter in parts
        const BlockProblem problem(rows, n, k, act);
        const auto weight = problem.packed(*ops);
        EXPECT_EQ(weight->bytes() * 32, static_cast<std::size_t>(BlockProblem::groups * n * k * 17));  // 4.25 bits
        const OwnedTensor x(act, {rows, k}, problem.x), dy(act, {rows, n}, problem.dy);
        const OwnedTensor y(act, {rows, n}), dx(act, {rows, k});
        ops->run(GroupedLinear{.x = x, .w = weight.get(), .offsets = problem.offsets, .y = y});
        ops->run(GroupedLinearBackwardInput{.dy = dy, .w = weight.get(), .offsets = problem.offsets, .dx = dx});
        Values wanted_y(problem.dy.size()), wanted_dx(problem.x.size());
        problem.for_products([&](std::int64_t row, std::int64_t i, std::int64_t j, double value) {
          const auto in = static_cast<std::size_t>(row * k + j), out = static_cast<std::size_t>(row * n + i);
          wanted_y[out] += value * problem.x[in];
          wanted_dx[in] += value * problem.dy[out];
        });
        const double tolerance = act == DType::f32 ? 2e-5 : 1.0 / 256;
        EXPECT_LT(worst_error(y.values(), wanted_y), tolerance);
        EXPECT_LT(worst_error(dx.values(), wanted_dx), tolerance);
      }
    }
  }
}

TEST_P(BlockProducts, rows_alone_have_the_bits_of_a_row_by_itself) {
  const auto ops = GetParam().make();
  const BlockProblem problem(50, 450, 96, DType::f32);
  const auto weight = problem.packed(*ops);
  const OwnedTensor x(DType::f32, {50, 96}, problem.x), y(DType::f32, {50, 450}), one(DType::f32, {1, 450});
  ops->run(GroupedLinear{.x = x, .w = weight.get(), .offsets = problem.offsets, .y = y, .rows_alone = true});
  const OwnedTensor offsets(DType::i32, Shape{4}, {0, 0, 0, 1});
  ops->run(GroupedLinear{
      .x = x.tensor().row_slice(49, 1), .w = weight.get(), .offsets = offsets, .y = one, .rows_alone = true});
  const Values all = y.values();
  EXPECT_EQ(one.values(), Values(all.end() - 450, all.end()));
}

INSTANTIATE_TEST_SUITE_P(all, BlockProducts, ::testing::ValuesIn(backends()),
                         [](const auto& backend) { return backend.param.name; });

TEST(WidenBlocks, has_the_values_of_the_format_on_every_instruction_set) {  // BF-1
  std::vector<std::uint8_t> blocks, scales;
  for (const int scale : {2, 3, 100, 127, 200, 252}) {
    for (int byte = 0; byte < 256; ++byte) blocks.push_back(static_cast<std::uint8_t>(byte));
    scales.insert(scales.end(), 16, static_cast<std::uint8_t>(scale));
  }
  const auto count = static_cast<std::int64_t>(scales.size());
  std::vector<float> wanted(scales.size() * 32), found(wanted.size());
  Mxfp4Rows{blocks.data(), scales.data(), 1, count * mxfp4_block}.widen(0, 0, wanted);
  for (const cpu::Isa isa : {cpu::Isa::generic, cpu::Isa::avx2, cpu::Isa::avx512}) {
    if (isa > cpu::best_isa()) continue;
    cpu::matrix_kernels(isa).widen_blocks({blocks.data(), scales.data(), count, found.data()});
    EXPECT_EQ(std::memcmp(found.data(), wanted.data(), wanted.size() * sizeof(float)), 0) << static_cast<int>(isa);
  }
}

}  // namespace
}  // namespace maestro::testing
