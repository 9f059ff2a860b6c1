// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda/launch_rows.cuh"

namespace maestro::cuda {

namespace {

template <class Op>
void map_one(const Launch& at, const char* name, const Tensor& a, const Tensor& out) {
  assert(a.elements() == out.elements());
  with_type(a.dtype(), [&](auto from) {
    with_type(out.dtype(), [&](auto to) {
      using A = typename decltype(from)::type;
      using Out = typename decltype(to)::type;
      launch_map(at, name, MapCall<A, A, Out>{a.elements(), a.data<A>(), nullptr, out.data<Out>()}, Op());
    });
  });
}

template <class Op>
void map_two(const Launch& at, const char* name, const Tensor& a, const Tensor& b, const Tensor& out) {
  assert(a.elements() == out.elements() && b.elements() == out.elements());
  with_type(a.dtype(), [&](auto left) {
    with_type(b.dtype(), [&](auto right) {
      with_type(out.dtype(), [&](auto to) {
        using A = typename decltype(left)::type;
        using B = typename decltype(right)::type;
        using Out = typename decltype(to)::type;
        launch_map(at, name, MapCall<A, B, Out>{a.elements(), a.data<A>(), b.data<B>(), out.data<Out>()}, Op());
      });
    });
  });
}

}  // namespace

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

void gelu(const Launch& at, const Tensor& x, const Tensor& y) {
  map_one<GeluOp>(at, "gelu", x, y);
}

void gelu_backward(const Launch& at, const Tensor& dy, const Tensor& x, const Tensor& dx) {
  map_two<GeluBackwardOp>(at, "gelu_backward", dy, x, dx);
}

void swiglu(const Launch& at, const Tensor& x, const Tensor& y) {
  const std::int64_t features = y.columns();
  assert(x.columns() == 2 * features);
  const bool packed = packs_fit(x, features, flat_width) && packs_fit(y, features, flat_width);
  with_type(x.dtype(), [&](auto from) {
    with_type(y.dtype(), [&](auto to) {
      with_flag(packed, [&](auto flag) {
        using X = typename decltype(from)::type;
        using Y = typename decltype(to)::type;
        constexpr int V = decltype(flag)::value ? flat_width : 1;
        launch_rows(at, "swiglu", y.rows(), features / V,
                    SwigluRows<V, X, Y>{x.data<X>(), y.data<Y>(), static_cast<int>(features)});
      });
    });
  });
}

void swiglu_backward(const Launch& at, const Tensor& dy, const Tensor& x, const Tensor& dx) {
  const std::int64_t features = dy.columns();
  assert(x.columns() == 2 * features && dx.dtype() == x.dtype());
  const bool packed =
      packs_fit(dy, features, flat_width) && packs_fit(x, features, flat_width) && packs_fit(dx, features, flat_width);
  with_type(dy.dtype(), [&](auto from) {
    with_type(x.dtype(), [&](auto to) {
      with_flag(packed, [&](auto flag) {
        using D = typename decltype(from)::type;
        using X = typename decltype(to)::type;
        constexpr int V = decltype(flag)::value ? flat_width : 1;
        launch_rows(at, "swiglu_backward", dy.rows(), features / V,
                    SwigluBackwardRows<V, D, X>{dy.data<D>(), x.data<X>(), dx.data<X>(), static_cast<int>(features)});
      });
    });
  });
}

void add_into(const Launch& at, float* into, const float* values, std::int64_t count) {
  launch_map(at, "add_into", MapCall<float, float, float>{count, into, values, into}, AddOp());
}

}  // namespace maestro::cuda
