// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "runtime/ops/element_math.hpp"
#include "tests/ops/backends.hpp"
#include "tests/ops/owned_tensor.hpp"

namespace maestro::testing {
namespace {

class SoftcapOn : public ::testing::TestWithParam<Backend> {};

TEST_P(SoftcapOn, every_backend_agrees_with_double_precision) {
  const auto ops = GetParam().make();
  std::mt19937 generator(8);
  for (const std::int64_t columns : {1, 7, 64, 333}) {
    for (const double size : {1e-3, 1.0, 100.0}) {  // far below the cap, at its order, and above it
      for (const DType dtype : {DType::f32, DType::bf16}) {
        const OwnedTensor x(dtype, {3, columns}, exact_normals(generator, 3 * columns, size));
        Values wanted = x.values();
        for (double& value : wanted) value = 30 * std::tanh(value / 30);
        ops->run(Softcap{.x = x, .cap = 30});
        EXPECT_LT(worst_error(x.values(), wanted), dtype == DType::f32 ? 1e-6 : 1.0 / 256);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(all, SoftcapOn, ::testing::ValuesIn(backends()),
                         [](const auto& backend) { return backend.param.name; });

TEST(Softcap, its_slope_is_that_of_central_differences) {
  for (const double x : {-80.0, -31.0, -2.0, 0.0, 0.5, 29.0, 400.0}) {
    const double numeric = (30 * std::tanh((x + 1e-4) / 30) - 30 * std::tanh((x - 1e-4) / 30)) / 2e-4;
    const float y = element::Softcap::value(static_cast<float>(x), 30);
    EXPECT_NEAR(element::Softcap::slope_of(y, 30), numeric, 1e-6) << x;
  }
}

}  // namespace
}  // namespace maestro::testing
