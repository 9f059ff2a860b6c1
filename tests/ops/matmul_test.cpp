// SPDX-License-Identifier: Apache-2.0
// Products of the CPU backend beyond operators_test.cpp: panels, odd row counts, epilogues, repacking.
#include "runtime/ops/cpu/products/matmul.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "runtime/ops/cpu/products/bf16_engine.hpp"
#include "runtime/ops/cpu/products/dot_engine.hpp"
#include "tests/ops/owned_tensor.hpp"

namespace maestro::cpu {
namespace {

using testing::exact_normals;
using testing::OwnedTensor;
using testing::Values;
using testing::worst_error;

struct Engine {
  std::string name;
  Isa isa;
  Bf16Products bf16;
  DType act;
};

std::vector<Engine> engines() {
  std::vector<Engine> all;
  for (const Isa isa : supported_isas()) {
    const std::string name(name_of(isa));
    all.push_back({name + "_fp32", isa, Bf16Products::converted, DType::f32});
    all.push_back({name + "_bf16", isa, Bf16Products::converted, DType::bf16});
  }
  if (native_bf16_supported()) all.push_back({"native_bf16", Isa::avx512, Bf16Products::native, DType::bf16});
  return all;
}
void PrintTo(const Engine& engine, std::ostream* out) {
  *out << engine.name;
}

/// Computes (rows, inner) times (inner, columns), with any strides, in f64.
struct Product {
  const Values& a;
  std::size_t a_row, a_step;
  const Values& b;
  std::size_t b_row, b_step;
};
Values multiply(const Product& p, std::size_t rows, std::size_t inner, std::size_t columns) {
  Values c(rows * columns);
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t k = 0; k < inner; ++k) {
      for (std::size_t j = 0; j < columns; ++j) {
        c[i * columns + j] += p.a[i * p.a_row + k * p.a_step] * p.b[k * p.b_row + j * p.b_step];
      }
    }
  }
  return c;
}

class Products : public ::testing::TestWithParam<Engine> {
 protected:
  OwnedTensor act(Shape shape) { return random(GetParam().act, shape); }
  OwnedTensor random(DType dtype, Shape shape) {
    return {dtype, shape, testing::exact_normals(generator_, shape.elements())};
  }
  std::unique_ptr<PackedWeight> pack(const Tensor& w, PackFor use, std::unique_ptr<PackedWeight> reuse = nullptr) {
    return products_.pack(w, GetParam().act, use, std::move(reuse));
  }
  /// Returns a tolerance for f32 sums with some hundred terms, or for a rounding to bf16; see operators_test.cpp.
  double tolerance(const Tensor& result) const { return result.dtype() == DType::bf16 ? 1.0 / 256 : 2e-5; }

  std::mt19937 generator_{11};
  ScratchPool scratch_;
  MatrixProducts products_{GetParam().isa, GetParam().bf16, scratch_};
};

TEST_P(Products, every_number_of_rows_is_computed) {
  constexpr std::int64_t k = 20;
  constexpr std::int64_t n = 33;
  const OwnedTensor w = random(DType::f32, {n, k});
  const OwnedTensor bias = random(DType::f32, {n});
  const auto forward = pack(w, PackFor::forward);
  const auto backward = pack(w, PackFor::backward_input);
  for (const std::int64_t m : {1, 2, 15, 16, 63, 64, 65, 127, 129, 511, 513, 640, 1031, 1100}) {
    SCOPED_TRACE(m);
    const OwnedTensor x = act({m, k});
    const OwnedTensor y(GetParam().act, {m, n});
    products_.linear(x, *forward, bias, y, {});
    Values wanted = multiply({x.values(), k, 1, w.values(), 1, k}, static_cast<std::size_t>(m), k, n);
    for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] += bias.get(static_cast<std::int64_t>(i) % n);
    EXPECT_LT(worst_error(y.values(), wanted), tolerance(y));

    const OwnedTensor dy = act({m, n});
    const OwnedTensor dx = act({m, k});
    products_.linear_backward_input(dy, *backward, dx, false);
    EXPECT_LT(
        worst_error(dx.values(), multiply({dy.values(), n, 1, w.values(), k, 1}, static_cast<std::size_t>(m), n, k)),
        tolerance(dx));

    const OwnedTensor dw(DType::f32, {n, k});
    const OwnedTensor dbias(DType::f32, {n});
    products_.linear_backward_weight(dy, x, dw, dbias);
    EXPECT_LT(
        worst_error(dw.values(), multiply({dy.values(), 1, n, x.values(), k, 1}, n, static_cast<std::size_t>(m), k)),
        tolerance(dw));
    const Values ones(static_cast<std::size_t>(m), 1.0);
    EXPECT_LT(worst_error(dbias.values(), multiply({ones, 0, 1, dy.values(), n, 1}, 1, static_cast<std::size_t>(m), n)),
              tolerance(dbias));
  }
}

