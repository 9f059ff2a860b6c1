// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda/rows/causal_conv_rows.cuh"

#include <algorithm>

#include "runtime/ops/cuda/launch_rows.cuh"
#include "runtime/ops/cuda/rows/launch_column_sums.cuh"

namespace maestro::cuda {

namespace {

template <class T, class Op>
ConvRows<T> rows_of(const Op& op, const Tensor& earlier) {
  const ConvolutionShape& shape = op.shape;
  const auto channels = static_cast<int>(shape.channels(op.x.columns()));
  assert(op.weight.elements() == channels * shape.width && op.weight.columns() == shape.width);
  return {op.x.template data<T>(),       data_of<T>(earlier), channels,
          static_cast<int>(shape.width), shape.dilation,      shape.gated};
}

template <class Op>
ConvSamples samples_of(const Op& op) {
  return {op.layout.offsets.data(), static_cast<int>(op.layout.sequences()), op.first,
          op.before.defined() ? op.before.rows() : 0};
}

template <class Op>
ConvTails tails_of(const Op& op) {
  return {op.sequences.empty() ? nullptr : op.sequences.data(), op.first, op.shape.reach()};
}

/// Returns whether rows can be read flat_width channels at a time.
bool fits(std::int64_t channels, std::initializer_list<Tensor> tensors) {
  return std::ranges::all_of(
      tensors, [=](const Tensor& tensor) { return !tensor.defined() || packs_fit(tensor, channels, flat_width); });
}

template <class T, class Places, class Op>
void forward(const Launch& at, const char* name, const Op& op, const Tensor& earlier, const Places& places) {
  const ConvRows<T> rows = rows_of<T>(op, earlier);
  with_flag(fits(rows.channels, {op.x, earlier, op.y}), [&](auto packed) {
    constexpr int V = decltype(packed)::value ? flat_width : 1;
    launch_rows(at, name, op.y.rows(), rows.channels / V,
                ConvForward<T, Places, V>{{rows, places, op.weight.template data<float>(), data_of<float>(op.bias)},
                                          op.shape.silu,
                                          op.y.template data<T>()});
  });
}

template <class T>
void backward(const Launch& at, const CausalConvBackward& op) {
  const ConvRows<T> rows = rows_of<T>(op, op.before);
  const ConvSamples samples = samples_of(op);
  const std::int64_t count = op.x.rows();
  const Workspace::Scope scope(*at.workspace);
  float* dsum = at.workspace->take_array<float>(static_cast<std::size_t>(count * rows.channels));
  const float* weight = op.weight.data<float>();
  with_flag(fits(rows.channels, {op.x, op.before, op.dy, op.dx, op.dbefore}), [&](auto packed) {
    constexpr int V = decltype(packed)::value ? flat_width : 1;
    launch_rows(
        at, "causal_conv_backward", count, rows.channels / V,
        ConvBackward<T, V>{
            {rows, samples, weight, data_of<float>(op.bias)}, op.shape.silu, op.dy.data<T>(), dsum, data_of<T>(op.dx)});
    launch_rows(at, "causal_conv_backward_input", samples.before + count, rows.channels / V,
                ConvInputBackward<T, V>{rows, samples, weight, dsum, count, data_of<T>(op.dx), data_of<T>(op.dbefore)});
  });
  if (op.dweight.defined()) {
    add_columns_of(at, ConvProducts<T>{rows, samples, dsum}, {count, std::int64_t{rows.channels} * rows.width}, false,
                   op.dweight.data<float>());
  }
  if (op.dbias.defined()) add_column_sums(at, Tensor(dsum, DType::f32, {count, rows.channels}), op.dbias);
}

}  // namespace

void causal_conv(const Launch& at, const CausalConv& op) {
  assert(op.y.dtype() == op.x.dtype() && op.y.rows() == op.x.rows());
  with_type(op.x.dtype(), [&](auto type) {
    forward<typename decltype(type)::type>(at, "causal_conv", op, op.before, samples_of(op));
  });
}

void causal_conv_backward(const Launch& at, const CausalConvBackward& op) {
  assert(op.dy.dtype() == op.x.dtype() && op.dy.rows() == op.x.rows());
  with_type(op.x.dtype(), [&](auto type) { backward<typename decltype(type)::type>(at, op); });
}

void cached_conv(const Launch& at, const CachedConv& op) {
  const std::int64_t reach = op.shape.reach(), rows = op.x.rows();
  assert(op.tail.rows() >= reach && op.tail.columns() == op.shape.read_columns(op.x.columns()));
  with_type(op.x.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    forward<T>(at, "cached_conv", op, op.tail, tails_of(op));
    const std::int64_t first = op.sequences.empty() ? std::max<std::int64_t>(0, rows - reach) : 0;
    if (reach == 0) return;
    const ConvRows<T> own = rows_of<T>(op, op.tail);
    with_flag(fits(own.channels, {op.x, op.tail}), [&](auto packed) {
      constexpr int V = decltype(packed)::value ? flat_width : 1;
      launch_rows(at, "conv_tail", rows - first, op.tail.columns() / V,
                  ConvTailRows<T, V>{own, tails_of(op), first, op.tail.data<T>()});
    });
  });
}

}  // namespace maestro::cuda
