// SPDX-License-Identifier: Apache-2.0
// Normalisation kernels against the CPU's: warp, block and wide rows, every combination of storage types.
#include "tests/ops/cuda/kernel_test.hpp"

namespace maestro::cuda {
namespace {

constexpr double epsilon = 1e-5;
constexpr double offset = 0.75;  // added to RMS norm weights
/// Rows for a single warp, for several warps, and rows that do not fit; see norm_tiles().
constexpr std::int64_t columns_of_all_kinds[] = {1, 7, 64, 65, 768, 1023, 1028, 2052};

class NormKernels : public KernelTest {
 protected:
  struct Case {
    std::int64_t rows;
    std::int64_t columns;
    DType x;
    DType y;
    bool centred;
  };
  template <class Body>
  void for_cases(Body body) {
    for (const std::int64_t columns : columns_of_all_kinds) {
      for (const std::int64_t rows : odd_rows) {
        if (rows * columns > 33 * 768) continue;  // tests nothing new, and slow
        for (const DType y : both_types) {
          for (const bool centred : {false, true}) {
            body(Case{rows, columns, DType::f32, y, centred});
            if (y == DType::bf16) body(Case{rows, columns, y, y, centred});
          }
        }
      }
    }
  }
  /// Returns x with a mean that is large relative to its deviation.
  OwnedTensor shifted(DType dtype, Shape shape) {
    OwnedTensor x = random(dtype, shape);
    for (std::int64_t i = 0; i < x.tensor().elements(); ++i) x.set(i, 4 + x.get(i));
    return x;
  }
};

TEST_F(NormKernels, values_means_and_deviations) {
  for_cases([&](const Case& c) {
    SCOPED_TRACE(std::to_string(c.rows) + " x " + std::to_string(c.columns) + (c.centred ? " layer" : " rms"));
    const OwnedTensor x = shifted(c.x, {c.rows, c.columns});
    const OwnedTensor weight = random(DType::f32, {c.columns});
    const OwnedTensor bias = random(DType::f32, {c.columns});
    const OwnedTensor y(c.y, {c.rows, c.columns});
    const OwnedTensor mean(DType::f32, {c.rows});
    const OwnedTensor rstd(DType::f32, {c.rows});
    if (c.centred) {
      reference_.run(
          Norm{.x = x, .weight = weight, .bias = bias, .epsilon = epsilon, .y = y, .mean = mean, .rstd = rstd});
    } else {
      reference_.run(Norm{.x = x, .weight = weight, .epsilon = epsilon, .offset = offset, .y = y, .rstd = rstd});
    }
    const Tensor device_x = upload(x);
    const Tensor device_y = empty(c.y, {c.rows, c.columns});
    const Tensor device_mean = c.centred ? empty(DType::f32, {c.rows}) : Tensor();
    const Tensor device_rstd = empty(DType::f32, {c.rows});
    const Norm call{.x = device_x,
                    .weight = upload(weight),
                    .bias = c.centred ? upload(bias) : Tensor(),
                    .epsilon = epsilon,
                    .offset = c.centred ? 0 : offset,
                    .y = device_y,
                    .mean = device_mean,
                    .rstd = device_rstd};
    run([&] { norm(at_, call); });
    // A row with few columns may have a deviation far below its mean, which amplifies the mean's rounding.
    const double tolerance = c.columns < 64 ? 1e-3 : 1e-5;
    expect_near(device_y, y.values(), "y", tolerance);
    expect_near(device_rstd, rstd.values(), "rstd", tolerance);
    if (c.centred) expect_near(device_mean, mean.values(), "mean");
  });
}

TEST_F(NormKernels, the_sum_of_a_residual_stream_is_normalised_on_the_way) {
  for_cases([&](const Case& c) {
    if (c.x != DType::f32) return;
    const OwnedTensor a = random(DType::f32, {c.rows, c.columns});
    const OwnedTensor b = random(c.y, {c.rows, c.columns});
    const OwnedTensor weight = random(DType::f32, {c.columns});
    const OwnedTensor bias = random(DType::f32, {c.columns});
    const OwnedTensor sum(DType::f32, {c.rows, c.columns});
    const OwnedTensor y(c.y, {c.rows, c.columns});
    const OwnedTensor mean(DType::f32, {c.rows});
    const OwnedTensor rstd(DType::f32, {c.rows});
    reference_.run(Add{.a = a, .b = b, .out = sum});
    if (c.centred) {
      reference_.run(
          Norm{.x = sum, .weight = weight, .bias = bias, .epsilon = epsilon, .y = y, .mean = mean, .rstd = rstd});
    } else {
      reference_.run(Norm{.x = sum, .weight = weight, .epsilon = epsilon, .y = y, .rstd = rstd});
    }
    const Tensor device_a = upload(a);
    const Tensor device_b = upload(b);
    const Tensor device_y = empty(c.y, {c.rows, c.columns});
    const Tensor device_mean = c.centred ? empty(DType::f32, {c.rows}) : Tensor();
    const Tensor device_rstd = empty(DType::f32, {c.rows});
    const Norm call{.x = device_a,
                    .added = device_b,
                    .sum = device_a,
                    .weight = upload(weight),
                    .bias = c.centred ? upload(bias) : Tensor(),
                    .epsilon = epsilon,
                    .y = device_y,
                    .mean = device_mean,
                    .rstd = device_rstd};
    run([&] { norm(at_, call); });
    EXPECT_EQ(download(device_a), sum.values());  // in place
    expect_near(device_y, y.values(), "y", c.columns < 64 ? 1e-3 : 1e-5);
  });
}

TEST_F(NormKernels, gradients_of_inputs_and_parameters) {
  for_cases([&](const Case& c) {
    for (const bool accumulate : {false, true}) {
      SCOPED_TRACE(std::to_string(c.rows) + " x " + std::to_string(c.columns) + (c.centred ? " layer" : " rms"));
      const OwnedTensor dy = random(c.y, {c.rows, c.columns});
      const OwnedTensor x = random(c.x, {c.rows, c.columns});
      const OwnedTensor weight = random(DType::f32, {c.columns});
      const OwnedTensor mean = random(DType::f32, {c.rows}, 0.1);
      const OwnedTensor rstd = random(DType::f32, {c.rows});
      const OwnedTensor dx = random(c.x, {c.rows, c.columns});
      const OwnedTensor rounded(c.y, {c.rows, c.columns});
      const OwnedTensor dweight = random(DType::f32, {c.columns});
      const OwnedTensor dbias = random(DType::f32, {c.columns});
      const Tensor device_dy = upload(dy);
      const Tensor device_x = upload(x);
      const Tensor device_weight = upload(weight);
      const Tensor device_mean = c.centred ? upload(mean) : Tensor();
      const Tensor device_rstd = upload(rstd);
      const NormBackward call{.dy = device_dy,
                              .x = device_x,
                              .weight = device_weight,
                              .mean = device_mean,
                              .rstd = device_rstd,
                              .dx = upload(dx),
                              .accumulate = accumulate,
                              .rounded = accumulate ? empty(c.y, {c.rows, c.columns}) : Tensor(),
                              .dweight = upload(dweight),
                              .dbias = c.centred ? upload(dbias) : Tensor(),
                              .offset = c.centred ? 0 : offset};
      reference_.run(NormBackward{.dy = dy,
                                  .x = x,
                                  .weight = weight,
                                  .mean = c.centred ? mean.tensor() : Tensor(),
                                  .rstd = rstd,
                                  .dx = dx,
                                  .accumulate = accumulate,
                                  .rounded = rounded,
                                  .dweight = dweight,
                                  .dbias = c.centred ? dbias.tensor() : Tensor(),
                                  .offset = call.offset});
      run([&] { norm_backward(at_, call); });
      expect_near(call.dx, dx.values(), "dx");
      if (accumulate) expect_near(call.rounded, rounded.values(), "rounded dx");
      expect_near(call.dweight, dweight.values(), "dweight");
      if (c.centred) expect_near(call.dbias, dbias.values(), "dbias");
    }
  });
}

TEST_F(NormKernels, rows_wider_than_registers_hold) {
  constexpr std::int64_t columns = 8200;  // norm_most_warps * 32 * norm_packs * norm_width, and some more
  const OwnedTensor x = random(DType::f32, {2, columns});
  const OwnedTensor dy = random(DType::bf16, {2, columns});
  const OwnedTensor weight = random(DType::f32, {columns});
  const OwnedTensor bias = random(DType::f32, {columns});
  const OwnedTensor y(DType::bf16, {2, columns});
  const OwnedTensor mean(DType::f32, {2});
  const OwnedTensor rstd(DType::f32, {2});
  const OwnedTensor dx(DType::f32, {2, columns});
  const OwnedTensor rounded(DType::bf16, {2, columns});
  const OwnedTensor dweight = random(DType::f32, {columns});
  const OwnedTensor dbias = random(DType::f32, {columns});
  const Tensor device_x = upload(x);
  const Tensor device_dy = upload(dy);
  const Tensor device_y = empty(DType::bf16, {2, columns});
  const Tensor device_mean = empty(DType::f32, {2});
  const Tensor device_rstd = empty(DType::f32, {2});
  const Norm call{.x = device_x,
                  .weight = upload(weight),
                  .bias = upload(bias),
                  .epsilon = epsilon,
                  .y = device_y,
                  .mean = device_mean,
                  .rstd = device_rstd};
  const NormBackward gradients{.dy = device_dy,
                               .x = device_x,
                               .weight = call.weight,
                               .mean = device_mean,
                               .rstd = device_rstd,
                               .dx = empty(DType::f32, {2, columns}),
                               .rounded = empty(DType::bf16, {2, columns}),
                               .dweight = upload(dweight),
                               .dbias = upload(dbias)};
  reference_.run(Norm{.x = x, .weight = weight, .bias = bias, .epsilon = epsilon, .y = y, .mean = mean, .rstd = rstd});
  reference_.run(NormBackward{.dy = dy,
                              .x = x,
                              .weight = weight,
                              .mean = mean,
                              .rstd = rstd,
                              .dx = dx,
                              .rounded = rounded,
                              .dweight = dweight,
                              .dbias = dbias});
  run([&] {
    norm(at_, call);
    norm_backward(at_, gradients);
  });
  expect_near(device_y, y.values(), "y");
  expect_near(gradients.dx, dx.values(), "dx");
  expect_near(gradients.rounded, rounded.values(), "rounded dx");
  expect_near(gradients.dweight, dweight.values(), "dweight");
  expect_near(gradients.dbias, dbias.values(), "dbias");
}

TEST_F(NormKernels, frozen_parameters_get_no_gradient) {
  const OwnedTensor dy = random(DType::f32, {5, 64});
  const OwnedTensor x = random(DType::f32, {5, 64});
  const OwnedTensor weight = random(DType::f32, {64});
  const OwnedTensor rstd = random(DType::f32, {5});
  const OwnedTensor dx(DType::f32, {5, 64});
  reference_.run(NormBackward{.dy = dy, .x = x, .weight = weight, .rstd = rstd, .dx = dx});
  const Tensor gradient = upload(dy);  // dx in dy's memory
  const Tensor device_x = upload(x);
  const Tensor device_weight = upload(weight);
  const Tensor device_rstd = upload(rstd);
  run([&] {
    norm_backward(at_, {.dy = gradient, .x = device_x, .weight = device_weight, .rstd = device_rstd, .dx = gradient});
  });
  expect_near(gradient, dx.values(), "dx");
}

}  // namespace
}  // namespace maestro::cuda
