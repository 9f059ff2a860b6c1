// SPDX-License-Identifier: Apache-2.0
// What causal convolutions have bit for bit: packed samples, sequences that arrive in pieces, rows of several
// sequences.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/ops/backends.hpp"
#include "tests/ops/owned_tensor.hpp"

namespace maestro::testing {
namespace {

constexpr std::int64_t channels = 19;
const ConvolutionShape forms[] = {{.width = 3, .gated = true},
                                  {.width = 4, .silu = true},
                                  {.width = 4, .dilation = 3, .gated = true, .silu = true},
                                  {.width = 1, .gated = true}};

struct Setting {
  Backend backend;
  DType act;
  ConvolutionShape shape;
};

std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const Backend& backend : backends()) {
    for (const ConvolutionShape& shape : forms) {
      for (const DType act : {DType::f32, DType::bf16}) all.push_back({backend, act, shape});
    }
  }
  return all;
}

class Convolution : public ::testing::TestWithParam<Setting> {
 protected:
  [[nodiscard]] const ConvolutionShape& shape() const { return GetParam().shape; }
  [[nodiscard]] std::int64_t columns() const { return shape().gated ? 3 * channels : channels; }
  OwnedTensor random(std::int64_t rows, std::int64_t width) {
    return {GetParam().act, {rows, width}, exact_normals(generator_, rows * width)};
  }
  /// Returns the results of rows in samples that `offsets` divide.
  [[nodiscard]] OwnedTensor results(const Tensor& x, const std::vector<std::int32_t>& offsets) const {
    OwnedTensor y(GetParam().act, {x.rows(), channels});
    ops_->run(
        CausalConv{.x = x, .weight = weight_, .bias = bias_, .shape = shape(), .layout = {.offsets = offsets}, .y = y});
    return y;
  }
  [[nodiscard]] OwnedTensor gradients(const Tensor& dy, const Tensor& x,
                                      const std::vector<std::int32_t>& offsets) const {
    OwnedTensor dx(GetParam().act, x.shape());
    ops_->run(CausalConvBackward{.dy = dy,
                                 .x = x,
                                 .weight = weight_,
                                 .bias = bias_,
                                 .shape = shape(),
                                 .layout = {.offsets = offsets},
                                 .dx = dx});
    return dx;
  }
  [[nodiscard]] static Values rows_of(const OwnedTensor& of, std::int64_t first, std::int64_t count) {
    const Values all = of.values();
    const auto begin = all.begin() + first * of.tensor().columns();
    return {begin, begin + count * of.tensor().columns()};
  }

  std::mt19937 generator_{5};
  std::unique_ptr<OperatorTable> ops_ = GetParam().backend.make();
  OwnedTensor weight_{DType::f32, {channels, shape().width}, exact_normals(generator_, channels* shape().width)};
  OwnedTensor bias_{DType::f32, {channels}, exact_normals(generator_, channels)};
};

TEST_P(Convolution, a_packed_sample_has_the_bits_that_it_has_alone) {  // DR-1
  const std::vector<std::int32_t> offsets{0, 1, 1, 3, 20, 33};
  const OwnedTensor x = random(33, columns()), dy = random(33, channels);
  const OwnedTensor y = results(x, offsets), dx = gradients(dy, x, offsets);
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
    const std::int64_t first = offsets[i], count = offsets[i + 1] - first;
    const std::vector<std::int32_t> own{0, static_cast<std::int32_t>(count)};
    const Tensor alone = x.tensor().row_slice(first, count);
    EXPECT_EQ(results(alone, own).values(), rows_of(y, first, count)) << i;
    EXPECT_EQ(gradients(dy.tensor().row_slice(first, count), alone, own).values(), rows_of(dx, first, count)) << i;
  }
}

TEST_P(Convolution, a_sequence_in_pieces_has_the_bits_of_the_whole) {  // LC-1
  constexpr std::int64_t rows = 40;
  const OwnedTensor x = random(rows, columns());
  const Values whole = results(x, {0, rows}).values();
  for (const std::vector<std::int64_t>& pieces :
       {std::vector<std::int64_t>{40}, {1, 1, 1, 30, 2, 0, 5}, {20, 20}, {7, 1, 1, 1, 1, 29}}) {
    const OwnedTensor tail(GetParam().act,
                           {std::max<std::int64_t>(shape().reach(), 1), shape().read_columns(columns())});
    tail.fill(1e6);  // what is before the sequence is not read
    const OwnedTensor y(GetParam().act, {rows, channels});
    std::int64_t first = 0;
    for (const std::int64_t count : pieces) {
      ops_->run(CachedConv{.x = x.tensor().row_slice(first, count),
                           .weight = weight_,
                           .bias = bias_,
                           .shape = shape(),
                           .tail = tail,
                           .first = first,
                           .y = y.tensor().row_slice(first, count)});
      first += count;
    }
    EXPECT_EQ(y.values(), whole);
  }
}

