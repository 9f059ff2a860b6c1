// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda/launch_rows.cuh"

namespace maestro::cuda {

void zero(const Launch& at, const Tensor& tensor) {
  if (tensor.elements() == 0) return;
  check(cudaMemsetAsync(tensor.raw(), 0, tensor.bytes(), at.stream), "cudaMemsetAsync");
}

void cast(const Launch& at, const Tensor& from, const Tensor& to) {
  assert(from.elements() == to.elements());
  if (from.dtype() != to.dtype()) return map_one<CopyOp>(at, "cast", from, to);
  if (from.elements() == 0) return;
  check(cudaMemcpyAsync(to.raw(), from.raw(), from.bytes(), cudaMemcpyDeviceToDevice, at.stream), "cudaMemcpyAsync");
}

void add(const Launch& at, const Tensor& a, const Tensor& b, const Tensor& out) {
  map_two<AddOp>(at, "add", a, b, out);
}

void gelu(const Launch& at, const Gelu& op) {
  element::with_gelu<element::Scalar>(op.kind,
                                      [&](auto form) { map_one<GeluOp<decltype(form)>>(at, "gelu", op.x, op.y); });
}

void gelu_backward(const Launch& at, const GeluBackward& op) {
  element::with_gelu<element::Scalar>(
      op.kind, [&](auto form) { map_two<GeluBackwardOp<decltype(form)>>(at, "gelu_backward", op.dy, op.x, op.dx); });
}

void softcap(const Launch& at, const Softcap& op) {
  assert(op.cap > 0);
  map_one(at, "softcap", op.x, op.x, SoftcapOp{static_cast<float>(op.cap)});
}

void glu(const Launch& at, const Glu& op) {
  const Tensor& x = op.x;
  const Tensor& y = op.y;
  const std::int64_t features = y.columns();
  assert(x.columns() == 2 * features && y.dtype() == x.dtype());
  const bool packed = packs_fit(x, features, flat_width) && packs_fit(y, features, flat_width);
  with_type(x.dtype(), [&](auto type) {
    element::with_glu<element::Scalar>(op.gate, [&](auto unit) {
      with_flag(packed, [&](auto flag) {
        using T = typename decltype(type)::type;
        constexpr int V = decltype(flag)::value ? flat_width : 1;
        launch_rows(at, "glu", y.rows(), features / V,
                    GluRows<decltype(unit), V, T>{unit, x.data<T>(), y.data<T>(), static_cast<int>(features)});
      });
    });
  });
}

void glu_backward(const Launch& at, const GluBackward& op) {
  const std::int64_t features = op.dy.columns();
  assert(op.x.columns() == 2 * features && op.dx.dtype() == op.x.dtype() && op.dy.dtype() == op.x.dtype());
  const auto fits = [features](const Tensor& tensor) { return packs_fit(tensor, features, flat_width); };
  with_type(op.x.dtype(), [&](auto type) {
    element::with_glu<element::Scalar>(op.gate, [&](auto unit) {
      with_flag(fits(op.dy) && fits(op.x) && fits(op.dx), [&](auto flag) {
        using T = typename decltype(type)::type;
        using Rows = GluBackwardRows<decltype(unit), decltype(flag)::value ? flat_width : 1, T>;
        launch_rows(at, "glu_backward", op.dy.rows(), features / Rows::width,
                    Rows{unit, op.dy.data<T>(), op.x.data<T>(), op.dx.data<T>(), static_cast<int>(features)});
      });
    });
  });
}

void add_into(const Launch& at, float* into, const float* values, std::int64_t count) {
  launch_map(at, "add_into", MapCall<float, float, float>{count, into, values, into}, AddOp());
}

}  // namespace maestro::cuda