TEST_P(Products, rows_alone_have_the_bits_of_products_of_one_row) {
  struct Size {
    std::int64_t n, k;
  };
  for (const auto [n, k] : {Size{1, 1}, {33, 20}, {64, 96}, {71, 65}, {200, 129}, {4100, 35}}) {
    const OwnedTensor w = random(DType::f32, {n, k}), bias = random(DType::f32, {n});
    const auto forward = pack(w, PackFor::forward);
    for (const std::int64_t m : {1, 2, 3, 4, 5, 7, 8, 11, 16, 17, 33}) {
      SCOPED_TRACE(::testing::Message() << m << " rows of " << k << " by " << n);
      const OwnedTensor x = act({m, k}), y(GetParam().act, {m, n}), wide(DType::f32, {m, n});
      products_.linear(x, *forward, bias, y, GeluKind::tanh, true);
      products_.linear(x, *forward, Tensor(), wide, {}, true);
      for (std::int64_t row = 0; row < m; ++row) {
        const Tensor one = x.tensor().row_slice(row, 1);
        const OwnedTensor alone(GetParam().act, {1, n}), alone_wide(DType::f32, {1, n});
        products_.linear(one, *forward, bias, alone, GeluKind::tanh);
        products_.linear(one, *forward, Tensor(), alone_wide, {});
        for (std::int64_t i = 0; i < n; ++i) {
          ASSERT_EQ(y.get(row * n + i), alone.get(i)) << row << ", " << i;
          ASSERT_EQ(wide.get(row * n + i), alone_wide.get(i)) << row << ", " << i;
        }
      }
    }
  }
}

TEST_P(Products, a_weight_takes_no_more_than_the_bytes_of_its_product) {
  const OwnedTensor w = random(DType::f32, {192, 256});
  const std::size_t own = GetParam().act == DType::bf16 ? 192 * 256 * sizeof(bfloat16) : 0;
  for (const PackFor use : {PackFor::forward, PackFor::backward_input}) EXPECT_EQ(pack(w, use)->bytes(), own);
}

TEST_P(Products, rows_of_a_weight_come_out_of_its_packed_form) {
  for (const std::int64_t rows : {1, 70, 4100}) {  // rows for one and for two panels
    for (const std::int64_t columns : {1, 33, 64}) {
      const OwnedTensor w = random(DType::f32, {rows, columns});
      const auto packed = pack(w, PackFor::forward);
      ASSERT_TRUE(packed->rows_readable());
      const OwnedTensor read(DType::f32, {rows, columns});
      for (std::int64_t row = 0; row < rows; ++row) {
        products_.copy_row(*packed, row, read.tensor().data<float>() + row * columns);
      }
      EXPECT_EQ(read.values(), w.values());
    }
  }
}

