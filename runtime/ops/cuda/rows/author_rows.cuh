// SPDX-License-Identifier: Apache-2.0
// Bodies of the operators for section authors, row by row. A team of threads shares a row, or an item is a column. For
// kernel sources.
#pragma once

#include "runtime/ops/cuda/rows/pointwise.cuh"
#include "runtime/ops/cuda/rows/row_team.cuh"
#include "runtime/ops/memory_math.hpp"

namespace maestro::cuda {

struct MemoryGateOp {
  static constexpr bool takes_two = false;
  float factor;
  __device__ float operator()(float score, float) const { return element::MemoryGate::value(factor * score); }
};
struct MemoryGateBackwardOp {
  static constexpr bool takes_two = true;
  float factor;
  __device__ float operator()(float dgate, float score) const {
    return dgate * factor * element::MemoryGate::slope(factor * score);
  }
};

/// Calls body.run<Team>(row) for all rows, with all threads of the row's team.
template <NormKind Kind, class Body>
__global__ void __launch_bounds__(flat_threads) team_rows_kernel(Body body, std::int64_t rows) {
  using Team = RowTeam<Kind>;
  for (std::int64_t row = Team::first_row(); row < rows; row += Team::rows_at_once()) body.template run<Team>(row);
}

/// Returns the sum of term(column) over a row.
template <class Team, class Term>
__device__ __forceinline__ float team_sum(int columns, const Term& term) {
  float sum = 0;
  for (int column = Team::member(); column < columns; column += Team::members()) sum += term(column);
  return Team::sum(sum);
}

/// Calls body(column) on the columns of a row.
template <class Team, class Body>
__device__ __forceinline__ void team_columns(int columns, const Body& body) {
  for (int column = Team::member(); column < columns; column += Team::members()) body(column);
}

/// An item is a column.
template <class A, class B, class Out>
struct MultipliedRows {
  const A* a;
  const B* factors;  // (M), or (C)
  Out* out;
  std::int64_t columns;
  bool of_columns;

  __device__ void operator()(std::int64_t row, int item) const {
    const std::int64_t at = row * columns + item;
    out[at] = from_float<Out>(to_float(a[at]) * to_float(factors[of_columns ? item : row]));
  }
};

/// An item is a column.
template <class From, class To>
struct CopiedColumns {
  const From* from;  // at the first column
  To* to;            // at the first column
  std::int64_t from_stride;
  std::int64_t to_stride;
  bool accumulate;

  __device__ void operator()(std::int64_t row, int item) const {
    To& target = to[row * to_stride + item];
    const float value = to_float(from[row * from_stride + item]);
    target = from_float<To>(accumulate ? to_float(target) + value : value);
  }
};

template <class X>
struct SoftmaxRows {
  const X* x;
  float* y;
  int columns;
  bool log;

  template <class Team>
  __device__ void run(std::int64_t row) const {
    const X* from = x + row * columns;
    float* to = y + row * columns;
    float most = to_float(from[0]);
    team_columns<Team>(columns, [&](int i) { most = Maximum::of(most, to_float(from[i])); });
    most = Team::max(most);
    const float sum = team_sum<Team>(columns, [&](int i) { return element::exponential(to_float(from[i]) - most); });
    const float shift = most + element::logarithm(sum);
    team_columns<Team>(columns, [&](int i) {
      const float value = to_float(from[i]);
      to[i] = log ? value - shift : element::exponential(value - most) / sum;
    });
  }
};

template <class D>
struct SoftmaxBackwardRows {
  const float* dy;
  const float* y;
  D* dx;
  int columns;
  bool log;

  template <class Team>
  __device__ void run(std::int64_t row) const {
    const float* d = dy + row * columns;
    const float* v = y + row * columns;
    const float sum = team_sum<Team>(columns, [&](int i) { return log ? d[i] : d[i] * v[i]; });
    team_columns<Team>(columns, [&](int i) {
      dx[row * columns + i] = from_float<D>(log ? d[i] - element::exponential(v[i]) * sum : v[i] * (d[i] - sum));
    });
  }
};

template <class Team, class A, class B>
__device__ __forceinline__ float team_dot(int columns, const A* a, const B* b) {
  return team_sum<Team>(columns, [=](int i) { return to_float(a[i]) * to_float(b[i]); });
}

template <class A, class B>
struct RowDots {
  const A* a;
  const B* b;
  float* y;
  int columns;

  template <class Team>
  __device__ void run(std::int64_t row) const {
    const float sum = team_dot<Team>(columns, a + row * columns, b + row * columns);
    if (Team::member() == 0) y[row] = sum;
  }
};

template <class A, class B>
struct CosineRows {
  const A* a;
  const B* b;
  float* y;
  float* lengths;  // (M, 2)
  int columns;
  float epsilon;

  template <class Team>
  __device__ void run(std::int64_t row) const {
    const A* left = a + row * columns;
    const B* right = b + row * columns;
    const float first = Maximum::of(sqrtf(team_dot<Team>(columns, left, left)), epsilon);
    const float second = Maximum::of(sqrtf(team_dot<Team>(columns, right, right)), epsilon);
    const float dot = team_dot<Team>(columns, left, right);
    if (Team::member() != 0) return;
    lengths[2 * row] = first;
    lengths[2 * row + 1] = second;
    y[row] = dot / (first * second);
  }
};

/// Computes the gradient of one side; an item is a column.
template <class Own, class Other, class To>
struct CosineGradientRows {
  const float* dy;
  const Own* own;
  const Other* other;
  const float* y;
  const float* lengths;  // (M, 2)
  To* to;
  std::int64_t columns;
  int side;  // index of `own` in lengths
  float epsilon;

  __device__ void operator()(std::int64_t row, int item) const {
    const std::int64_t at = row * columns + item;
    const float length = lengths[2 * row + side];
    const float across = dy[row] / (length * lengths[2 * row + 1 - side]);
    const float back = length > epsilon ? dy[row] * y[row] / (length * length) : 0.0F;
    to[at] = from_float<To>(to_float(other[at]) * across - to_float(own[at]) * back);
  }
};

}  // namespace maestro::cuda
