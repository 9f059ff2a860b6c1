// SPDX-License-Identifier: Apache-2.0
// The k largest values against the CPU's, with ties and NaN.
#include <limits>

#include "tests/ops/cuda/kernel_test.hpp"

namespace maestro::cuda {
namespace {

class TopKKernels : public KernelTest {
 protected:
  void expect_agreement(const OwnedTensor& logits, std::int64_t k, std::int64_t among = 0) {
    const std::int64_t rows = logits.tensor().rows();
    const OwnedTensor values(DType::f32, {rows, k});
    const OwnedTensor indices(DType::i32, {rows, k});
    reference_.run(TopK{.logits = logits, .values = values, .indices = indices, .columns = among});
    const Tensor device_logits = upload(logits);
    const Tensor device_values = empty(DType::f32, {rows, k});
    const Tensor device_indices = empty(DType::i32, {rows, k});
    run([&] { top_k(at_, device_logits, device_values, device_indices, among); });
    EXPECT_EQ(download(device_indices), indices.values());
    const Values got = download(device_values);
    const Values want = values.values();
    for (std::size_t i = 0; i < want.size(); ++i) {
      EXPECT_TRUE(got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i]))) << got[i] << ", " << want[i];
    }
  }
};

TEST_F(TopKKernels, of_rows_of_any_size) {
  for (const std::int64_t columns : {1, 7, 256, 1023, 5001}) {
    for (const std::int64_t k : {1, 5, 64, 256}) {
      if (k > columns) continue;
      expect_agreement(random(DType::f32, {2, columns}), k);
    }
  }
  expect_agreement(OwnedTensor(DType::f32, {0, 8}), 2);
}

TEST_F(TopKKernels, among_the_first_columns) {
  for (const std::int64_t among : {5, 64, 699}) expect_agreement(random(DType::f32, {3, 700}), 5, among);
}

TEST_F(TopKKernels, lower_indices_come_first_among_equals) {
  OwnedTensor logits(DType::f32, {3, 1000});
  for (std::int64_t i = 0; i < 3000; ++i) logits.set(i, static_cast<double>(i * 7 % 4));
  expect_agreement(logits, 10);
  expect_agreement(logits, 255);
}

TEST_F(TopKKernels, of_values_that_are_no_numbers_or_infinite) {
  const OwnedTensor logits = random(DType::f32, {1, 300});
  logits.set(3, std::numeric_limits<double>::quiet_NaN());
  logits.set(200, -std::numeric_limits<double>::quiet_NaN());
  logits.set(7, std::numeric_limits<double>::infinity());
  logits.set(8, -std::numeric_limits<double>::infinity());
  logits.set(20, -0.0);
  logits.set(21, 0.0);
  expect_agreement(logits, 5);
  expect_agreement(logits, 256);
}

}  // namespace
}  // namespace maestro::cuda
