// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/pointwise/author_kernels.hpp"

#include "runtime/ops/cpu/pointwise/row_sums.hpp"
#include "runtime/ops/cpu/storage.hpp"

namespace maestro::cpu::MAESTRO_ISA_NAMESPACE {
namespace {

/// Sets to[i] = formula(from[i]).
template <class Formula>
MAESTRO_INLINE void map(In from, Out to, std::int64_t count, Formula formula) {
  typed(from, [&](const auto* x) {
    typed(to, [&](auto* y) {
      for_vectors(count, [=](std::int64_t i, auto part) { part.store(y + i, formula(part.load(x + i))); });
    });
  });
}

/// Sets to[i] = formula(a[i], b[i]).
template <class Formula>
MAESTRO_INLINE void map(In a, In b, Out to, std::int64_t count, Formula formula) {
  typed(a, [&](const auto* left) {
    typed(b, [&](const auto* right) {
      typed(to, [&](auto* y) {
        for_vectors(count, [=](std::int64_t i, auto part) {
          part.store(y + i, formula(part.load(left + i), part.load(right + i)));
        });
      });
    });
  });
}

template <class T>
MAESTRO_INLINE float single(const T* from) {
  return load_part(from, 1)[0];
}

void scale(In x, float factor, Out y, std::int64_t count) {
  map(x, y, count, [=](Vec v) { return v * factor; });
}

void multiply(In a, In b, Out out, std::int64_t count) {
  map(a, b, out, count, [](Vec left, Vec right) { return left * right; });
}

void multiply_rows(In a, In b, Out out, std::int64_t rows, std::int64_t columns) {
  typed(b, [&](const auto* factors) {
    for (std::int64_t row = 0; row < rows; ++row) {
      scale(at(a, row * columns), single(factors + row), at(out, row * columns), columns);
    }
  });
}

void multiply_columns(In a, In b, Out out, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t row = 0; row < rows; ++row) multiply(at(a, row * columns), b, at(out, row * columns), columns);
}

void sigmoid_of(In x, Out y, std::int64_t count) {
  map(x, y, count, [](Vec v) { return sigmoid(v); });
}
void sigmoid_backward(In dy, In y, Out dx, std::int64_t count) {
  map(dy, y, dx, count, [](Vec d, Vec v) { return d * v * (1.0F - v); });
}
void tanh(In x, Out y, std::int64_t count) {
  map(x, y, count, [](Vec v) { return element::tanh_of(v); });
}
void tanh_backward(In dy, In y, Out dx, std::int64_t count) {
  map(dy, y, dx, count, [](Vec d, Vec v) { return d * (1.0F - v * v); });
}

template <class T>
MAESTRO_INLINE float largest(const T* x, std::int64_t columns) {
  float found = single(x);
  std::int64_t i = 0;
  if (columns >= vector_width) {
    Vec most = load(x);
    for (i = vector_width; i + vector_width <= columns; i += vector_width) most = maximum(most, load(x + i));
    found = reduce_max(most);
  }
  for (; i < columns; ++i) found = element::larger(found, single(x + i));
  return found;
}

void softmax(In x, float* y, std::int64_t rows, std::int64_t columns, bool log) {
  typed(x, [&](const auto* values) {
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto* from = values + row * columns;
      float* to = y + row * columns;
      const float most = largest(from, columns);
      const float sum =
          sum_row(columns, [=](std::int64_t i, auto part) { return part.masked(exp(part.load(from + i) - most)); });
      const float shift = most + log_positive(broadcast(sum))[0];
      const float factor = 1.0F / sum;
      for_vectors(columns, [=](std::int64_t i, auto part) {
        const Vec v = part.load(from + i);
        part.store(to + i, log ? v - shift : exp(v - most) * factor);
      });
    }
  });
}

