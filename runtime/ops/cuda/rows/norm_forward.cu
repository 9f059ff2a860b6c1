// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda/kernels.hpp"
#include "runtime/ops/cuda/rows/norm_rows.cuh"

namespace maestro::cuda {

namespace {

template <bool Centred, bool Add, class X, class B, class Y>
void launch_norm(const Launch& at, const NormTiles& tiles, const NormCall<X, B, Y>& call) {
  const LaunchShape shape{Centred ? "layer_norm" : "rms_norm",
                          static_cast<unsigned>(ceil_divide(call.rows, tiles.rows_per_block)),
                          static_cast<unsigned>(tiles.threads), 0, at.stream};
  switch (tiles.kind) {
    case NormKind::warp:
      return launch(shape, norm_kernel<Centred, Add, NormKind::warp, X, B, Y>, call);
    case NormKind::block:
      return launch(shape, norm_kernel<Centred, Add, NormKind::block, X, B, Y>, call);
    case NormKind::wide:
      return launch(shape, norm_wide_kernel<Centred, Add, X, B, Y>, call);
  }
}

/// `added` and `sum` are undefined for norm().
struct NormTensors {
  const Tensor& x;
  const Tensor& added;
  const Tensor& sum;
  const Tensor& y;
  const Tensor& mean;
  const Tensor& rstd;
};

template <class X, class B, class Y>
NormCall<X, B, Y> call_of(const NormTensors& tensors, const NormParameters& parameters) {
  return {.x = tensors.x.data<X>(),
          .added = data_of<B>(tensors.added),
          .sum = data_of<float>(tensors.sum),
          .weight = parameters.weight.data<float>(),
          .bias = data_of<float>(parameters.bias),
          .y = tensors.y.data<Y>(),
          .mean = data_of<float>(tensors.mean),
          .rstd = tensors.rstd.data<float>(),
          .rows = tensors.x.rows(),
          .columns = static_cast<int>(tensors.x.columns()),
          .epsilon = static_cast<float>(parameters.epsilon)};
}

bool fits(const Tensor& tensor, std::int64_t columns) {
  return !tensor.defined() || packs_fit(tensor, columns, norm_width);
}

NormTiles tiles_of(const NormTensors& tensors, const NormParameters& parameters) {
  const std::int64_t columns = tensors.x.columns();
  return norm_tiles(columns, fits(tensors.x, columns) && fits(tensors.added, columns) && fits(tensors.sum, columns) &&
                                 fits(tensors.y, columns) && fits(parameters.weight, columns) &&
                                 fits(parameters.bias, columns));
}

}  // namespace

void norm(const Launch& at, const Tensor& x, const NormParameters& parameters, const Tensor& y, const Tensor& mean,
          const Tensor& rstd) {
  assert(mean.defined() == parameters.bias.defined());
  if (x.rows() == 0) return;
  const Tensor none;
  const NormTensors tensors{x, none, none, y, mean, rstd};
  with_type(x.dtype(), [&](auto from) {
    with_type(y.dtype(), [&](auto to) {
      with_flag(mean.defined(), [&](auto centred) {
        using X = typename decltype(from)::type;
        using Y = typename decltype(to)::type;
        launch_norm<decltype(centred)::value, false>(at, tiles_of(tensors, parameters),
                                                     call_of<X, X, Y>(tensors, parameters));
      });
    });
  });
}

void add_norm(const Launch& at, const Tensor& a, const Tensor& b, const Tensor& sum, const NormParameters& parameters,
              const Tensor& y, const Tensor& mean, const Tensor& rstd) {
  assert(mean.defined() == parameters.bias.defined() && a.elements() == b.elements());
  if (a.rows() == 0) return;
  const NormTensors tensors{a, b, sum, y, mean, rstd};
  with_type(b.dtype(), [&](auto other) {
    with_type(y.dtype(), [&](auto to) {
      with_flag(mean.defined(), [&](auto centred) {
        using B = typename decltype(other)::type;
        using Y = typename decltype(to)::type;
        launch_norm<decltype(centred)::value, true>(at, tiles_of(tensors, parameters),
                                                    call_of<float, B, Y>(tensors, parameters));
      });
    });
  });
}

}  // namespace maestro::cuda
