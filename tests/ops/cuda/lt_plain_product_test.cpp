// SPDX-License-Identifier: Apache-2.0
// This project's product kernel against an interpreter of column-major products: all kinds, dtypes and odd shapes,
// memory aligned only to its elements. Tolerances as in lt_plan_test.cpp, 1e-5 for sums with up to 70 terms.
#include "runtime/ops/cuda/products/lt_plain_product.hpp"

#include "tests/ops/cuda/kernel_test.hpp"
#include "tests/support/fake_cuda/column_major_product.hpp"

namespace maestro::cuda {
namespace {

using testing::worst_error;

class PlainProductOnDevice : public KernelTest {
 protected:
  void compare(const ProductRequest& request) {
    SCOPED_TRACE(describe(request));
    const ProductPlan plan = product_plan(request);
    const auto matrix = [&](const ColumnMajor& of) { return random(of.dtype, Shape{of.columns, of.leading}); };
    const OwnedTensor a = matrix(plan.a);
    const OwnedTensor b = matrix(plan.b);
    const OwnedTensor d = matrix(plan.d);
    const OwnedTensor bias = random(request.result, Shape{std::max<std::int64_t>(plan.vector_length, 1)});
    const Tensor device_a = upload(a, 1);
    const Tensor device_b = upload(b, 3);
    const Tensor device_d = upload(d, 1);
    const Tensor device_bias = upload(bias, 1);
    testing::run_column_major_product(
        plan, {a.tensor().raw(), b.tensor().raw(), d.tensor().raw(), d.tensor().raw(), bias.tensor().raw(), nullptr});
    run([&] {
      plain_product(at_, plan,
                    {.a = device_a.raw(), .b = device_b.raw(), .d = device_d.raw(), .vector = device_bias.raw()});
    });
    EXPECT_LT(worst_error(download(device_d), d.values()), request.result == DType::f32 ? 1e-5 : 0x1p-7);
  }
};

TEST_F(PlainProductOnDevice, agrees_with_the_interpreter) {
  const std::vector<std::pair<DType, DType>> dtypes = {
      {DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32}};
  for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{1, 1, 1}, {5, 7, 3}, {33, 32, 64}, {40, 65, 70}}) {
    for (const auto& [operands, result] : dtypes) {
      for (const bool accumulate : {false, true}) {
        ProductRequest request{.m = m, .n = n, .k = k, .operands = operands, .result = result};
        request.accumulate = accumulate;
        for (const ProductKind kind :
             {ProductKind::forward, ProductKind::backward_input, ProductKind::backward_weight}) {
          request.kind = kind;
          compare(request);
        }
        request.kind = ProductKind::forward;
        request.epilogue = ProductEpilogue::bias;
        compare(request);
        request.pitch = n + 3;
        compare(request);
      }
    }
  }
}

}  // namespace
}  // namespace maestro::cuda