TEST_P(Products, blocks_of_a_weight_agree_with_the_whole) {
  constexpr std::size_t m = 70;
  for (const auto& [n, k] : {std::pair<std::size_t, std::size_t>{390, 1024}, {45, 1500}}) {
    const auto rows = static_cast<std::int64_t>(n), columns = static_cast<std::int64_t>(k);
    const OwnedTensor w = random(DType::f32, {rows, columns}), x = act({m, columns}), dy = act({m, rows});
    const OwnedTensor y(GetParam().act, {m, rows}), dx(GetParam().act, {m, columns});
    products_.linear(x, *pack(w, PackFor::forward), Tensor(), y, {});
    EXPECT_LT(worst_error(y.values(), multiply({x.values(), k, 1, w.values(), 1, k}, m, k, n)), 2 * tolerance(y));
    products_.linear_backward_input(dy, *pack(w, PackFor::backward_input), dx, false);
    EXPECT_LT(worst_error(dx.values(), multiply({dy.values(), n, 1, w.values(), k, 1}, m, n, k)), 2 * tolerance(dx));
  }
}

TEST_P(Products, no_rows_are_no_work) {
  const OwnedTensor w = random(DType::f32, {5, 4});
  const auto forward = pack(w, PackFor::forward);
  const OwnedTensor x(GetParam().act, {0, 4});
  const OwnedTensor y(GetParam().act, {0, 5});
  products_.linear(x, *forward, Tensor(), y, {});
  const OwnedTensor dw(DType::f32, {5, 4});
  products_.linear_backward_weight(y, x, dw, Tensor());
  EXPECT_EQ(dw.values(), Values(20, 0.0));
}

TEST_P(Products, panels_tile_a_vocabulary_and_agree_with_the_whole) {
  constexpr std::int64_t k = 8;
  constexpr std::int64_t n = 9001;
  const OwnedTensor w = random(DType::f32, {n, k});
  const OwnedTensor x = act({5, k});
  const auto forward = pack(w, PackFor::forward);
  const auto backward = pack(w, PackFor::backward_input);
  const OwnedTensor whole(DType::f32, {5, n});
  products_.linear(x, *forward, Tensor(), whole, {});
  EXPECT_LT(worst_error(whole.values(), multiply({x.values(), k, 1, w.values(), 1, k}, 5, k, n)), 2e-5);

  const OwnedTensor dy = act({5, n});
  const OwnedTensor dx(GetParam().act, {5, k});
  std::int64_t next = 0;
  ASSERT_GT(panels(*forward), 1);
  ASSERT_EQ(panels(*forward), panels(*backward));
  for (int index = 0; index < panels(*forward); ++index) {
    const PanelRange range = panel(*forward, index);
    EXPECT_EQ(range.first, next);
    EXPECT_LE(range.count, widest_panel);
    next += range.count;
    const OwnedTensor part(DType::f32, {5, range.count});
    products_.linear_panel(x, *forward, index, part);
    const OwnedTensor dpart(GetParam().act, {5, range.count});
    for (std::int64_t row = 0; row < 5; ++row) {
      for (std::int64_t j = 0; j < range.count; ++j) {
        ASSERT_EQ(part.get(row * range.count + j), whole.get(row * n + range.first + j));
        dpart.set(row * range.count + j, dy.get(row * n + range.first + j));
      }
    }
    products_.linear_backward_input_panel(dpart, *backward, index, dx, index > 0);
  }
  EXPECT_EQ(next, n);
  const OwnedTensor at_once(GetParam().act, {5, k});
  products_.linear_backward_input(dy, *backward, at_once, false);
  EXPECT_EQ(dx.values(), at_once.values());
  // With three panels, a bf16 gradient is rounded after each.
  EXPECT_LT(worst_error(dx.values(), multiply({dy.values(), n, 1, w.values(), k, 1}, 5, n, k)), 3 * tolerance(dx));
}

