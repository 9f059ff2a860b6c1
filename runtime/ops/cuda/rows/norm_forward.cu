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

template <class X, class B, class Y>
NormCall<X, B, Y> call_of(const Norm& op) {
  return {.x = op.x.data<X>(),
          .added = data_of<B>(op.added),
          .sum = data_of<float>(op.sum),
          .weight = op.weight.data<float>(),
          .bias = data_of<float>(op.bias),
          .y = op.y.data<Y>(),
          .mean = data_of<float>(op.mean),
          .rstd = op.rstd.data<float>(),
          .rows = op.x.rows(),
          .columns = static_cast<int>(op.x.columns()),
          .epsilon = static_cast<float>(op.epsilon),
          .offset = static_cast<float>(op.offset)};
}

bool fits(const Tensor& tensor, std::int64_t columns) {
  return !tensor.defined() || packs_fit(tensor, columns, norm_width);
}

NormTiles tiles_of(const Norm& op) {
  const std::int64_t columns = op.x.columns();
  return norm_tiles(columns, fits(op.x, columns) && fits(op.added, columns) && fits(op.sum, columns) &&
                                 fits(op.y, columns) && fits(op.weight, columns) && fits(op.bias, columns));
}

template <bool Add, class X, class B>
void norm_of(const Launch& at, const Norm& op) {
  with_type(op.y.dtype(), [&](auto to) {
    with_flag(op.bias.defined(), [&](auto centred) {
      using Y = typename decltype(to)::type;
      launch_norm<decltype(centred)::value, Add>(at, tiles_of(op), call_of<X, B, Y>(op));
    });
  });
}

}  // namespace

void norm(const Launch& at, const Norm& op) {
  assert(op.mean.defined() == op.bias.defined() && op.sum.defined() == op.added.defined());
  assert(!op.added.defined() || op.added.elements() == op.x.elements());
  if (op.x.rows() == 0) return;
  if (op.added.defined()) {
    return with_type(op.added.dtype(),
                     [&](auto added) { norm_of<true, float, typename decltype(added)::type>(at, op); });
  }
  with_type(op.x.dtype(), [&](auto from) {
    using X = typename decltype(from)::type;
    norm_of<false, X, X>(at, op);
  });
}

}  // namespace maestro::cuda
