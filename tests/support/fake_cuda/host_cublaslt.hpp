// SPDX-License-Identifier: Apache-2.0
// Interface of tests to the fake of cuBLASLt (host_cublaslt.cpp), which computes each product on the stream as
// described and refuses every call that the library's headers refuse:
//   HL-1  operands have matching dtypes and shapes, workspace and pointers the alignment promised at the request of the
//         algorithm; the input of gelu has rows of a multiple of 8 elements;
//   HL-2  a bias, column sums and the input of gelu have the dtype of the result, and a vector the length that the
//         epilogue requires.
//   HL-3  the library's calls may come from several host threads; tests set and read LtDouble between calls.
#pragma once

#include <cublasLt.h>

#include <set>
#include <vector>

#include "runtime/ops/cuda/products/lt_plan.hpp"

namespace maestro::fake_cuda {

struct LtRun {
  cuda::ProductPlan plan;
  int candidate = 0;  ///< place of its algorithm in the heuristic's order
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  int multiprocessors = 0;
};

struct LtDouble {
  // Set by tests.
  bool has_no_algorithm = false;
  std::set<cublasLtEpilogue_t> refused;         ///< epilogues that no algorithm has
  bool fails_at_run = false;                    ///< cublasLtMatmul answers "not supported"
  std::set<cublasLtEpilogue_t> invalid_at_run;  ///< epilogues that cublasLtMatmul calls an invalid value
  int candidates = 3;
  // Read by tests.
  int heuristic_calls = 0;
  std::uint32_t reduction_schemes = 0;  ///< of the last heuristic call
  std::uint64_t workspace_bytes = 0;    ///< of the last heuristic call
  std::vector<LtRun> runs;
};
LtDouble& lt_double();

}  // namespace maestro::fake_cuda