TEST_P(Products, every_gelu_is_applied_to_the_biased_product) {
  const OwnedTensor w = random(DType::f32, {19, 12});
  const OwnedTensor bias = random(DType::f32, {19});
  const OwnedTensor x = act({70, 12});
  const OwnedTensor y(GetParam().act, {70, 19});
  const Values products = multiply({x.values(), 12, 1, w.values(), 1, 12}, 70, 12, 19);
  const auto expect = [&](GeluKind kind, double (*gelu)(double)) {
    products_.linear(x, *pack(w, PackFor::forward), bias, y, kind);
    Values wanted = products;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      wanted[i] = gelu(wanted[i] + bias.get(static_cast<std::int64_t>(i) % 19));
    }
    EXPECT_LT(worst_error(y.values(), wanted), tolerance(y)) << static_cast<int>(kind);
  };
  expect(GeluKind::tanh,
         [](double u) { return 0.5 * u * (1 + std::tanh(0.7978845608028654 * (u + 0.044715 * u * u * u))); });
  expect(GeluKind::erf, [](double u) { return 0.5 * u * std::erfc(-u * std::sqrt(0.5)); });
  expect(GeluKind::quick, [](double u) { return u / (1 + std::exp(-1.702 * u)); });
}

TEST_P(Products, a_single_row_is_computed_at_any_depth_with_every_epilogue) {
  for (const auto& [k, n] : {std::pair{1, 1}, {31, 65}, {64, 128}, {129, 200}}) {
    SCOPED_TRACE(::testing::Message() << k << " x " << n);
    const OwnedTensor w = random(DType::f32, {n, k});
    const OwnedTensor bias = random(DType::f32, {n});
    const OwnedTensor x = act({1, k});
    const auto columns = static_cast<std::size_t>(n), depth = static_cast<std::size_t>(k);
    Values wanted = multiply({x.values(), depth, 1, w.values(), 1, depth}, 1, depth, columns);
    for (std::size_t i = 0; i < columns; ++i) wanted[i] += bias.get(static_cast<std::int64_t>(i));
    const OwnedTensor y(DType::f32, {1, n}), narrow(GetParam().act, {1, n});
    const auto forward = pack(w, PackFor::forward);
    products_.linear(x, *forward, bias, y, {});
    products_.linear(x, *forward, bias, narrow, {});
    EXPECT_LT(worst_error(y.values(), wanted), 2e-5);
    EXPECT_LT(worst_error(narrow.values(), wanted), tolerance(narrow));
    products_.linear(x, *forward, Tensor(), y, GeluKind::tanh);
    for (std::size_t i = 0; i < columns; ++i) {
      const double u = wanted[i] - bias.get(static_cast<std::int64_t>(i));
      EXPECT_NEAR(y.get(static_cast<std::int64_t>(i)),
                  0.5 * u * (1 + std::tanh(0.7978845608028654 * (u + 0.044715 * u * u * u))), 2e-5 * (1 + std::abs(u)));
    }
    const OwnedTensor dy = act({1, n}), dx(DType::f32, {1, k}, Values(depth, 1.0));
    products_.linear_backward_input(dy, *pack(w, PackFor::backward_input), dx, true);
    Values back = multiply({dy.values(), columns, 1, w.values(), depth, 1}, 1, columns, depth);
    for (double& value : back) value += 1;
    EXPECT_LT(worst_error(dx.values(), back), 2e-5);
  }
}

TEST_P(Products, an_f32_result_of_bf16_operands_is_not_rounded) {
  const OwnedTensor w = random(DType::f32, {40, 30});
  const OwnedTensor x = act({9, 30});
  const OwnedTensor y(DType::f32, {9, 40});
  products_.linear(x, *pack(w, PackFor::forward), Tensor(), y, {});
  EXPECT_LT(worst_error(y.values(), multiply({x.values(), 30, 1, w.values(), 1, 30}, 9, 30, 40)), 2e-5);
}

