// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda/products/lt_handles.hpp"

#include <string>

#include "runtime/ops/cuda/device_error.hpp"

namespace maestro::cuda {
namespace {

cublasLtEpilogue_t lt_epilogue(ProductEpilogue epilogue) {
  switch (epilogue) {
    case ProductEpilogue::none:
      return CUBLASLT_EPILOGUE_DEFAULT;
    case ProductEpilogue::bias:
      return CUBLASLT_EPILOGUE_BIAS;
    case ProductEpilogue::gelu:
      return CUBLASLT_EPILOGUE_GELU_AUX;
    case ProductEpilogue::gelu_bias:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case ProductEpilogue::gelu_gradient:
      return CUBLASLT_EPILOGUE_DGELU;
    case ProductEpilogue::column_sums:
      return CUBLASLT_EPILOGUE_BGRADB;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

}  // namespace

void check_lt(cublasStatus_t status, std::string_view call, std::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  std::string text = std::string(call) + ": " + cublasLtGetStatusName(status) + ", " + cublasLtGetStatusString(status);
  if (!what.empty()) text += ": " + std::string(what);
  throw DeviceError(text);
}

LtHandle make_lt_handle() {
  cublasLtHandle_t handle = nullptr;
  check_lt(cublasLtCreate(&handle), "cublasLtCreate");
  return LtHandle(handle);
}

LtLayout make_lt_layout(const ColumnMajor& matrix) {
  cublasLtMatrixLayout_t layout = nullptr;
  check_lt(cublasLtMatrixLayoutCreate(&layout, lt_type(matrix.dtype), static_cast<std::uint64_t>(matrix.rows),
                                      static_cast<std::uint64_t>(matrix.columns), matrix.leading),
           "cublasLtMatrixLayoutCreate");
  return LtLayout(layout);
}

LtPreference make_lt_preference() {
  cublasLtMatmulPreference_t preference = nullptr;
  check_lt(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  return LtPreference(preference);
}

LtMatmul make_lt_matmul(const ProductPlan& plan, const LtArithmetic& arithmetic) {
  const bool tf32 = arithmetic.tf32 && plan.a.dtype == DType::f32;
  cublasLtMatmulDesc_t made = nullptr;
  check_lt(cublasLtMatmulDescCreate(&made, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F),
           "cublasLtMatmulDescCreate");
  LtMatmul matmul(made);
  set_lt(matmul, CUBLASLT_MATMUL_DESC_TRANSA, plan.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set_lt(matmul, CUBLASLT_MATMUL_DESC_TRANSB, plan.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set_lt(matmul, CUBLASLT_MATMUL_DESC_EPILOGUE, lt_epilogue(plan.epilogue));
  // The types of the vector and of gelu's input are left unset: they default to D's dtype, the only valid dtype.
  if (plan.auxiliary_leading > 0) set_lt(matmul, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, plan.auxiliary_leading);
  if (arithmetic.multiprocessors > 0) {
    set_lt(matmul, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, std::int32_t{arithmetic.multiprocessors});
  }
  return matmul;
}

}  // namespace maestro::cuda
