// Products of a linear layer against the processor's, with the library's double: fused, and where it refuses.
// Tolerances, of the largest value: f32 sums of up to 150 terms, 1e-5; bf16 results are rounded once, and a bias or the
// input of GELU once more, 2^-7.
#include "runtime/ops/cuda/lt_products.hpp"

#include <gtest/gtest.h>

#include "runtime/ops/cpu/cpu_operator_table.hpp"
#include "tests/ops/cuda/device_tensor.hpp"
#include "tests/ops/owned_tensor.hpp"
#include "tests/support/cuda_double/host_cublaslt.hpp"

namespace maestro::cuda {
namespace {

using cuda_double::lt_double;
using testing::DeviceTensor;
using testing::exact_normals;
using testing::OwnedTensor;
using testing::Values;
using testing::worst_error;

constexpr std::int64_t library_bytes = std::int64_t{1} << 20;

struct Sizes {
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
};
const std::vector<Sizes> all_sizes = {{1, 1, 1}, {5, 7, 3}, {33, 65, 17}, {64, 48, 32}, {40, 16, 150}};

/// Inputs of a layer, and what the processor makes of them.
struct Layer {
  Layer(const Sizes& sizes, DType type) : m(sizes.m), n(sizes.n), k(sizes.k), act(type) {
    std::mt19937 generator(static_cast<unsigned>(m * 10000 + n * 100 + k));
    x = exact_normals(generator, m * k);
    w = exact_normals(generator, n * k);
    bias = exact_normals(generator, n);
    dy = exact_normals(generator, m * n);
    pre = exact_normals(generator, m * k);
    held = exact_normals(generator, std::max({m * k, n * k, n}));
  }
  [[nodiscard]] OwnedTensor on_host(DType dtype, Shape shape, const Values& values) const {
    return {dtype, shape, Values(values.begin(), values.begin() + shape.elements())};
  }
  [[nodiscard]] Values forward(DType result, bool with_bias) const {
    const OwnedTensor host_w(DType::f32, Shape{n, k}, w);
    const auto packed = table.pack(host_w, act, PackFor::forward, nullptr);
    const OwnedTensor host_x(act, Shape{m, k}, x);
    const OwnedTensor host_bias(DType::f32, Shape{n}, bias);
    const OwnedTensor y(result, Shape{m, n});
    table.linear(host_x, *packed, with_bias ? host_bias.tensor() : Tensor{}, y, Activation::none);
    return y.values();
  }
  [[nodiscard]] Values backward_input(bool accumulate) const {
    const OwnedTensor host_w(DType::f32, Shape{n, k}, w);
    const auto packed = table.pack(host_w, act, PackFor::backward_input, nullptr);
    const OwnedTensor host_dy(act, Shape{m, n}, dy);
    const OwnedTensor dx = on_host(act, Shape{m, k}, held);
    table.linear_backward_input(host_dy, *packed, dx, accumulate);
    return dx.values();
  }
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
  DType act;
  Values x;
  Values w;
  Values bias;
  Values dy;
  Values pre;
  Values held;
  cpu::CpuOperatorTable table;
};

enum class Library : std::uint8_t { willing, refuses_epilogues, refuses_all, fails_at_run };

/// Over dtypes and what the library is willing to do.
class LtProductsOn : public ::testing::TestWithParam<std::tuple<DType, Library>> {
 protected:
  LtProductsOn() {
    lt_double() = {};
    const Library library = std::get<1>(GetParam());
    lt_double().has_no_algorithm = library == Library::refuses_all;
    lt_double().fails_at_run = library == Library::fails_at_run;
    if (library == Library::refuses_epilogues) {
      lt_double().refused = {CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
                             CUBLASLT_EPILOGUE_DGELU, CUBLASLT_EPILOGUE_BGRADB};
    }
  }
  [[nodiscard]] static DType act() { return std::get<0>(GetParam()); }
  [[nodiscard]] static double tolerance(DType result) { return result == DType::f32 ? 1e-5 : 0x1p-7; }
  [[nodiscard]] LtProducts products(const LtArithmetic& arithmetic = {}) {
    return {bench_.launch(), library(), arithmetic};
  }

  [[nodiscard]] std::span<std::byte> library() const { return {workspace_.tensor().raw(), library_bytes}; }

