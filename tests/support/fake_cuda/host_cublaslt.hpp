// SPDX-License-Identifier: Apache-2.0
// Test interface to the fake cuBLASLt (host_cublaslt.cpp), which computes each product on the stream as described and
// refuses every call that the library's headers refuse:
//   HL-1  operands have matching dtypes and shapes; workspace and pointers have the alignment promised when the
//         algorithm was requested; rows of gelu's input have a multiple of 8 elements;
//   HL-2  a bias, column sums and gelu's input have the result's dtype, and a vector has the length that the epilogue
//         requires.
//   HL-3  the library's calls may come from several host threads; tests set and read LtDouble between calls.
#pragma once

#include <cublasLt.h>

#include <set>
#include <vector>

#include "runtime/ops/cuda/products/lt_plan.hpp"

namespace maestro::fake_cuda {

struct LtRun {
  cuda::ProductPlan plan;
  int candidate = 0;  ///< position of its algorithm in the heuristic's order
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  int multiprocessors = 0;
};

struct LtDouble {
  // Set by tests.
  bool has_no_algorithm = false;
  std::set<cublasLtEpilogue_t> refused;         ///< epilogues that no algorithm supports
  bool fails_at_run = false;                    ///< whether cublasLtMatmul returns "not supported"
  std::set<cublasLtEpilogue_t> invalid_at_run;  ///< epilogues for which cublasLtMatmul returns "invalid value"
  int candidates = 3;
  // Read by tests.
  int heuristic_calls = 0;
  std::uint32_t reduction_schemes = 0;  ///< schemes in the last heuristic call
  std::uint64_t workspace_bytes = 0;    ///< workspace in the last heuristic call
  std::vector<LtRun> runs;
};
LtDouble& lt_double();

}  // namespace maestro::fake_cuda