template <bool Log>
void softmax_gradient(In dy, In y, Out dx, std::int64_t rows, std::int64_t columns) {
  const auto* gradients = static_cast<const float*>(dy.data);
  const auto* results = static_cast<const float*>(y.data);
  typed(dx, [&](auto* out) {
    for (std::int64_t row = 0; row < rows; ++row) {
      const float* d = gradients + row * columns;
      const float* v = results + row * columns;
      auto* to = out + row * columns;
      const float sum = sum_row(columns, [=](std::int64_t i, auto part) {
        return Log ? part.load(d + i) : part.load(d + i) * part.load(v + i);
      });
      for_vectors(columns, [=](std::int64_t i, auto part) {
        const Vec gradient = part.load(d + i);
        const Vec result = part.load(v + i);
        part.store(to + i, Log ? gradient - exp(result) * sum : result * (gradient - sum));
      });
    }
  });
}

template <class A, class B>
MAESTRO_INLINE float dot(const A* a, const B* b, std::int64_t columns) {
  return sum_row(columns, [=](std::int64_t i, auto part) { return part.load(a + i) * part.load(b + i); });
}

/// Calls body(row, row of a, row of b).
template <class Body>
MAESTRO_INLINE void for_row_pairs(In a, In b, std::int64_t rows, std::int64_t columns, Body body) {
  typed(a, [&](const auto* left) {
    typed(b, [&](const auto* right) {
      for (std::int64_t row = 0; row < rows; ++row) body(row, left + row * columns, right + row * columns);
    });
  });
}

void row_dot(In a, In b, float* y, std::int64_t rows, std::int64_t columns) {
  for_row_pairs(a, b, rows, columns,
                [=](std::int64_t row, const auto* left, const auto* right) { y[row] = dot(left, right, columns); });
}

void cosine(In a, In b, float* y, float* lengths, std::int64_t rows, std::int64_t columns, float epsilon) {
  for_row_pairs(a, b, rows, columns, [=](std::int64_t row, const auto* left, const auto* right) {
    const float first = element::larger(square_root(dot(left, left, columns)), epsilon);
    const float second = element::larger(square_root(dot(right, right, columns)), epsilon);
    lengths[2 * row] = first;
    lengths[2 * row + 1] = second;
    y[row] = dot(left, right, columns) / (first * second);
  });
}

/// Computes to = dy (other / (length other_length) - y own / length^2) for each row of `own`, the first or second pair.
MAESTRO_INLINE void cosine_side(const CosineGradient& call, In own, In other, Out to, int side) {
  typed(to, [&](auto* out) {
    for_row_pairs(own, other, call.rows, call.columns, [&](std::int64_t row, const auto* from, const auto* along) {
      const float length = call.lengths[2 * row + side];
      const float across = call.dy[row] / (length * call.lengths[2 * row + 1 - side]);
      const float back = length > call.epsilon ? call.dy[row] * call.y[row] / (length * length) : 0.0F;
      auto* target = out + row * call.columns;
      for_vectors(call.columns, [=](std::int64_t i, auto part) {
        part.store(target + i, part.load(along + i) * across - part.load(from + i) * back);
      });
    });
  });
}

void cosine_backward(const CosineGradient& call) {
  if (call.da.data != nullptr) cosine_side(call, call.a, call.b, call.da, 0);
  if (call.db.data != nullptr) cosine_side(call, call.b, call.a, call.db, 1);
}

}  // namespace

const AuthorKernels author_kernels = {.scale = scale,
                                      .multiply = multiply,
                                      .multiply_rows = multiply_rows,
                                      .multiply_columns = multiply_columns,
                                      .sigmoid = sigmoid_of,
                                      .sigmoid_backward = sigmoid_backward,
                                      .tanh = tanh,
                                      .tanh_backward = tanh_backward,
                                      .softmax = softmax,
                                      .softmax_backward = softmax_gradient<false>,
                                      .log_softmax_backward = softmax_gradient<true>,
                                      .row_dot = row_dot,
                                      .cosine = cosine,
                                      .cosine_backward = cosine_backward};

}  // namespace maestro::cpu::MAESTRO_ISA_NAMESPACE
