// SPDX-License-Identifier: Apache-2.0
// The matrix products of a linear layer on a device stream: by cuBLASLt with bias, GELU and bias-gradient epilogues, by
// maestro's kernels if the library refuses. Shapes as in operator_table.hpp: x (M, K), w (N, K), y (M, N); tensors are
// row-major and in device memory. Operands are both f32 or both bf16; sums are in f32.
//
// LP-1 (no waiting): every call only enqueues; no call waits for the device unless tune(true) meets a new product.
// LP-2 (determinism): results are the same bit for bit for equal calls (LE-1, LE-2; no atomic additions).
// LP-3 (no rows): M = 0 is legal: gradients of parameters stay as they are.
// cuBLASLt's GELU is the tanh form (Hendrycks & Gimpel 2016). Fused, it sees its input before that is rounded to bf16;
// else after. Results of a call must not overlap its operands.
// Errors: shapes and dtypes are the caller's contract (asserted). DeviceError names the failed call and the product.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "runtime/core/tensor.hpp"
#include "runtime/ops/cuda/kernels.hpp"
#include "runtime/ops/cuda/products/lt_engine.hpp"

namespace maestro::cuda {

/// Not thread-safe; the device must be current.
class LtProducts {
 public:
  /// `library`: device memory that only cuBLASLt uses, 256-byte aligned; 32 to 64 MiB are best. It outlives this
  /// object, as does at.workspace, which provides memory for a bias in another dtype and for column sums.
  LtProducts(const Launch& at, std::span<std::byte> library, const LtArithmetic& arithmetic = {});

  /// Sets tuning, as LtEngine::tune. If GELU or column sums can be fused, also chooses between fusion and maestro's
  /// kernels.
  void tune(bool on);
  /// Sets the receiver of a line, sent at most once, when a product falls back to maestro's kernels, which are slow
  /// because they do not use tensor cores.
  void report_slow(std::function<void(const std::string&)> report) { report_slow_ = std::move(report); }

  /// Without GELU, rows of y or dy may be longer than N: columns from N on are neither read nor written.
  /// Computes y act or f32 = x w^T + bias; bias (N) f32, bf16 or undefined. A bias in the dtype of y costs nothing;
  /// another is first rounded to it by a small kernel.
  void linear(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y);
  /// Computes pre = x w^T + bias, y = gelu(pre); pre and y (M, N) of the same dtype.
  void linear_gelu(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& pre, const Tensor& y);
  /// Computes dx (M, K) act or f32 (+)= dy w.
  void linear_backward_input(const Tensor& dy, const Tensor& w, const Tensor& dx, bool accumulate);
  /// Computes dpre (M, K) = (dy w) gelu'(pre), the gradient before a GELU whose result was this layer's input. Its
  /// column sums follow from linear_backward_weight(dpre, ...) of the previous layer, which computes them anyway, in
  /// f32.
  void linear_backward_input_gelu(const Tensor& dy, const Tensor& w, const Tensor& pre, const Tensor& dpre);
  /// Computes dw (N, K) f32 += dy^T x; dbias (N) f32 += column sums of dy, or undefined.
  void linear_backward_weight(const Tensor& dy, const Tensor& x, const Tensor& dw, const Tensor& dbias);

  [[nodiscard]] const LtEngine& engine() const { return engine_; }

 private:
  struct Factors {
    const Tensor& a;  ///< factor a of ProductPlan: the weight, or x
    const Tensor& b;  ///< x or dy
    const Tensor& result;
  };
  /// Returns the bias in the dtype that the library needs; a rounded bias is in the workspace.
  [[nodiscard]] Tensor bias_for(const Tensor& bias, DType wanted) const;
  /// Runs the product by the library, with the bias or before it, else by plain_product; epilogues `none` and `bias`.
  void run_plain(const ProductRequest& request, const Factors& factors, const Tensor& bias);
  /// Runs a part from product_parts() in the same way.
  void run_part(const ProductRequest& request, const ProductPointers& pointers);
  void run_gelu_apart(const ProductRequest& request, const Factors& factors, const Tensor& bias, const Tensor& pre);
  void run_gelu_gradient_apart(const ProductRequest& request, const Factors& factors, const Tensor& pre);
  /// Runs product and column sums as a single call, into dbias too; returns false if the library refuses.
  [[nodiscard]] bool run_with_sums(const ProductRequest& request, const Factors& factors, const Tensor& dbias);
  void run_sums_apart(const ProductRequest& request, const Factors& factors, const Tensor& dbias);
  /// Returns fused_pays() of run_with_sums(), measured on separate memory, because both add to their results.
  [[nodiscard]] bool sums_pay(const ProductRequest& request, const Factors& factors, const Tensor& dbias);
  /// Returns whether to use the fused product: unless tuning found it slower.
  template <class Fused, class Apart>
  [[nodiscard]] bool fused_pays(const ProductRequest& request, Fused fused, Apart apart);
  /// Returns the result of fused_pays() if it is available without measuring; else nothing.
  [[nodiscard]] std::optional<bool> known_choice(const ProductRequest& request) const;
  [[nodiscard]] static ProductPointers pointers_of(const Factors& factors, const ProductPart& part = {});

  Launch at_;
  LtEngine engine_;
  bool tune_ = false;
  std::function<void(const std::string&)> report_slow_;  // empty when no line is left to report
  std::map<ProductRequest, bool> fused_pays_;            // timed products
};

}  // namespace maestro::cuda
