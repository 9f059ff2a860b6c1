// SPDX-License-Identifier: Apache-2.0
// Products of a linear layer against the CPU's, with the library's test double: fused, and with the library refusing.
// Tolerances, relative to the largest value: f32 sums with up to 150 terms, 1e-5; bf16 results are rounded once, and a
// bias or GELU's input once more, 2^-7.
#include "runtime/ops/cuda/products/lt_products.hpp"

#include "tests/ops/cuda/kernel_test.hpp"
#if defined(MAESTRO_FAKE_CUDA)
#include "tests/support/fake_cuda/host_cublaslt.hpp"
#endif

namespace maestro::cuda {
namespace {

using testing::exact_normals;
using testing::worst_error;

constexpr std::int64_t library_bytes = std::int64_t{32} << 20;

struct Sizes {
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
};
const std::vector<Sizes> all_sizes = {{1, 1, 1}, {5, 7, 3}, {33, 65, 17}, {64, 48, 32}, {40, 16, 150}};

/// Inputs of a layer, and the CPU's results.
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
    table.run(Linear{.x = host_x, .w = packed.get(), .bias = with_bias ? host_bias.tensor() : Tensor{}, .y = y});
    return y.values();
  }
  [[nodiscard]] Values backward_input(bool accumulate) const {
    const OwnedTensor host_w(DType::f32, Shape{n, k}, w);
    const auto packed = table.pack(host_w, act, PackFor::backward_input, nullptr);
    const OwnedTensor host_dy(act, Shape{m, n}, dy);
    const OwnedTensor dx = on_host(act, Shape{m, k}, held);
    table.run(LinearBackwardInput{.dy = host_dy, .w = packed.get(), .dx = dx, .accumulate = accumulate});
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

// A real device's library cannot be made to refuse.
#if defined(MAESTRO_FAKE_CUDA)
constexpr Library libraries[] = {Library::willing, Library::refuses_epilogues, Library::refuses_all,
                                 Library::fails_at_run};
#else
constexpr Library libraries[] = {Library::willing};
#endif

/// Parameterized over dtypes and the library's refusals.
class LtProductsOn : public KernelTest, public ::testing::WithParamInterface<std::tuple<DType, Library>> {
 protected:
  LtProductsOn() {
#if defined(MAESTRO_FAKE_CUDA)
    auto& lt_double = fake_cuda::lt_double();
    lt_double = {};
    const Library library = std::get<1>(GetParam());
    lt_double.has_no_algorithm = library == Library::refuses_all;
    lt_double.fails_at_run = library == Library::fails_at_run;
    if (library == Library::refuses_epilogues) {
      lt_double.refused = {CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
                           CUBLASLT_EPILOGUE_DGELU, CUBLASLT_EPILOGUE_BGRADB};
    }
#endif
  }
  [[nodiscard]] static DType act() {
    return std::get<0>(GetParam());
  }
  [[nodiscard]] static double tolerance(DType result) {
    return result == DType::f32 ? 1e-5 : 0x1p-7;
  }
  [[nodiscard]] LtProducts products(const LtArithmetic& arithmetic = {}) {
    return {at_, {library_.raw(), library_bytes}, arithmetic};
  }
  [[nodiscard]] Tensor device(DType dtype, Shape shape, const Values& values) {
    return upload(OwnedTensor(dtype, shape, values));
  }
  void finish() const {
    check(cudaStreamSynchronize(stream_), "products");
  }

  Tensor library_ = empty(DType::u8, Shape{library_bytes});
};

TEST_P(LtProductsOn, linear_agrees_with_the_processor) {
  LtProducts lt = products();
  for (const Sizes& sizes : all_sizes) {
    const Layer layer(sizes, act());
    const Tensor x = device(act(), Shape{layer.m, layer.k}, layer.x);
    const Tensor w = device(act(), Shape{layer.n, layer.k}, layer.w);
    for (const DType result : {act(), DType::f32}) {
      const Tensor y = empty(result, Shape{layer.m, layer.n});
      for (const DType bias_type : {DType::f32, DType::bf16}) {
        SCOPED_TRACE(y.shape().to_string() + " with a bias of " + std::string(name_of(bias_type)));
        const Tensor bias = device(bias_type, Shape{layer.n}, layer.bias);
        lt.linear(x, w, bias, y);
        finish();
        EXPECT_LT(worst_error(download(y), layer.forward(result, true)), tolerance(result));
      }
      lt.linear(x, w, {}, y);
      finish();
      EXPECT_LT(worst_error(download(y), layer.forward(result, false)), tolerance(result));
    }
  }
}

TEST_P(LtProductsOn, linear_gelu_agrees_with_the_processor) {
  LtProducts lt = products();
  for (const Sizes& sizes : all_sizes) {
    const Layer layer(sizes, act());
    const Tensor x = device(act(), Shape{layer.m, layer.k}, layer.x);
    const Tensor w = device(act(), Shape{layer.n, layer.k}, layer.w);
    const Tensor bias = device(DType::f32, Shape{layer.n}, layer.bias);
    const Tensor pre = empty(act(), Shape{layer.m, layer.n});
    const Tensor y = empty(act(), Shape{layer.m, layer.n});
    for (const bool with_bias : {true, false}) {
      SCOPED_TRACE(y.shape().to_string() + (with_bias ? " with bias" : ""));
      lt.linear_gelu(x, w, with_bias ? bias : Tensor{}, pre, y);
      finish();
      const Values wanted = layer.forward(DType::f32, with_bias);
      double largest = 0;  // gelu keeps its input's rounding error even if its result is small
      for (const double value : wanted) largest = std::max(largest, std::abs(value));
      EXPECT_LT(worst_error(download(pre), wanted), tolerance(act()));
      const OwnedTensor before(DType::f32, Shape{layer.m, layer.n}, wanted);
      layer.table.run(Gelu{.x = before, .y = before});
      EXPECT_LT(worst_error(download(y), before.values(), largest), tolerance(act()));
    }
  }
}

TEST_P(LtProductsOn, linear_backward_input_agrees_with_the_processor) {
  LtProducts lt = products();
  for (const Sizes& sizes : all_sizes) {
    const Layer layer(sizes, act());
    const Tensor dy = device(act(), Shape{layer.m, layer.n}, layer.dy);
    const Tensor w = device(act(), Shape{layer.n, layer.k}, layer.w);
    const Shape shape{layer.m, layer.k};
    for (const bool accumulate : {false, true}) {
      SCOPED_TRACE(shape.to_string() + (accumulate ? " accumulated" : ""));
      const Tensor dx = device(act(), shape, Values(layer.held.begin(), layer.held.begin() + shape.elements()));
      lt.linear_backward_input(dy, w, dx, accumulate);
      finish();
      EXPECT_LT(worst_error(download(dx), layer.backward_input(accumulate)), tolerance(act()));
    }
    const Tensor pre = device(act(), shape, layer.pre);
    const Tensor dpre = empty(act(), shape);
    lt.linear_backward_input_gelu(dy, w, pre, dpre);
    finish();
    const OwnedTensor wanted(DType::f32, shape, layer.backward_input(false));
    layer.table.run(GeluBackward{.dy = wanted, .x = OwnedTensor(DType::f32, shape, layer.pre), .dx = wanted});
    EXPECT_LT(worst_error(download(dpre), wanted.values()), tolerance(act()));
  }
}

TEST_P(LtProductsOn, linear_backward_weight_agrees_with_the_processor) {
  LtProducts lt = products();
  for (const Sizes& sizes : all_sizes) {
    const Layer layer(sizes, act());
    const Tensor dy = device(act(), Shape{layer.m, layer.n}, layer.dy);
    const Tensor x = device(act(), Shape{layer.m, layer.k}, layer.x);
    const Shape shape{layer.n, layer.k};
    for (const bool with_bias : {true, false}) {
      SCOPED_TRACE(shape.to_string() + (with_bias ? " with bias" : ""));
      const OwnedTensor wanted_dw = layer.on_host(DType::f32, shape, layer.held);
      const OwnedTensor wanted_dbias = layer.on_host(DType::f32, Shape{layer.n}, layer.held);
      const Tensor dw = device(DType::f32, shape, wanted_dw.values());
      const Tensor dbias = device(DType::f32, Shape{layer.n}, wanted_dbias.values());
      lt.linear_backward_weight(dy, x, dw, with_bias ? dbias : Tensor{});
      finish();
      layer.table.run(LinearBackwardWeight{.dy = OwnedTensor(act(), Shape{layer.m, layer.n}, layer.dy),
                                           .x = OwnedTensor(act(), Shape{layer.m, layer.k}, layer.x),
                                           .dw = wanted_dw,
                                           .dbias = with_bias ? wanted_dbias.tensor() : Tensor{}});
      EXPECT_LT(worst_error(download(dw), wanted_dw.values()), 1e-5);
      EXPECT_LT(worst_error(download(dbias), wanted_dbias.values()), 1e-5);
    }
  }
}

TEST_P(LtProductsOn, longer_rows_give_what_packed_rows_give_and_what_is_behind_stays) {
  LtProducts lt = products();
  const Layer layer({33, 13, 17}, act());
  constexpr std::int64_t pitch = 16;
  const auto longer = [&](const Values& packed) {
    Values values(static_cast<std::size_t>(layer.m * pitch), 3.0);
    for (std::size_t i = 0; i < packed.size(); ++i) values[i / 13 * pitch + i % 13] = packed[i];
    return values;
  };
  const Tensor x = device(act(), Shape{layer.m, layer.k}, layer.x);
  const Tensor w = device(act(), Shape{layer.n, layer.k}, layer.w);
  const Tensor y = device(act(), Shape{layer.m, pitch}, longer({}));
  lt.linear(x, w, {}, y);
  finish();
  EXPECT_LT(worst_error(download(y), longer(layer.forward(act(), false))), tolerance(act()));

  const Tensor dy = device(act(), Shape{layer.m, pitch}, longer(layer.dy));
  const Tensor dx = empty(act(), Shape{layer.m, layer.k});
  lt.linear_backward_input(dy, w, dx, false);
  const Shape shape{layer.n, layer.k};
  const Tensor packed_dy = device(act(), Shape{layer.m, layer.n}, layer.dy);
  const Tensor dw = device(DType::f32, shape, Values(static_cast<std::size_t>(shape.elements())));
  const Tensor wanted = device(DType::f32, shape, Values(static_cast<std::size_t>(shape.elements())));
  lt.linear_backward_weight(dy, x, dw, {});
  lt.linear_backward_weight(packed_dy, x, wanted, {});
  finish();
  EXPECT_LT(worst_error(download(dx), layer.backward_input(false)), tolerance(act()));
  EXPECT_LT(worst_error(download(dw), download(wanted)), 1e-5);
}

TEST_P(LtProductsOn, no_rows_are_allowed_LP_3) {  // LP-3
  LtProducts lt = products();
  const Tensor none = empty(act(), Shape{0, 8});
  const Tensor w = device(act(), Shape{8, 8}, Values(64, 1));
  const Tensor dw = device(DType::f32, Shape{8, 8}, Values(64, 2));
  const Tensor dbias = device(DType::f32, Shape{8}, Values(8, 3));
  lt.linear(none, w, {}, none);
  lt.linear_gelu(none, w, {}, none, none);
  lt.linear_backward_input(none, w, none, false);
  lt.linear_backward_weight(none, none, dw, dbias);
  finish();
  EXPECT_EQ(download(dw), Values(64, 2));
  EXPECT_EQ(download(dbias), Values(8, 3));
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
                         ::testing::Combine(::testing::Values(DType::f32, DType::bf16), ::testing::ValuesIn(libraries)),
                         [](const auto& of) {
                           return std::string(name_of(std::get<0>(of.param))) + "_" +
                                  name_of_library(std::get<1>(of.param));
                         });

}  // namespace
}  // namespace maestro::cuda
