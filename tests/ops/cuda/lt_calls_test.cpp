// SPDX-License-Identifier: Apache-2.0
// The calls that products of a linear layer make to cuBLASLt, and their number; only over the library's fake.
#include <set>

#include "runtime/ops/cuda/products/lt_products.hpp"
#include "tests/ops/cuda/kernel_test.hpp"
#include "tests/support/fake_cuda/host_cublaslt.hpp"

namespace maestro::cuda {
namespace {

using fake_cuda::lt_double;

constexpr std::int64_t call_workspace_bytes = std::int64_t{1} << 20;

/// Calls to the library, in bf16 with everything allowed.
class LtCalls : public KernelTest {
 protected:
  LtCalls() { lt_double() = {}; }
  [[nodiscard]] LtProducts products(const LtArithmetic& arithmetic = {}) {
    return {at_, {library_.raw(), call_workspace_bytes}, arithmetic};
  }
  [[nodiscard]] Tensor device(DType dtype, Shape shape, const Values& values) {
    return upload(OwnedTensor(dtype, shape, values));
  }
  void finish() const { check(cudaStreamSynchronize(stream_), "products"); }

  Tensor x_ = device(DType::bf16, Shape{24, 16}, Values(384, 0.5));
  Tensor w_ = device(DType::bf16, Shape{8, 16}, Values(128, 0.25));
  Tensor bias_ = device(DType::bf16, Shape{8}, Values(8, 1));
  Tensor y_ = empty(DType::bf16, Shape{24, 8});
  Tensor pre_ = empty(DType::bf16, Shape{24, 8});
  Tensor library_ = empty(DType::u8, Shape{call_workspace_bytes});
};

TEST_F(LtCalls, a_product_is_planned_once_LE_1) {  // LE-1
  LtProducts lt = products();
  for (int i = 0; i < 3; ++i) lt.linear(x_, w_, bias_, y_);
  EXPECT_EQ(lt_double().heuristic_calls, 1);
  EXPECT_EQ(lt_double().runs.size(), 3U);
  lt.linear(x_, w_, {}, y_);
  lt.linear(x_.row_slice(0, 23), w_, {}, y_.row_slice(0, 23));
  EXPECT_EQ(lt_double().heuristic_calls, 3);
  EXPECT_EQ(lt.engine().plans(), 3U);
}

TEST_F(LtCalls, memory_of_less_alignment_is_another_plan) {
  LtProducts lt = products();
  const Tensor odd_x(x_.raw() + 2, DType::bf16, Shape{23, 16});
  const Tensor y = y_.row_slice(0, 23);
  lt.linear(odd_x, w_, {}, y);
  lt.linear(x_.row_slice(0, 23), w_, {}, y);
  EXPECT_EQ(lt_double().heuristic_calls, 2);
}

TEST_F(LtCalls, epilogues_are_fused_and_nothing_reduces_in_the_output_LE_2) {  // LE-2
  LtProducts lt = products({.tf32 = true, .multiprocessors = 66});
  lt.linear_gelu(x_, w_, bias_, pre_, y_);
  ASSERT_EQ(lt_double().runs.size(), 1U);
  EXPECT_EQ(lt_double().runs[0].plan.epilogue, ProductEpilogue::gelu_bias);
  EXPECT_EQ(lt_double().runs[0].compute, CUBLAS_COMPUTE_32F);  // TF32 applies to f32 operands only
  EXPECT_EQ(lt_double().runs[0].multiprocessors, 66);
  EXPECT_EQ(lt_double().reduction_schemes, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  EXPECT_EQ(lt_double().workspace_bytes, std::uint64_t{call_workspace_bytes});
}

TEST_F(LtCalls, tf32_only_when_asked) {
  const Tensor x = device(DType::f32, Shape{8, 8}, Values(64, 1));
  const Tensor y = empty(DType::f32, Shape{8, 8});
  LtProducts exact = products();
  exact.linear(x, x, {}, y);
  LtProducts fast = products({.tf32 = true});
  fast.linear(x, x, {}, y);
  EXPECT_EQ(lt_double().runs[0].compute, CUBLAS_COMPUTE_32F);
  EXPECT_EQ(lt_double().runs[1].compute, CUBLAS_COMPUTE_32F_FAST_TF32);
}

TEST_F(LtCalls, tuning_tries_every_candidate_and_leaves_a_sum_as_one_call_would) {
  LtProducts lt = products();
  lt.tune(true);
  const Tensor dy = device(DType::bf16, Shape{24, 8}, Values(192, 1));
  const Tensor dw = device(DType::f32, Shape{8, 16}, Values(128, 2));
  const Tensor dbias = device(DType::f32, Shape{8}, Values(8, 3));
  lt.linear_backward_weight(dy, x_, dw, dbias);
  finish();
  EXPECT_EQ(download(dw), Values(128, 2 + 24 * 0.5));
  EXPECT_EQ(download(dbias), Values(8, 3 + 24));
  std::set<int> tried;
  for (const auto& run : lt_double().runs) tried.insert(run.candidate);
  EXPECT_EQ(tried, (std::set<int>{0, 1, 2}));
  const std::size_t runs = lt_double().runs.size();
  lt.linear_backward_weight(dy, x_, dw, dbias);
  EXPECT_EQ(lt_double().runs.size(), runs + 1);
  EXPECT_EQ(lt.engine().tuned(), 2U);
}

TEST_F(LtCalls, tuning_weighs_a_fused_gelu_against_a_plain_product) {
  LtProducts lt = products();
  lt.tune(true);
  lt.linear_gelu(x_, w_, bias_, pre_, y_);
  bool plain = false;
  for (const auto& run : lt_double().runs) plain = plain || run.plan.epilogue == ProductEpilogue::bias;
  EXPECT_TRUE(plain);
  finish();
  EXPECT_EQ(download(pre_), Values(192, 16 * 0.125 + 1));
}

TEST_F(LtCalls, a_product_whose_bias_is_refused_is_still_the_librarys) {
  LtProducts lt = products();
  lt_double().refused = {CUBLASLT_EPILOGUE_BIAS};
  lt.linear(x_, w_, bias_, y_);
  finish();
  ASSERT_EQ(lt_double().runs.size(), 1U);
  EXPECT_EQ(lt_double().runs[0].plan.epilogue, ProductEpilogue::none);
  EXPECT_EQ(download(y_), Values(192, 16 * 0.125 + 1));
}

TEST_F(LtCalls, an_epilogue_that_is_invalid_only_when_it_runs_is_done_apart) {
  LtProducts lt = products();
  lt_double().invalid_at_run = {CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_BIAS};
  for (int i = 0; i < 2; ++i) lt.linear_gelu(x_, w_, bias_, pre_, y_);
  finish();
  ASSERT_EQ(lt_double().runs.size(), 2U);
  EXPECT_EQ(lt_double().runs[0].plan.epilogue, ProductEpilogue::none);
  EXPECT_EQ(download(pre_), Values(192, 16 * 0.125 + 1));
}

TEST_F(LtCalls, a_product_without_an_algorithm_is_said_once) {
  LtProducts lt = products();
  std::vector<std::string> said;
  lt.report_slow([&said](const std::string& line) { said.push_back(line); });
  lt.linear(x_, w_, bias_, y_);
  EXPECT_TRUE(said.empty());
  lt_double().has_no_algorithm = true;
  lt.linear(x_, w_, {}, y_);
  lt.linear(x_.row_slice(0, 23), w_, {}, y_.row_slice(0, 23));
  finish();
  EXPECT_EQ(said, std::vector<std::string>{"cuBLASLt has no algorithm for y (24, 8) bf16 = x (24, 16) bf16 "
                                           "w (8, 16) bf16^T; own kernels do this and others like it, slowly"});
}

TEST_F(LtCalls, refused_products_are_named) {
  LtProducts lt = products();
  lt_double().refused = {CUBLASLT_EPILOGUE_GELU_AUX_BIAS};
  lt.linear_gelu(x_, w_, bias_, pre_, y_);
  EXPECT_EQ(lt.engine().refused(),
            std::vector<std::string>{"y (24, 8) bf16 = x (24, 16) bf16 w (8, 16) bf16^T + bias, gelu"});
}

TEST_F(LtCalls, nothing_is_timed_while_a_graph_is_captured) {
  LtProducts lt = products();
  lt.tune(true);
  cudaStream_t stream = stream_;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  lt.linear(x_, w_, bias_, y_);
  lt.linear_gelu(x_, w_, bias_, pre_, y_);
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  check(cudaGraphDestroy(graph), "cudaGraphDestroy");
  EXPECT_EQ(lt.engine().tuned(), 0U);
  EXPECT_EQ(lt_double().runs.size(), 2U);
}

TEST_F(LtCalls, a_refused_call_names_the_product) {
  const ProductRequest wrong{ProductKind::forward, 2, 3, 4, DType::f32, DType::bf16, ProductEpilogue::none, false};
  LtEngine engine(stream_, {library_.raw(), call_workspace_bytes}, {});
  std::string said;
  try {
    static_cast<void>(engine.run(wrong, {x_.raw(), w_.raw(), y_.raw()}));
  } catch (const DeviceError& error) {
    said = error.what();
  }
  EXPECT_EQ(said,
            "cublasLtMatmulAlgoGetHeuristic: CUBLAS_STATUS_INVALID_VALUE, a status of the fake: "
            "y (2, 3) bf16 = x (2, 4) fp32 w (3, 4) fp32^T");
}

}  // namespace
}  // namespace maestro::cuda
