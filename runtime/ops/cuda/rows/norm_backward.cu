// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda/kernels.hpp"
#include "runtime/ops/cuda/products/column_sums.hpp"
#include "runtime/ops/cuda/rows/norm_backward_rows.cuh"

namespace maestro::cuda {

namespace {

template <bool Centred, bool Parameters, class D, class X, class G>
void launch_backward(const LaunchShape& shape, NormKind kind, const NormBackwardCall<D, X, G>& call) {
  switch (kind) {
    case NormKind::warp:
      return launch(shape, norm_backward_kernel<Centred, Parameters, NormKind::warp, D, X, G>, call);
    case NormKind::block:
      return launch(shape, norm_backward_kernel<Centred, Parameters, NormKind::block, D, X, G>, call);
    case NormKind::wide:
      return launch(shape, norm_backward_wide_kernel<Centred, Parameters, D, X, G>, call);
  }
}

}  // namespace

void norm_backward(const Launch& at, const NormBackward& op) {
  assert(!op.dbias.defined() || (op.dweight.defined() && op.mean.defined()));
  assert(!op.rounded.defined() || op.rounded.dtype() == op.dy.dtype());
  if (op.x.rows() == 0) return;
  const std::int64_t columns = op.x.columns();
  const auto fits = [columns](const Tensor& tensor) { return packs_fit(tensor, columns, norm_width); };
  const NormTiles tiles = norm_tiles(columns, fits(op.dy) && fits(op.x) && fits(op.dx) && fits(op.weight) &&
                                                  (!op.rounded.defined() || fits(op.rounded)));
  const unsigned blocks = norm_backward_blocks(op.x.rows(), tiles, at.multiprocessors);
  const bool parameters = op.dweight.defined();
  const Workspace::Scope scope(*at.workspace);
  const auto of_blocks = static_cast<std::size_t>(blocks) * static_cast<std::size_t>(columns);
  float* dweight = parameters ? at.workspace->take_array<float>(of_blocks) : nullptr;
  float* dbias = parameters && op.mean.defined() ? at.workspace->take_array<float>(of_blocks) : nullptr;
  with_type(op.dy.dtype(), [&](auto from) {
    with_type(op.x.dtype(), [&](auto input) {
      with_type(op.dx.dtype(), [&](auto to) {
        using D = typename decltype(from)::type;
        using X = typename decltype(input)::type;
        using G = typename decltype(to)::type;
        const NormBackwardCall<D, X, G> call{.dy = op.dy.data<D>(),
                                             .x = op.x.data<X>(),
                                             .dx = op.dx.data<G>(),
                                             .rounded = data_of<D>(op.rounded),
                                             .weight = op.weight.data<float>(),
                                             .mean = data_of<float>(op.mean),
                                             .rstd = op.rstd.data<float>(),
                                             .dweight = dweight,
                                             .dbias = dbias,
                                             .rows = op.x.rows(),
                                             .columns = static_cast<int>(columns),
                                             .accumulate = op.accumulate,
                                             .offset = static_cast<float>(op.offset)};
        with_flag(op.mean.defined(), [&](auto centred) {
          with_flag(parameters, [&](auto with_parameters) {
            const LaunchShape shape{"norm_backward", blocks, static_cast<unsigned>(tiles.threads), 0, at.stream};
            launch_backward<decltype(centred)::value, decltype(with_parameters)::value>(shape, tiles.kind, call);
          });
        });
      });
    });
  });
  if (parameters) add_partial_rows(at, {dweight, blocks, columns}, op.dweight.data<float>());
  if (op.dbias.defined()) add_partial_rows(at, {dbias, blocks, columns}, op.dbias.data<float>());
}

}  // namespace maestro::cuda
