// SPDX-License-Identifier: Apache-2.0
// Causal convolutions against the CPU's: samples, gates, rows before x, tails.
#include <algorithm>

#include "tests/ops/cuda/kernel_test.hpp"

namespace maestro::cuda {
namespace {

const ConvolutionShape forms[] = {{.width = 3, .gated = true},
                                  {.width = 4, .dilation = 2, .silu = true},
                                  {.width = 4, .dilation = 3, .gated = true, .silu = true}};

class CausalConvKernels : public KernelTest {
 protected:
  template <class Body>
  void for_cases(Body body) {
    for (const ConvolutionShape& shape : forms) {
      for (const std::int64_t channels : {1, 24, 65}) {
        for (const DType act : both_types) {
          SCOPED_TRACE("w " + std::to_string(shape.width) + ", " + std::to_string(channels) + " channels, " +
                       std::string(name_of(act)));
          body(shape, channels, act);
        }
      }
    }
  }
  static std::int64_t columns(const ConvolutionShape& shape, std::int64_t channels) {
    return shape.gated ? 3 * channels : channels;
  }
};

TEST_F(CausalConvKernels, values_and_gradients_of_packed_samples) {
  for_cases([&](const ConvolutionShape& shape, std::int64_t channels, DType act) {
    for (const std::vector<std::int32_t>& offsets :
         {std::vector<std::int32_t>{0}, {0, 1}, {0, 1, 1, 4, 33}, {0, 300}}) {
      const std::int64_t rows = offsets.back(), wide = columns(shape, channels);
      const OwnedTensor x = random(act, {rows, wide}), dy = random(act, {rows, channels});
      const OwnedTensor weight = random(DType::f32, {channels, shape.width}), bias = random(DType::f32, {channels});
      const OwnedTensor y(act, {rows, channels}), dx(act, {rows, wide});
      const OwnedTensor dweight = random(DType::f32, {channels, shape.width}), dbias = random(DType::f32, {channels});
      const Tensor places =
          upload(OwnedTensor(DType::i32, {std::ssize(offsets)}, Values(offsets.begin(), offsets.end())));
      const CausalConv device{.x = upload(x),
                              .weight = upload(weight),
                              .bias = upload(bias),
                              .shape = shape,
                              .layout = {.offsets = span_of(places)},
                              .y = empty(act, {rows, channels})};
      CausalConvBackward gradient{.dy = upload(dy),
                                  .x = device.x,
                                  .weight = device.weight,
                                  .bias = device.bias,
                                  .shape = shape,
                                  .layout = device.layout,
                                  .dx = empty(act, {rows, wide}),
                                  .dweight = upload(dweight),
                                  .dbias = upload(dbias)};
      run([&] {
        causal_conv(at_, device);
        causal_conv_backward(at_, gradient);
      });
      reference_.run(
          CausalConv{.x = x, .weight = weight, .bias = bias, .shape = shape, .layout = {.offsets = offsets}, .y = y});
      reference_.run(CausalConvBackward{.dy = dy,
                                        .x = x,
                                        .weight = weight,
                                        .bias = bias,
                                        .shape = shape,
                                        .layout = {.offsets = offsets},
                                        .dx = dx,
                                        .dweight = dweight,
                                        .dbias = dbias});
      expect_near(device.y, y.values(), "y");
      expect_near(gradient.dx, dx.values(), "dx");
      expect_near(gradient.dweight, dweight.values(), "dweight");
      expect_near(gradient.dbias, dbias.values(), "dbias");
    }
  });
}

TEST_F(CausalConvKernels, rows_before_x_and_their_gradients) {
  const std::vector<std::int32_t> offsets{0, 3, 40};
  const Tensor places = upload(OwnedTensor(DType::i32, {3}, {0, 3, 40}));
  for_cases([&](const ConvolutionShape& shape, std::int64_t channels, DType act) {
    for (const std::int64_t first : {5, 20}) {
      const std::int64_t rows = 15, before = std::min(shape.reach(), first - 3), wide = columns(shape, channels);
      const Shape earlier_shape{before, shape.read_columns(wide)};
      const OwnedTensor x = random(act, {rows, wide}), dy = random(act, {rows, channels});
      const OwnedTensor earlier = random(act, earlier_shape), weight = random(DType::f32, {channels, shape.width});
      const OwnedTensor y(act, {rows, channels}), dx(act, {rows, wide}), dearlier(act, earlier_shape);
      CausalConv host{.x = x,
                      .weight = weight,
                      .shape = shape,
                      .layout = {.offsets = offsets},
                      .first = first,
                      .before = earlier,
                      .y = y};
      CausalConvBackward host_gradient{.dy = dy,
                                       .x = x,
                                       .weight = weight,
                                       .shape = shape,
                                       .layout = {.offsets = offsets},
                                       .first = first,
                                       .before = earlier,
                                       .dx = dx,
                                       .dbefore = dearlier};
      CausalConv device = host;
      CausalConvBackward gradient = host_gradient;
      device.x = gradient.x = upload(x);
      device.weight = gradient.weight = upload(weight);
      device.before = gradient.before = upload(earlier);
      device.layout.offsets = gradient.layout.offsets = span_of(places);
      device.y = empty(act, {rows, channels});
      gradient.dy = upload(dy);
      gradient.dx = empty(act, {rows, wide});
      gradient.dbefore = empty(act, earlier_shape);
      run([&] {
        causal_conv(at_, device);
        causal_conv_backward(at_, gradient);
      });
      reference_.run(host);
      reference_.run(host_gradient);
      expect_near(device.y, y.values(), "y");
      expect_near(gradient.dx, dx.values(), "dx");
      expect_near(gradient.dbefore, dearlier.values(), "dbefore");
    }
  });
}

TEST_F(CausalConvKernels, sequences_in_pieces_have_the_bits_of_the_whole) {
  const Tensor places = upload(OwnedTensor(DType::i32, {2}, {0, 30}));
  for_cases([&](const ConvolutionShape& shape, std::int64_t channels, DType act) {
    const std::int64_t wide = columns(shape, channels);
    const Tensor x = upload(random(act, {30, wide})), weight = upload(random(DType::f32, {channels, shape.width}));
    const Tensor whole = empty(act, {30, channels}), parts = empty(act, {30, channels});
    const Tensor tail = empty(act, {shape.reach(), shape.read_columns(wide)});
    run([&] {
      causal_conv(at_, {.x = x, .weight = weight, .shape = shape, .layout = {.offsets = span_of(places)}, .y = whole});
      std::int64_t first = 0;
      for (const std::int64_t count : {1, 20, 1, 1, 3, 4}) {
        cached_conv(at_, {.x = x.row_slice(first, count),
                          .weight = weight,
                          .shape = shape,
                          .tail = tail,
                          .first = first,
                          .y = parts.row_slice(first, count)});
        first += count;
      }
    });
    EXPECT_EQ(download(parts), download(whole));
  });
}

TEST_F(CausalConvKernels, a_row_of_each_sequence) {
  for_cases([&](const ConvolutionShape& shape, std::int64_t channels, DType act) {
    const std::int64_t wide = columns(shape, channels), reach = shape.reach();
    const auto begin = [&](std::int64_t slot) { return static_cast<std::int32_t>(slot * reach); };
    const std::vector<CachedSequence> sequences{{begin(2), 0}, {begin(0), 50}, {begin(1), 2}};
    Values numbers;
    for (const CachedSequence& each : sequences) numbers.insert(numbers.end(), {1.0 * each.begin, 1.0 * each.rows});
    const OwnedTensor x = random(act, {3, wide}), weight = random(DType::f32, {channels, shape.width});
    const OwnedTensor tails = random(act, {3 * reach, shape.read_columns(wide)}), y(act, {3, channels});
    const Tensor table = upload(OwnedTensor(DType::i32, Shape{6}, numbers));
    CachedConv call{.x = upload(x),
                    .weight = upload(weight),
                    .shape = shape,
                    .tail = upload(tails),
                    .y = empty(act, {3, channels})};
    call.sequences = {reinterpret_cast<const CachedSequence*>(table.raw()), sequences.size()};
    run([&] { cached_conv(at_, call); });
    reference_.run(CachedConv{.x = x, .weight = weight, .shape = shape, .tail = tails, .y = y, .sequences = sequences});
    EXPECT_EQ(download(call.tail), tails.values());
    expect_near(call.y, y.values(), "y");
  });
}

}  // namespace
}  // namespace maestro::cuda