TEST_P(Products, weights_are_rounded_to_the_precision_of_the_product) {
  const OwnedTensor w(DType::f32, {1, 1}, {1.0 + 1.0 / 1024});  // its bf16 neighbours are 1 and 1 + 1/128
  const OwnedTensor x(GetParam().act, {1, 1}, {1.0});
  const OwnedTensor dx(DType::f32, {1, 1});
  const OwnedTensor y(DType::f32, {1, 1});
  products_.linear(x, *pack(w, PackFor::forward), Tensor(), y, {});
  products_.linear_backward_input(x, *pack(w, PackFor::backward_input), dx, false);
  const double wanted = GetParam().act == DType::bf16 ? 1.0 : 1.0 + 1.0 / 1024;
  EXPECT_EQ(y.get(0), static_cast<float>(wanted));
  EXPECT_EQ(dx.get(0), static_cast<float>(wanted));
}

TEST_P(Products, repacking_takes_the_memory_over_and_the_new_values) {
  const OwnedTensor w = random(DType::f32, {50, 20});
  auto packed = pack(w, PackFor::forward);
  const PackedWeight* first = packed.get();
  const OwnedTensor changed = random(DType::f32, {50, 20});
  packed = pack(changed, PackFor::forward, std::move(packed));
  EXPECT_EQ(packed.get(), first);
  const OwnedTensor x = act({4, 20});
  const OwnedTensor y(DType::f32, {4, 50});
  products_.linear(x, *packed, Tensor(), y, {});
  EXPECT_LT(worst_error(y.values(), multiply({x.values(), 20, 1, changed.values(), 1, 20}, 4, 20, 50)), 2e-5);

  const OwnedTensor other = random(DType::f32, {51, 20});
  packed = pack(other, PackFor::forward, std::move(packed));
  const OwnedTensor wider(DType::f32, {4, 51});
  products_.linear(x, *packed, Tensor(), wider, {});
  EXPECT_LT(worst_error(wider.values(), multiply({x.values(), 20, 1, other.values(), 1, 20}, 4, 20, 51)), 2e-5);
}

TEST_P(Products, two_threads_at_once_compute_what_one_does) {
  const OwnedTensor w = random(DType::f32, {65, 33});
  const auto packed = pack(w, PackFor::forward);
  const OwnedTensor x = act({200, 33});
  const OwnedTensor alone(GetParam().act, {200, 65});
  products_.linear(x, *packed, Tensor(), alone, {});
  const OwnedTensor results[2] = {{GetParam().act, {200, 65}}, {GetParam().act, {200, 65}}};
  std::vector<std::thread> threads;
  for (const OwnedTensor& y : results) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) products_.linear(x, *packed, Tensor(), y, {});
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const OwnedTensor& y : results) EXPECT_EQ(y.values(), alone.values());
}

INSTANTIATE_TEST_SUITE_P(every_engine, Products, ::testing::ValuesIn(engines()),
                         [](const auto& engine) { return engine.param.name; });

/// The engines of bf16 dot products; a table has one of them.
struct DotProducts {
  ScratchPool scratch;
  cpu::Bf16Engine library{scratch};
  cpu::DotEngine kernels{scratch};
  std::vector<const ProductEngine*> all{&library, &kernels};
};

TEST(DotProducts, sums_of_outer_products_agree_with_double_precision) {
  if (!native_bf16_supported()) GTEST_SKIP() << "this CPU has no bf16 dot products";
  std::mt19937 generator(4);
  const DotProducts engines;
  for (const std::int64_t m : {1, 2, 15, 511, 512, 513, 1100}) {
    for (const auto& [n, k] : {std::pair{1, 1}, {7, 15}, {8, 16}, {9, 17}, {100, 33}, {257, 49}, {520, 100}}) {
      SCOPED_TRACE(std::to_string(m) + " rows, dw " + std::to_string(n) + " x " + std::to_string(k));
      const Values dy_values = exact_normals(generator, m * n), x_values = exact_normals(generator, m * k);
      const OwnedTensor dy(DType::bf16, {m, n}, dy_values), x(DType::bf16, {m, k}, x_values);
      const auto rows = static_cast<std::size_t>(n), columns = static_cast<std::size_t>(k);
      Values wanted = multiply({dy_values, 1, rows, x_values, columns, 1}, rows, static_cast<std::size_t>(m), columns);
      for (double& value : wanted) value += 3;
      for (const ProductEngine* engine : engines.all) {
        const OwnedTensor dw(DType::f32, {n, k});
        dw.fill(3);
        engine->add_outer_products(dy, x, dw);
        EXPECT_LT(worst_error(dw.values(), wanted), 1e-5);
      }
    }
  }
}