  testing::DeviceBench bench_;
  DeviceTensor workspace_{DType::u8, Shape{library_bytes}};
};

TEST_P(LtProductsOn, linear_agrees_with_the_processor) {
  LtProducts lt = products();
  for (const Sizes& sizes : all_sizes) {
    const Layer layer(sizes, act());
    const DeviceTensor x(act(), Shape{layer.m, layer.k}, layer.x);
    const DeviceTensor w(act(), Shape{layer.n, layer.k}, layer.w);
    for (const DType result : {act(), DType::f32}) {
      const DeviceTensor y(result, Shape{layer.m, layer.n});
      for (const DType bias_type : {DType::f32, DType::bf16}) {
        SCOPED_TRACE(y.tensor().shape().to_string() + " with a bias of " + std::string(name_of(bias_type)));
        const DeviceTensor bias(bias_type, Shape{layer.n}, layer.bias);
        lt.linear(x, w, bias, y);
        bench_.finish();
        EXPECT_LT(worst_error(y.values(), layer.forward(result, true)), tolerance(result));
      }
      lt.linear(x, w, {}, y);
      bench_.finish();
      EXPECT_LT(worst_error(y.values(), layer.forward(result, false)), tolerance(result));
    }
  }
}

TEST_P(LtProductsOn, linear_gelu_agrees_with_the_processor) {
  LtProducts lt = products();
  for (const Sizes& sizes : all_sizes) {
    const Layer layer(sizes, act());
    const DeviceTensor x(act(), Shape{layer.m, layer.k}, layer.x);
    const DeviceTensor w(act(), Shape{layer.n, layer.k}, layer.w);
    const DeviceTensor bias(DType::f32, Shape{layer.n}, layer.bias);
    const DeviceTensor pre(act(), Shape{layer.m, layer.n});
    const DeviceTensor y(act(), Shape{layer.m, layer.n});
    for (const bool with_bias : {true, false}) {
      SCOPED_TRACE(y.tensor().shape().to_string() + (with_bias ? " with bias" : ""));
      lt.linear_gelu(x, w, with_bias ? bias.tensor() : Tensor{}, pre, y);
      bench_.finish();
      const Values wanted = layer.forward(DType::f32, with_bias);
      double largest = 0;  // gelu passes on what its input was rounded by, also where it is itself small
      for (const double value : wanted) largest = std::max(largest, std::abs(value));
      EXPECT_LT(worst_error(pre.values(), wanted), tolerance(act()));
      const OwnedTensor before(DType::f32, Shape{layer.m, layer.n}, wanted);
      layer.table.gelu(before, before);
      EXPECT_LT(worst_error(y.values(), before.values(), largest), tolerance(act()));
    }
  }
}

TEST_P(LtProductsOn, linear_backward_input_agrees_with_the_processor) {
  LtProducts lt = products();
  for (const Sizes& sizes : all_sizes) {
    const Layer layer(sizes, act());
    const DeviceTensor dy(act(), Shape{layer.m, layer.n}, layer.dy);
    const DeviceTensor w(act(), Shape{layer.n, layer.k}, layer.w);
    const Shape shape{layer.m, layer.k};
    for (const bool accumulate : {false, true}) {
      SCOPED_TRACE(shape.to_string() + (accumulate ? " accumulated" : ""));
      const DeviceTensor dx(act(), shape, Values(layer.held.begin(), layer.held.begin() + shape.elements()));
      lt.linear_backward_input(dy, w, dx, accumulate);
      bench_.finish();
      EXPECT_LT(worst_error(dx.values(), layer.backward_input(accumulate)), tolerance(act()));
    }
    const DeviceTensor pre(act(), shape, layer.pre);
    const DeviceTensor dpre(act(), shape);
    lt.linear_backward_input_gelu(dy, w, pre, dpre);
    bench_.finish();
    const OwnedTensor wanted(DType::f32, shape, layer.backward_input(false));
    layer.table.gelu_backward(wanted, OwnedTensor(DType::f32, shape, layer.pre), wanted);
    EXPECT_LT(worst_error(dpre.values(), wanted.values()), tolerance(act()));
  }
}

TEST_P(LtProductsOn, linear_backward_weight_agrees_with_the_processor) {
  LtProducts lt = products();
  for (const Sizes& sizes : all_sizes) {
    const Layer layer(sizes, act());
    const DeviceTensor dy(act(), Shape{layer.m, layer.n}, layer.dy);
    const DeviceTensor x(act(), Shape{layer.m, layer.k}, layer.x);
    const Shape shape{layer.n, layer.k};
    for (const bool with_bias : {true, false}) {
      SCOPED_TRACE(shape.to_string() + (with_bias ? " with bias" : ""));
      const OwnedTensor wanted_dw = layer.on_host(DType::f32, shape, layer.held);
      const OwnedTensor wanted_dbias = layer.on_host(DType::f32, Shape{layer.n}, layer.held);
      const DeviceTensor dw(DType::f32, shape, wanted_dw.values());
      const DeviceTensor dbias(DType::f32, Shape{layer.n}, wanted_dbias.values());
      lt.linear_backward_weight(dy, x, dw, with_bias ? dbias.tensor() : Tensor{});
      bench_.finish();
      layer.table.linear_backward_weight(OwnedTensor(act(), Shape{layer.m, layer.n}, layer.dy),
                                         OwnedTensor(act(), Shape{layer.m, layer.k}, layer.x), wanted_dw,
                                         with_bias ? wanted_dbias.tensor() : Tensor{});
      EXPECT_LT(worst_error(dw.values(), wanted_dw.values()), 1e-5);
      EXPECT_LT(worst_error(dbias.values(), wanted_dbias.values()), 1e-5);
    }
  }
}

TEST_P(LtProductsOn, no_rows_are_allowed_LP_3) {
  LtProducts lt = products();
  const DeviceTensor none(act(), Shape{0, 8});
  const DeviceTensor w(act(), Shape{8, 8}, Values(64, 1));
  const DeviceTensor dw(DType::f32, Shape{8, 8}, Values(64, 2));
  const DeviceTensor dbias(DType::f32, Shape{8}, Values(8, 3));
  lt.linear(none, w, {}, none);
  lt.linear_gelu(none, w, {}, none, none);
  lt.linear_backward_input(none, w, none, false);
  lt.linear_backward_weight(none, none, dw, dbias);
  bench_.finish();
  EXPECT_EQ(dw.values(), Values(64, 2));
  EXPECT_EQ(dbias.values(), Values(8, 3));
}

std::string name_of_library(Library library) {
  switch (library) {
    case Library::willing:
      return "willing";
    case Library::refuses_epilogues:
      return "without_epilogues";
    case Library::refuses_all:
      return "without_algorithms";
    case Library::fails_at_run:
      return "failing_at_run";
  }
  return "";
}
INSTANTIATE_TEST_SUITE_P(Libraries, LtProductsOn,
                         ::testing::Combine(::testing::Values(DType::f32, DType::bf16),
                                            ::testing::Values(Library::willing, Library::refuses_epilogues,
                                                              Library::refuses_all, Library::fails_at_run)),
                         [](const auto& of) {
                           return std::string(name_of(std::get<0>(of.param))) + "_" +
                                  name_of_library(std::get<1>(of.param));
                         });

/// What is asked of the library, in bf16 with everything allowed.
class LtCalls : public ::testing::Test {
 protected:
  LtCalls() { lt_double() = {}; }
  [[nodiscard]] LtProducts products(const LtArithmetic& arithmetic = {}) {
    return {bench_.launch(), library(), arithmetic};
  }