TEST_P(Convolution, a_row_of_each_sequence_has_the_bits_that_it_has_alone) {  // LC-1
  const std::vector<std::int64_t> lengths{1, 25, 2, 10};
  const std::int64_t reach = shape().reach(), slots = std::ssize(lengths);
  const OwnedTensor tails(GetParam().act, {std::max<std::int64_t>(slots * reach, 1), shape().read_columns(columns())});
  tails.fill(1e6);
  std::vector<CachedSequence> sequences;
  Values rows, alone;
  for (const std::int64_t length : lengths) {
    const OwnedTensor x = random(length, columns());
    const Values whole = results(x, {0, static_cast<std::int32_t>(length)}).values();
    const std::int64_t begin = (slots - 1 - std::ssize(sequences)) * reach;
    const OwnedTensor y(GetParam().act, {length, channels});
    ops_->run(CachedConv{.x = x.tensor().row_slice(0, length - 1),
                         .weight = weight_,
                         .bias = bias_,
                         .shape = shape(),
                         .tail = tails.tensor().row_slice(begin, reach),
                         .y = y.tensor().row_slice(0, length - 1)});
    const Values last = rows_of(x, length - 1, 1);
    rows.insert(rows.end(), last.begin(), last.end());
    alone.insert(alone.end(), whole.end() - channels, whole.end());
    sequences.push_back({static_cast<std::int32_t>(begin), static_cast<std::int32_t>(length - 1)});
  }
  const OwnedTensor x(GetParam().act, {slots, columns()}, rows), y(GetParam().act, {slots, channels});
  ops_->run(CachedConv{
      .x = x, .weight = weight_, .bias = bias_, .shape = shape(), .tail = tails, .y = y, .sequences = sequences});
  EXPECT_EQ(y.values(), alone);
}

TEST_P(Convolution, rows_that_others_hold_are_read_as_if_they_were_here) {
  const std::vector<std::int32_t> offsets{0, 4, 33};
  const std::int64_t reach = shape().reach();
  const OwnedTensor x = random(33, columns()), dy = random(33, channels);
  const Values y = results(x, offsets).values(), dx = gradients(dy, x, offsets).values();
  for (const std::int64_t first : {4, 6, 20}) {
    const std::int64_t before = std::min(reach, first - 4), rows = 33 - first, read = shape().read_columns(columns());
    OwnedTensor earlier(GetParam().act, {before, read}), dearlier(GetParam().act, {before, read});
    for (std::int64_t i = 0; i < before * read; ++i) {
      const std::int64_t column = i % read, at = column < channels || !shape().gated ? column : column + channels;
      earlier.set(i, x.get((first - before + i / read) * columns() + at));
    }
    const OwnedTensor own(GetParam().act, {rows, channels}), down(GetParam().act, {rows, columns()});
    const CausalConv call{.x = x.tensor().row_slice(first, rows),
                          .weight = weight_,
                          .bias = bias_,
                          .shape = shape(),
                          .layout = {.offsets = offsets},
                          .first = first,
                          .before = earlier,
                          .y = own};
    ops_->run(call);
    EXPECT_EQ(own.values(), Values(y.begin() + first * channels, y.end())) << first;
    ops_->run(CausalConvBackward{.dy = dy.tensor().row_slice(first, rows),
                                 .x = call.x,
                                 .weight = weight_,
                                 .bias = bias_,
                                 .shape = shape(),
                                 .layout = call.layout,
                                 .first = first,
                                 .before = earlier,
                                 .dx = down,
                                 .dbefore = dearlier});
    EXPECT_EQ(down.values(), Values(dx.begin() + first * columns(), dx.end())) << first;
    double largest = 0;
    for (const double value : dearlier.values()) largest = std::max(largest, std::abs(value));
    EXPECT_EQ(largest > 0, before > 0) << first;
  }
}

INSTANTIATE_TEST_SUITE_P(all, Convolution, ::testing::ValuesIn(settings()), [](const auto& test) {
  const ConvolutionShape& shape = test.param.shape;
  return test.param.backend.name + "_" + std::string(name_of(test.param.act)) + "_" + std::to_string(shape.width) +
         "_by_" + std::to_string(shape.dilation) + (shape.gated ? "_gated" : "");
});

}  // namespace
}  // namespace maestro::testing