/// Compares the engines' products of in (rows, depth) and w, packed for `use`.
void expect_equal_products(const DotProducts& engines, const OwnedTensor& w, PackFor use, const OwnedTensor& in,
                           const Epilogue& epilogue) {
  const std::int64_t columns = use == PackFor::forward ? w.tensor().rows() : w.tensor().columns();
  for (const DType act : {DType::f32, DType::bf16}) {
    std::vector<Values> found;
    for (const ProductEngine* engine : engines.all) {
      const OwnedTensor out(act, {in.tensor().rows(), columns});
      out.fill(2);
      engine->multiply(Matrix::of(in), *engine->pack(w, use, nullptr), use, Matrix::of(out), epilogue);
      found.push_back(out.values());
    }
    EXPECT_LT(worst_error(found[1], found[0]), act == DType::f32 ? 1e-5 : 1e-2) << in.tensor().rows() << " rows";
  }
}

TEST(DotProducts, of_both_engines_agree_for_every_use_and_epilogue) {
  if (!native_bf16_supported()) GTEST_SKIP() << "this CPU has no bf16 dot products";
  std::mt19937 generator(6);
  const DotProducts engines;
  for (const auto& [n, k] : {std::pair{1, 3}, {17, 31}, {48, 64}, {97, 130}}) {
    SCOPED_TRACE(std::to_string(n) + " x " + std::to_string(k));
    const OwnedTensor w(DType::f32, {n, k}, exact_normals(generator, n * k));
    for (const PackFor use : {PackFor::forward, PackFor::backward_input}) {
      const std::int64_t depth = use == PackFor::forward ? k : n, columns = use == PackFor::forward ? n : k;
      const OwnedTensor bias(DType::f32, {columns}, exact_normals(generator, columns));
      for (const std::int64_t rows : {2, 8, 9, 300}) {
        const OwnedTensor in(DType::bf16, {rows, depth}, exact_normals(generator, rows * depth));
        expect_equal_products(engines, w, use, in, {});
        expect_equal_products(engines, w, use, in, {.accumulate = true});
        expect_equal_products(engines, w, use, in, {.bias = bias.tensor().data<float>()});
        expect_equal_products(engines, w, use, in, {.activation = GeluKind::erf});
      }
    }
  }
}

TEST(Bf16Engine, compiles_at_most_eleven_products_per_weight_whatever_the_rows) {
  if (!native_bf16_supported()) GTEST_SKIP() << "this CPU has no bf16 dot products";
  ScratchPool scratch;
  const cpu::Bf16Engine engine(scratch);
  const OwnedTensor w(DType::f32, {16, 8});
  const auto packed = engine.pack(w, PackFor::forward, nullptr);
  const OwnedTensor x(DType::bf16, {1200, 8});
  const OwnedTensor y(DType::bf16, {1200, 16});
  for (std::int64_t m = 1; m <= 1200; ++m) {
    engine.multiply(Matrix::of(x.tensor().row_slice(0, m)), *packed, PackFor::forward,
                    Matrix::of(y.tensor().row_slice(0, m)), {});
  }
  EXPECT_LE(engine.primitives(), 11U);
}

}  // namespace
}  // namespace maestro::cpu
