// SPDX-License-Identifier: Apache-2.0
// AdamW, sums of squares and column sums against the CPU's.
#include "tests/ops/cuda/kernel_test.hpp"

namespace maestro::cuda {
namespace {

class FlatKernels : public KernelTest {};

/// Returns the tolerance for moments: f32 roundings, or a random rounding that an f32 rounding changes.
double moment_tolerance(DType moments) {
  return moments == DType::bf16 ? 1.0 / 128 : 1e-6;
}

TEST_F(FlatKernels, adamw_updates_zeroes_the_gradient_and_leaves_a_copy) {
  for (const std::int64_t count : {0, 1, 3, 4, 1023, 1024, 5001}) {
    for (const std::int64_t offset : {0, 1}) {
      for (const DType moments : both_types) {
        const OwnedTensor value = random(DType::f32, {count});
        const OwnedTensor gradient = random(DType::f32, {count});
        const OwnedTensor mean = random(moments, {count}, 0.1);
        const OwnedTensor variance = random(moments, {count}, 0.1);
        for (std::int64_t i = 0; i < count; ++i) variance.set(i, std::abs(variance.get(i)));
        const Tensor device[] = {upload(value, offset), upload(gradient, offset), upload(mean, offset),
                                 upload(variance, offset)};
        const Tensor copy = empty(DType::bf16, {count}, offset);
        AdamWStep step;
        step.lr = 0.01;
        step.weight_decay = 0.1;
        step.step = 3;
        step.gradient_scale = 0.5;
        const AdamWVectors vectors{
            device[0].data<float>(), device[1].data<float>(), device[2], device[3], copy.data<bfloat16>(), count};
        run([&] { adamw(at_, vectors, step); });
        reference_.run(AdamW{.value = value.tensor().span<float>(),
                             .gradient = gradient.tensor().span<float>(),
                             .mean = mean.tensor(),
                             .variance = variance.tensor(),
                             .step = step});
        expect_near(device[0], value.values(), "value", 1e-6);
        EXPECT_EQ(download(device[1]), Values(static_cast<std::size_t>(count), 0.0));
        expect_near(device[2], mean.values(), "mean", moment_tolerance(moments));
        expect_near(device[3], variance.values(), "variance", moment_tolerance(moments));
        expect_near(copy, download(device[0]), "copy", 0);
      }
    }
  }
}

TEST_F(FlatKernels, the_sum_of_squares_keeps_double_precision_and_accumulates) {
  for (const std::int64_t count : {0, 1, 5, 1023, 40003}) {
    for (const std::int64_t offset : {0, 1}) {
      const OwnedTensor values = random(DType::f32, {count});
      const Tensor device = upload(values, offset);
      double wanted = 0;
      for (const double value : values.values()) wanted += value * value;
      double* sum = nullptr;
      check(cudaHostAlloc(reinterpret_cast<void**>(&sum), sizeof *sum, cudaHostAllocMapped), "pinned memory");
      run([&] {
        sum_of_squares(at_, device.data<float>(), count, sum, false);
        sum_of_squares(at_, device.data<float>(), count, sum, true);
      });
      EXPECT_NEAR(*sum, 2 * wanted, 1e-12 * wanted) << count;
      check(cudaFreeHost(sum), "pinned memory");
    }
  }
}

TEST_F(FlatKernels, add_into_adds) {
  const OwnedTensor into = random(DType::f32, {1003});
  const OwnedTensor values = random(DType::f32, {1003});
  const Tensor device_into = upload(into);
  const Tensor device_values = upload(values, 1);
  run([&] { add_into(at_, device_into.data<float>(), device_values.data<float>(), 1003); });
  reference_.run(AddInto{.into = into.tensor().span<float>(), .values = values.tensor().span<float>()});
  EXPECT_EQ(download(device_into), into.values());
}

TEST_F(FlatKernels, sums_of_columns_are_added_to_what_is_there) {
  for (const std::int64_t rows : {0, 1, 5, 33, 700}) {
    for (const std::int64_t columns : odd_columns) {
      for (const DType act : both_types) {
        const OwnedTensor values = random(act, {rows, columns});
        const OwnedTensor into = random(DType::f32, {columns});
        Values wanted = into.values();
        for (std::int64_t i = 0; i < rows * columns; ++i) {
          wanted[static_cast<std::size_t>(i % columns)] += values.get(i);
        }
        const Tensor device = upload(values);
        const Tensor sums = upload(into);
        run([&] { add_column_sums(at_, device, sums); });
        expect_near(sums, wanted, "sums");
      }
    }
  }
}

TEST_F(FlatKernels, scratch_memory_is_used_again_and_stays_where_it_is) {
  Workspace workspace;
  std::byte* first = nullptr;
  {
    const Workspace::Scope scope(workspace);
    first = workspace.take(100);
    EXPECT_NE(workspace.take(1), first);
    EXPECT_NE(workspace.take(std::size_t{8} << 20), nullptr);
  }
  const std::size_t reserved = workspace.reserved_bytes();
  const Workspace::Scope scope(workspace);
  EXPECT_EQ(workspace.take(100), first);
  static_cast<void>(workspace.take(std::size_t{8} << 20));
  EXPECT_EQ(workspace.reserved_bytes(), reserved);
}

}  // namespace
}  // namespace maestro::cuda
