// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda/products/lt_products.hpp"

#include <cassert>
#include <utility>

#include "runtime/ops/cuda/products/lt_plain_product.hpp"
#include "runtime/ops/cuda/products/lt_timer.hpp"

namespace maestro::cuda {
namespace {

constexpr int timed_runs = 5;

/// Returns the pitch of a tensor whose rows may be longer than the `n` columns in use.
std::int64_t pitch_of(const Tensor& rows, std::int64_t n) {
  assert(rows.columns() >= n);
  return rows.columns() == n ? 0 : rows.columns();
}

/// Returns the same product without its fused epilogue.
ProductRequest without_epilogue(ProductRequest request) {
  request.epilogue = ProductEpilogue::none;
  return request;
}

}  // namespace

LtProducts::LtProducts(const Launch& at, std::span<std::byte> library, const LtArithmetic& arithmetic)
    : at_(at), engine_(at.stream, library, arithmetic) {}

void LtProducts::tune(bool on) {
  tune_ = on;
  engine_.tune(on);
}

void LtProducts::linear(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y) {
  const std::int64_t m = x.rows();
  const std::int64_t n = w.rows();
  const std::int64_t k = w.columns();
  assert(x.dtype() == w.dtype() && x.columns() == k && y.rows() == m);
  if (m == 0) return;
  const ProductEpilogue epilogue = bias.defined() ? ProductEpilogue::bias : ProductEpilogue::none;
  const ProductRequest request{ProductKind::forward, m, n, k, x.dtype(), y.dtype(), epilogue, false, pitch_of(y, n)};
  run_plain(request, {w, x, y}, bias);
}

void LtProducts::linear_gelu(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& pre, const Tensor& y) {
  const std::int64_t m = x.rows();
  const std::int64_t n = w.rows();
  const std::int64_t k = w.columns();
  assert(x.dtype() == w.dtype() && x.columns() == k && y.rows() == m && y.columns() == n);
  assert(pre.dtype() == y.dtype() && pre.shape() == y.shape());
  if (m == 0) return;
  ProductRequest request{ProductKind::forward, m, n, k, x.dtype(), y.dtype(), ProductEpilogue::gelu, false, 0};
  if (bias.defined()) request.epilogue = ProductEpilogue::gelu_bias;
  const Factors factors{w, x, y};
  const auto fused = [&] {
    const Workspace::Scope scope(*at_.workspace);
    ProductPointers pointers = pointers_of(factors);
    pointers.vector = bias_for(bias, y.dtype()).raw();
    pointers.auxiliary = pre.raw();
    return engine_.run(request, pointers);
  };
  const auto apart = [&] { run_gelu_apart(request, factors, bias, pre); };
  if (fused_pays(request, fused, apart) && fused()) return;
  apart();
}

void LtProducts::run_gelu_apart(const ProductRequest& request, const Factors& factors, const Tensor& bias,
                                const Tensor& pre) {
  ProductRequest plain = without_epilogue(request);
  if (bias.defined()) plain.epilogue = ProductEpilogue::bias;
  run_plain(plain, {factors.a, factors.b, pre}, bias);
  gelu(at_, {.x = pre, .y = factors.result});
}

void LtProducts::linear_backward_input(const Tensor& dy, const Tensor& w, const Tensor& dx, bool accumulate) {
  const std::int64_t m = dy.rows();
  const std::int64_t n = w.rows();
  const std::int64_t k = w.columns();
  assert(dy.dtype() == w.dtype() && dx.rows() == m && dx.columns() == k);
  if (m == 0) return;
  run_plain({ProductKind::backward_input, m, n, k, dy.dtype(), dx.dtype(), ProductEpilogue::none, accumulate,
             pitch_of(dy, n)},
            {w, dy, dx}, {});
}

void LtProducts::linear_backward_input_gelu(const Tensor& dy, const Tensor& w, const Tensor& pre, const Tensor& dpre) {
  const std::int64_t m = dy.rows();
  const std::int64_t n = w.rows();
  const std::int64_t k = w.columns();
  assert(dy.dtype() == w.dtype() && dy.columns() == n && dpre.rows() == m && dpre.columns() == k);
  assert(pre.dtype() == dpre.dtype() && pre.shape() == dpre.shape() && pre.raw() != dpre.raw());
  if (m == 0) return;
  const ProductRequest request{ProductKind::backward_input,    m,     n, k, dy.dtype(), dpre.dtype(),
                               ProductEpilogue::gelu_gradient, false, 0};
  const Factors factors{w, dy, dpre};
  const auto fused = [&] {
    ProductPointers pointers = pointers_of(factors);
    pointers.auxiliary = pre.raw();
    return engine_.run(request, pointers);
  };
  const auto apart = [&] { run_gelu_gradient_apart(request, factors, pre); };
  if (fused_pays(request, fused, apart) && fused()) return;
  apart();
}

void LtProducts::run_gelu_gradient_apart(const ProductRequest& request, const Factors& factors, const Tensor& pre) {
  run_plain(without_epilogue(request), factors, {});
  gelu_backward(at_, {.dy = factors.result, .x = pre, .dx = factors.result});
}

void LtProducts::linear_backward_weight(const Tensor& dy, const Tensor& x, const Tensor& dw, const Tensor& dbias) {
  const std::int64_t m = dy.rows();
  const std::int64_t n = dw.rows();
  const std::int64_t k = dw.columns();
  assert(dy.dtype() == x.dtype() && dw.dtype() == DType::f32 && x.rows() == m && x.columns() == k);
  assert(dy.columns() == n || !dbias.defined());
  assert(!dbias.defined() || (dbias.dtype() == DType::f32 && dbias.elements() == n));
  if (m == 0) return;
  const Factors factors{x, dy, dw};
  ProductRequest request{
      ProductKind::backward_weight, m, n, k, dy.dtype(), DType::f32, ProductEpilogue::none, true, pitch_of(dy, n)};
  if (!dbias.defined()) return run_plain(request, factors, {});
  request.epilogue = ProductEpilogue::column_sums;
  if (sums_pay(request, factors, dbias) && run_with_sums(request, factors, dbias)) return;
  run_sums_apart(request, factors, dbias);
}

bool LtProducts::run_with_sums(const ProductRequest& request, const Factors& factors, const Tensor& dbias) {
  const Workspace::Scope scope(*at_.workspace);
  const Tensor sums(at_.workspace->take(dbias.bytes()), DType::f32, dbias.shape());
  ProductPointers pointers = pointers_of(factors);
  pointers.vector = sums.raw();
  if (!engine_.run(request, pointers)) return false;
  add(at_, dbias, sums, dbias);
  return true;
}

void LtProducts::run_sums_apart(const ProductRequest& request, const Factors& factors, const Tensor& dbias) {
  run_plain(without_epilogue(request), factors, {});
  add_column_sums(at_, factors.b, dbias);
}

bool LtProducts::sums_pay(const ProductRequest& request, const Factors& factors, const Tensor& dbias) {
  if (const auto known = known_choice(request)) return *known;
  TimingMemory for_dw;
  TimingMemory for_dbias;
  const Tensor dw(for_dw.take(factors.result.bytes()), DType::f32, factors.result.shape());
  const Tensor sums(for_dbias.take(dbias.bytes()), DType::f32, dbias.shape());
  if (!dw.defined() || !sums.defined()) return true;
  const Factors timed{factors.a, factors.b, dw};
  return fused_pays(
      request, [&] { return run_with_sums(request, timed, sums); }, [&] { run_sums_apart(request, timed, sums); });
}

ProductPointers LtProducts::pointers_of(const Factors& factors, const ProductPart& part) {
  const auto at = [](const Tensor& tensor, std::int64_t elements) {
    return tensor.raw() + elements * static_cast<std::int64_t>(size_of(tensor.dtype()));
  };
  return {.a = at(factors.a, part.a), .b = at(factors.b, part.b), .d = at(factors.result, part.d)};
}

Tensor LtProducts::bias_for(const Tensor& bias, DType wanted) const {
  if (!bias.defined() || bias.dtype() == wanted) return bias;
  const auto bytes = static_cast<std::size_t>(bias.elements()) * size_of(wanted);
  const Tensor rounded(at_.workspace->take(bytes), wanted, bias.shape());
  cast(at_, bias, rounded);
  return rounded;
}

void LtProducts::run_plain(const ProductRequest& request, const Factors& factors, const Tensor& bias) {
  const Workspace::Scope scope(*at_.workspace);
  const Tensor vector = bias_for(bias, request.result);
  for (const ProductPart& part : product_parts(request)) {
    ProductPointers pointers = pointers_of(factors, part);
    pointers.vector = vector.raw();
    run_part(part.request, pointers);
  }
}

void LtProducts::run_part(const ProductRequest& request, const ProductPointers& pointers) {
  if (engine_.run(request, pointers)) return;
  if (request.epilogue == ProductEpilogue::bias && engine_.run(without_epilogue(request), pointers)) {
    return add_bias(at_, product_plan(request), pointers);
  }
  if (report_slow_) {
    const auto report = std::exchange(report_slow_, nullptr);
    report("cuBLASLt has no algorithm for " + describe(request) + "; own kernels do this and others like it, slowly");
  }
  plain_product(at_, product_plan(request), pointers);
}

std::optional<bool> LtProducts::known_choice(const ProductRequest& request) const {
  if (!product_refusal(request).empty()) return false;
  const auto found = fused_pays_.find(request);
  if (found != fused_pays_.end()) return found->second;
  if (!tune_ || fused_pays_.size() >= LtEngine::most_tuned || is_captured(at_.stream)) return true;
  return {};
}

template <class Fused, class Apart>
bool LtProducts::fused_pays(const ProductRequest& request, Fused fused, Apart apart) {
  if (const auto known = known_choice(request)) return *known;
  if (!fused()) return fused_pays_[request] = false;
  apart();  // both choose their algorithms and warm up before timing
  EventTimer of_fused(at_.stream);
  for (int i = 0; i < timed_runs; ++i) static_cast<void>(fused());
  const float fused_ms = of_fused.milliseconds();
  EventTimer of_apart(at_.stream);
  for (int i = 0; i < timed_runs; ++i) apart();
  return fused_pays_[request] = fused_ms <= of_apart.milliseconds();
}

}  // namespace maestro::cuda
