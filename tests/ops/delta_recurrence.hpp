// SPDX-License-Identifier: Apache-2.0
// DeltaRule's recurrence and its gradients in f64, row by row, as the formulas in delta_operators.hpp state it.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "runtime/ops/delta_operators.hpp"
#include "tests/ops/owned_tensor.hpp"

namespace maestro::testing {

class DeltaRecurrence {
 public:
  DeltaRecurrence(const DeltaShape& shape, Values qkv, Values gates, Values a_log, Values dt_bias,
                  const std::vector<std::int32_t>& offsets, const Values& dout)
      : out(dout.size()),
        dqkv(qkv.size()),
        dgates(gates.size()),
        da_log(a_log.size()),
        ddt_bias(a_log.size()),
        shape_(shape),
        qkv_(std::move(qkv)),
        gates_(std::move(gates)),
        a_log_(std::move(a_log)),
        dt_bias_(std::move(dt_bias)) {
    for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
      for (std::int64_t head = 0; head < shape.value_heads; ++head) run(offsets[i], offsets[i + 1], head, dout);
    }
  }

  Values out, dqkv, dgates, da_log, ddt_bias;

 private:
  static std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }
  /// A row's query or key before and after it is divided by its length.
  struct Normed {
    std::int64_t place = 0;
    double factor = 1;
    double length = 0;
    Values values;
  };
  [[nodiscard]] Normed normed(std::int64_t row, std::int64_t column, double factor) const {
    Normed made{row * shape_.qkv_columns() + column, factor, 1e-6, {}};
    for (std::int64_t i = 0; i < shape_.key_size; ++i) made.length += std::pow(qkv_[at(made.place + i)], 2);
    made.length = std::sqrt(made.length);
    for (std::int64_t i = 0; i < shape_.key_size; ++i) {
      made.values.push_back(qkv_[at(made.place + i)] * factor / made.length);
    }
    return made;
  }
  void add_gradient(const Normed& of, const Values& dy) {
    double along = 0;
    for (std::size_t i = 0; i < dy.size(); ++i) along += dy[i] * of.values[i] / of.factor;
    for (std::size_t i = 0; i < dy.size(); ++i) {
      dqkv[static_cast<std::size_t>(of.place) + i] +=
          (dy[i] - along * of.values[i] / of.factor) * of.factor / of.length;
    }
  }
  [[nodiscard]] double gate(std::int64_t row, std::int64_t column) const {
    return gates_[at(row * 2 * shape_.value_heads + column)];
  }
  static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
  static double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

  void run(std::int64_t begin, std::int64_t end, std::int64_t head, const Values& dout) {
    const std::int64_t dk = shape_.key_size, dv = shape_.value_size, heads = shape_.value_heads;
    const std::int64_t key_column = head / (heads / shape_.key_heads) * dk;
    const auto v = [&](std::int64_t row, std::int64_t j) {
      return row * shape_.qkv_columns() + 2 * shape_.key_columns() + head * dv + j;
    };
    const auto o = [&](std::int64_t row, std::int64_t j) { return row * shape_.value_columns() + head * dv + j; };
    std::vector<Values> states{Values(at(dk * dv), 0.0)};
    for (std::int64_t row = begin; row < end; ++row) {
      const Normed q = query(row, key_column), k = key(row, key_column);
      Values s = states.back();
      for (double& value : s) value *= std::exp(decay(row, head));
      for (std::int64_t j = 0; j < dv; ++j) {
        const double u = sigmoid(gate(row, head)) * (qkv_[at(v(row, j))] - product(s, k.values, j));
        for (std::int64_t i = 0; i < dk; ++i) s[at(i * dv + j)] += k.values[at(i)] * u;
        out[at(o(row, j))] = product(s, q.values, j);
      }
      states.push_back(std::move(s));
    }
    Values ds(at(dk * dv), 0.0);
    for (std::int64_t row = end - 1; row >= begin; --row) {
      const Normed q = query(row, key_column), k = key(row, key_column);
      const Values &before = states[at(row - begin)], &after = states[at(row - begin) + 1];
      const double factor = std::exp(decay(row, head)), beta = sigmoid(gate(row, head));
      Values faded = before, dq(at(dk), 0.0), dkey(at(dk), 0.0);
      for (double& value : faded) value *= factor;
      double dbeta = 0, dfactor = 0;
      for (std::int64_t j = 0; j < dv; ++j) {
        const double d = dout[at(o(row, j))], rest = qkv_[at(v(row, j))] - product(faded, k.values, j);
        double du = 0;
        for (std::int64_t i = 0; i < dk; ++i) {
          dq[at(i)] += after[at(i * dv + j)] * d;
          ds[at(i * dv + j)] += q.values[at(i)] * d;
          dkey[at(i)] += ds[at(i * dv + j)] * beta * rest;
          du += ds[at(i * dv + j)] * k.values[at(i)];
        }
        dbeta += du * rest;
        dqkv[at(v(row, j))] += beta * du;
        for (std::int64_t i = 0; i < dk; ++i) {
          dkey[at(i)] -= faded[at(i * dv + j)] * beta * du;
          ds[at(i * dv + j)] -= k.values[at(i)] * beta * du;
          dfactor += ds[at(i * dv + j)] * before[at(i * dv + j)];
          ds[at(i * dv + j)] *= factor;
        }
      }
      add_gradient(q, dq);
      add_gradient(k, dkey);
      const double dg = dfactor * factor, a = gate(row, heads + head) + dt_bias_[at(head)];
      const double da = -dg * std::exp(a_log_[at(head)]) * sigmoid(a);
      da_log[at(head)] += dg * decay(row, head);
      ddt_bias[at(head)] += da;
      dgates[at(row * 2 * heads + head)] = dbeta * beta * (1 - beta);
      dgates[at(row * 2 * heads + heads + head)] = da;
    }
  }
  [[nodiscard]] Normed query(std::int64_t row, std::int64_t column) const {
    return normed(row, column, 1 / std::sqrt(static_cast<double>(shape_.key_size)));
  }
  [[nodiscard]] Normed key(std::int64_t row, std::int64_t column) const {
    return normed(row, shape_.key_columns() + column, 1);
  }
  [[nodiscard]] double decay(std::int64_t row, std::int64_t head) const {
    const double a = gate(row, shape_.value_heads + head) + dt_bias_[at(head)];
    return -std::exp(a_log_[at(head)]) * softplus(a);
  }
  /// Returns element j of S^T x.
  [[nodiscard]] double product(const Values& s, const Values& x, std::int64_t j) const {
    double sum = 0;
    for (std::int64_t i = 0; i < shape_.key_size; ++i) sum += s[at(i * shape_.value_size + j)] * x[at(i)];
    return sum;
  }

  DeltaShape shape_;
  Values qkv_, gates_, a_log_, dt_bias_;
};

}  // namespace maestro::testing
