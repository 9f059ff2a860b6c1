// SPDX-License-Identifier: Apache-2.0
// A fake of the cuBLASLt calls that the backend makes, over host memory. Invariants: host_cublaslt.hpp.
#include "tests/support/fake_cuda/host_cublaslt.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>

#include "tests/support/fake_cuda/column_major_product.hpp"
#include "tests/support/fake_cuda/host_cuda.hpp"

namespace {

using maestro::DType;
using maestro::cuda::ColumnMajor;
using maestro::cuda::ProductEpilogue;
using maestro::cuda::ProductPlan;
using maestro::fake_cuda::lt_double;

struct Matmul {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cublasOperation_t a = CUBLAS_OP_N;
  cublasOperation_t b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* vector = nullptr;
  void* auxiliary = nullptr;
  std::int64_t auxiliary_leading = 0;
  std::int32_t multiprocessors = 0;
};

struct Preference {
  std::uint64_t workspace = 0;
  std::uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::array<std::uint32_t, 4> alignments = {256, 256, 256, 256};  // for A, B, C, D
};

/// State of a fake algorithm; stored in cublasLtMatmulAlgo_t.
struct Algorithm {
  std::int32_t candidate;
  std::array<std::uint32_t, 4> alignments;
  std::uint64_t workspace;
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

template <class Mine, class Theirs>
Mine& mine(Theirs* theirs) {
  return *reinterpret_cast<Mine*>(theirs);
}

/// Reads an attribute whose size must be exactly the type's.
template <class Value>
cublasStatus_t take(Value& value, const void* buffer, std::size_t bytes) {
  if (bytes != sizeof value) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&value, buffer, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

bool epilogue_of(cublasLtEpilogue_t from, ProductEpilogue& to) {
  switch (from) {
    case CUBLASLT_EPILOGUE_DEFAULT:
      return to = ProductEpilogue::none, true;
    case CUBLASLT_EPILOGUE_BIAS:
      return to = ProductEpilogue::bias, true;
    case CUBLASLT_EPILOGUE_GELU_AUX:
      return to = ProductEpilogue::gelu, true;
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
      return to = ProductEpilogue::gelu_bias, true;
    case CUBLASLT_EPILOGUE_DGELU:
      return to = ProductEpilogue::gelu_gradient, true;
    case CUBLASLT_EPILOGUE_BGRADB:
      return to = ProductEpilogue::column_sums, true;
    default:
      return false;
  }
}

/// Builds the described product. Returns false if its parts do not fit (HL-1, HL-2).
bool plan_of(const Matmul& matmul, const ColumnMajor& a, const ColumnMajor& b, const ColumnMajor& c,
             const ColumnMajor& d, ProductPlan& plan) {
  if (!epilogue_of(matmul.epilogue, plan.epilogue)) return false;
  plan.a = a;
  plan.b = b;
  plan.d = d;
  plan.transpose_a = matmul.a == CUBLAS_OP_T;
  plan.transpose_b = matmul.b == CUBLAS_OP_T;
  plan.auxiliary_leading = matmul.auxiliary_leading;
  plan.vector_dtype = d.dtype;
  const auto outer = [](const ColumnMajor& matrix, bool rows) { return rows ? matrix.rows : matrix.columns; };
  const bool fits = outer(a, !plan.transpose_a) == d.rows && outer(b, plan.transpose_b) == d.columns &&
                    outer(a, plan.transpose_a) == outer(b, !plan.transpose_b);
  const bool leads = a.leading >= a.rows && b.leading >= b.rows && d.leading >= d.rows;
  if (!fits || !leads || c != d || a.dtype != b.dtype || (a.dtype == DType::f32 && d.dtype != DType::f32)) return false;
  if (has_vector(plan.epilogue)) {
    if (matmul.vector == nullptr) return false;
    plan.vector_length = plan.epilogue == ProductEpilogue::column_sums ? d.columns : d.rows;
  }
  if (!has_auxiliary(plan.epilogue)) return true;
  return matmul.auxiliary != nullptr && plan.auxiliary_leading >= d.rows && plan.auxiliary_leading % 8 == 0;
}

std::mutex counting;  // HL-3

bool aligned(const void* memory, std::uint32_t bytes) {
  return reinterpret_cast<std::uintptr_t>(memory) % bytes == 0;
}

}  // namespace

namespace maestro::fake_cuda {

LtDouble& lt_double() {
  static LtDouble state;
  return state;
}

}  // namespace maestro::fake_cuda

extern "C" {

const char* cublasLtGetStatusName(cublasStatus_t status) {
  return status == CUBLAS_STATUS_INVALID_VALUE ? "CUBLAS_STATUS_INVALID_VALUE" : "another status";
}
const char* cublasLtGetStatusString(cublasStatus_t) {
  return "a status of the fake";
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(new int(0));
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return delete reinterpret_cast<int*>(handle), CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t leading) {
  const DType dtype = type == CUDA_R_16BF ? DType::bf16 : DType::f32;
  auto* made = new ColumnMajor{dtype, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns), leading};
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(made);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return delete &mine<ColumnMajor>(layout), CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* matmul, cublasComputeType_t compute, cudaDataType scale) {
  if (scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  *matmul = reinterpret_cast<cublasLtMatmulDesc_t>(new Matmul{.compute = compute});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t matmul) {
  return delete &mine<Matmul>(matmul), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t matmul, cublasLtMatmulDescAttributes_t attribute,
                                              const void* buffer, size_t bytes) {
  auto& to = mine<Matmul>(matmul);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return take(to.a, buffer, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return take(to.b, buffer, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return take(to.epilogue, buffer, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return take(to.vector, buffer, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return take(to.auxiliary, buffer, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return take(to.auxiliary_leading, buffer, bytes);
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
      return take(to.multiprocessors, buffer, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return delete &mine<Preference>(preference), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* buffer,
                                                    size_t bytes) {
  auto& to = mine<Preference>(preference);
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return take(to.workspace, buffer, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return take(to.schemes, buffer, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return take(to.alignments[0], buffer, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return take(to.alignments[1], buffer, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return take(to.alignments[2], buffer, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return take(to.alignments[3], buffer, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t matmul, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference,
                                              int requested, cublasLtMatmulHeuristicResult_t results[], int* count) {
  auto& state = lt_double();
  const auto& wanted = mine<Preference>(preference);
  {
    const std::lock_guard lock(counting);
    ++state.heuristic_calls;
    state.reduction_schemes = wanted.schemes;
    state.workspace_bytes = wanted.workspace;
  }
  *count = 0;
  ProductPlan plan;
  const bool valid = plan_of(mine<Matmul>(matmul), mine<ColumnMajor>(a), mine<ColumnMajor>(b), mine<ColumnMajor>(c),
                             mine<ColumnMajor>(d), plan);
  if (!valid || state.refused.contains(mine<Matmul>(matmul).epilogue)) return CUBLAS_STATUS_INVALID_VALUE;
  if (state.has_no_algorithm) return CUBLAS_STATUS_NOT_SUPPORTED;
  for (; *count < std::min(requested, state.candidates); ++*count) {
    const Algorithm algorithm{*count, wanted.alignments, wanted.workspace};
    results[*count] = {};
    std::memcpy(&results[*count].algo, &algorithm, sizeof algorithm);
    results[*count].workspaceSize = wanted.workspace;
    results[*count].state = CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t matmul, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  auto& state = lt_double();
  const auto& described = mine<Matmul>(matmul);
  Algorithm algorithm{};
  std::memcpy(&algorithm, algo, sizeof algorithm);
  ProductPlan plan;
  float one = 0;
  std::memcpy(&one, alpha, sizeof one);
  std::memcpy(&plan.beta, beta, sizeof plan.beta);
  const bool valid = plan_of(described, mine<ColumnMajor>(a_layout), mine<ColumnMajor>(b_layout),
                             mine<ColumnMajor>(c_layout), mine<ColumnMajor>(d_layout), plan);
  const bool promised = aligned(a, algorithm.alignments[0]) && aligned(b, algorithm.alignments[1]) &&
                        aligned(c, algorithm.alignments[2]) && aligned(d, algorithm.alignments[3]) &&
                        aligned(workspace, 256) && workspace_bytes >= algorithm.workspace;
  if (!valid || !promised || one != 1 || state.invalid_at_run.contains(described.epilogue))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (state.fails_at_run) return CUBLAS_STATUS_NOT_SUPPORTED;
  {
    const std::lock_guard lock(counting);
    state.runs.push_back({plan, algorithm.candidate, described.compute, described.multiprocessors});
  }
  const maestro::testing::ProductMemory memory{a, b, c, d, described.vector, described.auxiliary};
  maestro::fake_cuda::enqueue_step([plan, memory] { maestro::testing::run_column_major_product(plan, memory); },
                                   stream);
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