  [[nodiscard]] std::span<std::byte> library() const { return {workspace_.tensor().raw(), library_bytes}; }

  testing::DeviceBench bench_;
  DeviceTensor workspace_{DType::u8, Shape{library_bytes}};
  DeviceTensor x_{DType::bf16, Shape{24, 16}, Values(384, 0.5)};
  DeviceTensor w_{DType::bf16, Shape{8, 16}, Values(128, 0.25)};
  DeviceTensor bias_{DType::bf16, Shape{8}, Values(8, 1)};
  DeviceTensor y_{DType::bf16, Shape{24, 8}};
  DeviceTensor pre_{DType::bf16, Shape{24, 8}};
};

TEST_F(LtCalls, a_product_is_planned_once_LE_1) {
  LtProducts lt = products();
  for (int i = 0; i < 3; ++i) lt.linear(x_, w_, bias_, y_);
  EXPECT_EQ(lt_double().heuristic_calls, 1);
  EXPECT_EQ(lt_double().runs.size(), 3U);
  lt.linear(x_, w_, {}, y_);
  lt.linear(x_.tensor().row_slice(0, 23), w_, {}, y_.tensor().row_slice(0, 23));
  EXPECT_EQ(lt_double().heuristic_calls, 3);
  EXPECT_EQ(lt.engine().plans(), 3U);
}

TEST_F(LtCalls, memory_of_less_alignment_is_another_plan) {
  LtProducts lt = products();
  const Tensor odd_x(x_.tensor().raw() + 2, DType::bf16, Shape{23, 16});
  const Tensor y = y_.tensor().row_slice(0, 23);
  lt.linear(odd_x, w_, {}, y);
  lt.linear(x_.tensor().row_slice(0, 23), w_, {}, y);
  EXPECT_EQ(lt_double().heuristic_calls, 2);
}

TEST_F(LtCalls, epilogues_are_fused_and_nothing_reduces_in_the_output_LE_2) {
  LtProducts lt = products({.tf32 = true, .multiprocessors = 66});
  lt.linear_gelu(x_, w_, bias_, pre_, y_);
  ASSERT_EQ(lt_double().runs.size(), 1U);
  EXPECT_EQ(lt_double().runs[0].plan.epilogue, ProductEpilogue::gelu_bias);
  EXPECT_EQ(lt_double().runs[0].compute, CUBLAS_COMPUTE_32F);  // TF32 is for f32 operands
  EXPECT_EQ(lt_double().runs[0].multiprocessors, 66);
  EXPECT_EQ(lt_double().reduction_schemes, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  EXPECT_EQ(lt_double().workspace_bytes, std::uint64_t{library_bytes});
}

TEST_F(LtCalls, tf32_only_when_asked) {
  const DeviceTensor x(DType::f32, Shape{8, 8}, Values(64, 1));
  const DeviceTensor y(DType::f32, Shape{8, 8});
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
  const DeviceTensor dy(DType::bf16, Shape{24, 8}, Values(192, 1));
  const DeviceTensor dw(DType::f32, Shape{8, 16}, Values(128, 2));
  const DeviceTensor dbias(DType::f32, Shape{8}, Values(8, 3));
  lt.linear_backward_weight(dy, x_, dw, dbias);
  bench_.finish();
  EXPECT_EQ(dw.values(), Values(128, 2 + 24 * 0.5));
  EXPECT_EQ(dbias.values(), Values(8, 3 + 24));
  std::set<int> tried;
  for (const auto& run : lt_double().runs) tried.insert(run.candidate);
  EXPECT_EQ(tried, (std::set<int>{0, 1, 2}));
  const std::size_t runs = lt_double().runs.size();
  lt.linear_backward_weight(dy, x_, dw, dbias);
  EXPECT_EQ(lt_double().runs.size(), runs + 1);
  EXPECT_EQ(lt.engine().tuned(), 1U);
}

TEST_F(LtCalls, tuning_weighs_a_fused_gelu_against_a_plain_product) {
  LtProducts lt = products();
  lt.tune(true);
  lt.linear_gelu(x_, w_, bias_, pre_, y_);
  bool plain = false;
  for (const auto& run : lt_double().runs) plain = plain || run.plan.epilogue == ProductEpilogue::bias;
  EXPECT_TRUE(plain);
  bench_.finish();
  EXPECT_EQ(pre_.values(), Values(192, 16 * 0.125 + 1));
}

TEST_F(LtCalls, nothing_is_timed_while_a_graph_is_captured) {
  LtProducts lt = products();
  lt.tune(true);
  cudaStream_t stream = bench_.launch().stream;
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
  LtEngine engine(bench_.launch().stream, library(), {});
  std::string said;
  try {
    static_cast<void>(engine.run(wrong, {x_.tensor().raw(), w_.tensor().raw(), y_.tensor().raw()}));
  } catch (const DeviceError& error) {
    said = error.what();
  }
  EXPECT_EQ(said,
            "cublasLtMatmulAlgoGetHeuristic: CUBLAS_STATUS_INVALID_VALUE, a status of the double: "
            "y (2, 3) bf16 = x (2, 4) fp32 w (3, 4) fp32^T");
}

}  // namespace
}  // namespace maestro::cuda
