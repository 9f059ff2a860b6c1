// SPDX-License-Identifier: Apache-2.0
// Owners of cuBLASLt's objects. An object that exists is valid; a refusal by the library throws DeviceError.
#pragma once

#include <cublasLt.h>

#include <memory>
#include <string_view>

#include "runtime/ops/cuda/products/lt_plan.hpp"

namespace maestro::cuda {

/// Throws DeviceError naming `call`, the status and `what` unless the status is success.
void check_lt(cublasStatus_t status, std::string_view call, std::string_view what = {});

[[nodiscard]] constexpr cudaDataType_t lt_type(DType dtype) {
  return dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

template <class Object, cublasStatus_t (*Destroy)(Object)>
struct LtDelete {
  using pointer = Object;
  // An object that the library cannot destroy is lost with its context; no caller can handle the error.
  void operator()(Object object) const { static_cast<void>(Destroy(object)); }
};
template <class Object, cublasStatus_t (*Destroy)(Object)>
using LtOwner = std::unique_ptr<Object, LtDelete<Object, Destroy>>;

using LtHandle = LtOwner<cublasLtHandle_t, cublasLtDestroy>;
using LtMatmul = LtOwner<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using LtLayout = LtOwner<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using LtPreference = LtOwner<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

[[nodiscard]] LtHandle make_lt_handle();
[[nodiscard]] LtLayout make_lt_layout(const ColumnMajor& matrix);
[[nodiscard]] LtPreference make_lt_preference();

struct LtArithmetic {
  bool tf32 = false;        ///< f32 operands may be rounded to TF32
  int multiprocessors = 0;  ///< multiprocessors that kernels are planned for; 0: the device's
};
/// Returns a plan's transposes, epilogue and arithmetic; pointers for the epilogue are set for each call.
[[nodiscard]] LtMatmul make_lt_matmul(const ProductPlan& plan, const LtArithmetic& arithmetic);

template <class Value>
void set_lt(const LtMatmul& matmul, cublasLtMatmulDescAttributes_t attribute, const Value& value) {
  check_lt(cublasLtMatmulDescSetAttribute(matmul.get(), attribute, &value, sizeof value),
           "cublasLtMatmulDescSetAttribute");
}

template <class Value>
void set_lt(const LtPreference& preference, cublasLtMatmulPreferenceAttributes_t attribute, const Value& value) {
  check_lt(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value),
           "cublasLtMatmulPreferenceSetAttribute");
}

}  // namespace maestro::cuda
