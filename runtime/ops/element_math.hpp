// SPDX-License-Identifier: Apache-2.0
// Per-element mathematics for both backends: formulas on numbers, for a device's threads, and on vectors, for the CPU.
// Kernels do the loads, stores and sums.
//
// `Math` has the elementary functions for its Value, which is float or a (gcc) vector of floats, so that numbers and
// vectors mix: exponential, logarithm, sigmoid, square_root, larger, and bits and number, which convert to the 32 bits
// and back. Inlining is forced: the CPU's kernels are compiled once per instruction set, and a separate function must
// not be linked into other sets.
#pragma once

#include <cmath>
#include <cstdint>

#include "runtime/core/gelu_kind.hpp"
#include "runtime/core/glu_gate.hpp"

#if defined(__CUDACC__)
#define MAESTRO_HD __host__ __device__ __forceinline__
#else
#define MAESTRO_HD inline __attribute__((always_inline))
#endif

namespace maestro::element {

/// Returns e^x. On a device its error grows with |x|, to 2e-6 relative at |x| = 20, and results below the smallest
/// normal number are 0: __expf would keep them, with two and a half times the instructions.
MAESTRO_HD float exponential(float x) {
#if defined(__CUDA_ARCH__)
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * 1.4426950408889634F));  // log2(e)
  return power;
#else
  return std::exp(x);
#endif
}
/// Returns the natural logarithm, for positive normal numbers.
MAESTRO_HD float logarithm(float x) {
#if defined(__CUDA_ARCH__)
  return logf(x);
#else
  return std::log(x);
#endif
}
/// Returns 1 / x within 2 units in the last place for |x| below 2^126, 0 above.
MAESTRO_HD float reciprocal(float x) {
#if defined(__CUDA_ARCH__)
  return __fdividef(1.0F, x);
#else
  return 1.0F / x;
#endif
}
/// Returns a / b, on a device within 2 units in the last place for |b| below 2^126.
template <class Value>
MAESTRO_HD Value quotient(Value a, Value b) {
#if defined(__CUDA_ARCH__)
  return __fdividef(a, b);
#else
  return a / b;
#endif
}
MAESTRO_HD float larger(float a, float b) {
  return a < b ? b : a;
}

MAESTRO_HD float sigmoid(float x) {
  return reciprocal(1.0F + exponential(-x));
}

/// Elementary functions for a device's thread; on the CPU for tests.
struct Scalar {
  using Value = float;
  using Bits = std::uint32_t;
  MAESTRO_HD static std::uint32_t bits(float x) { return __builtin_bit_cast(std::uint32_t, x); }
  MAESTRO_HD static float number(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }
  MAESTRO_HD static float exponential(float x) { return element::exponential(x); }
  MAESTRO_HD static float logarithm(float x) { return element::logarithm(x); }
  MAESTRO_HD static float sigmoid(float x) { return element::sigmoid(x); }
  MAESTRO_HD static float square_root(float x) { return sqrtf(x); }
  MAESTRO_HD static float larger(float a, float b) { return element::larger(a, b); }
};

/// Tanh-approximated GELU (Hendrycks & Gimpel 2016): 0.5 x (1 + tanh u) = x sigmoid(2 u) with u = sqrt(2 / pi) (x +
/// 0.044715 x^3); the sigmoid form avoids cancellation for negative x.
template <class Math>
struct GeluOf {
  using Value = typename Math::Value;
  static constexpr float twice_root = 1.5957691216057308F;  // 2 sqrt(2 / pi)
  static constexpr float cubic = 0.044715F;

  MAESTRO_HD static Value value(Value x) { return x * Math::sigmoid(twice_root * x * (1.0F + cubic * x * x)); }
  MAESTRO_HD static Value slope(Value x) {
    const Value square = x * x;
    const Value s = Math::sigmoid(twice_root * x * (1.0F + cubic * square));
    return s + x * s * (1.0F - s) * (twice_root * (1.0F + 3.0F * cubic * square));
  }
};
using Gelu = GeluOf<Scalar>;

/// GELU by the normal distribution: x Phi(x).
template <class Math>
struct ErfGeluOf {
  using Value = typename Math::Value;
  static constexpr float root_of_half = 0.7071067811865476F;
  static constexpr float peak = 0.3989422804014327F;  // 1 / sqrt(2 pi)

  MAESTRO_HD static Value value(Value x) { return x * normal(x); }
  MAESTRO_HD static Value slope(Value x) { return normal(x) + x * peak * Math::exponential(-0.5F * x * x); }

 private:
  /// Returns Phi(x) by a rational Chebyshev fit of erfc with relative error below 1.2e-7 (Press et al. 1992, 6.2).
  MAESTRO_HD static Value normal(Value x) {
    const Value z = root_of_half * Math::larger(x, -x);
    const Value t = quotient(Value{} + 1.0F, 1.0F + 0.5F * z);
    Value p = t * 0.17087277F - 0.82215223F;
    p = p * t + 1.48851587F;
    p = p * t - 1.13520398F;
    p = p * t + 0.27886807F;
    p = p * t - 0.18628806F;
    p = p * t + 0.09678418F;
    p = p * t + 0.37409196F;
    p = p * t + 1.00002368F;
    const Value tail = 0.5F * t * Math::exponential(p * t - 1.26551223F - z * z);
    return x < Value{} ? tail : 1.0F - tail;
  }
};

/// x sigmoid(1.702 x).
template <class Math>
struct QuickGeluOf {
  using Value = typename Math::Value;
  static constexpr float factor = 1.702F;

  MAESTRO_HD static Value value(Value x) { return x * Math::sigmoid(factor * x); }
  MAESTRO_HD static Value slope(Value x) {
    const Value s = Math::sigmoid(factor * x);
    return s + factor * x * s * (1.0F - s);
  }
};

/// Calls body(form) with the functions of a kind.
template <class Math, class Body>
void with_gelu(GeluKind kind, Body body) {
  if (kind == GeluKind::erf) return body(ErfGeluOf<Math>());
  if (kind == GeluKind::quick) return body(QuickGeluOf<Math>());
  body(GeluOf<Math>());
}

template <class Value>
struct GluGradient {
  Value dgate;
  Value dup;
};

/// SwiGLU (Shazeer 2020): silu(gate) up.
template <class Math>
struct SwigluOf {
  using Value = typename Math::Value;
  static constexpr bool alternate = false;  ///< gate and up are alternate columns

  MAESTRO_HD Value value(Value gate, Value up) const { return gate * Math::sigmoid(gate) * up; }
  MAESTRO_HD GluGradient<Value> gradient(Value d, Value gate, Value up) const {
    const Value s = Math::sigmoid(gate);
    return {d * up * s * (1.0F + gate * (1.0F - s)), d * gate * s};
  }
};

/// GEGLU (Shazeer 2020): gelu(gate) up.
template <class Math>
struct GegluOf {
  using Value = typename Math::Value;
  static constexpr bool alternate = false;

  MAESTRO_HD Value value(Value gate, Value up) const { return GeluOf<Math>::value(gate) * up; }
  MAESTRO_HD GluGradient<Value> gradient(Value d, Value gate, Value up) const {
    return {d * up * GeluOf<Math>::slope(gate), d * GeluOf<Math>::value(gate)};
  }
};

/// GluGate::clamped. At a limit the gradient passes, after it it is 0; NaN stays NaN.
template <class Math>
struct ClampedGluOf {
  using Value = typename Math::Value;
  static constexpr bool alternate = true;
  float limit;
  float alpha;

  MAESTRO_HD Value value(Value gate, Value up) const {
    const Value g = below(gate);
    return (-below(-below(up)) + 1.0F) * g * Math::sigmoid(alpha * g);
  }
  MAESTRO_HD GluGradient<Value> gradient(Value d, Value gate, Value up) const {
    const Value g = below(gate), s = Math::sigmoid(alpha * g), zero = Value{};
    const Value dgate = d * (-below(-below(up)) + 1.0F) * s * (1.0F + alpha * g * (1.0F - s));
    const Value dup = d * g * s;
    return {gate > limit ? zero : dgate, Math::larger(up, -up) > limit ? zero : dup};
  }

 private:
  MAESTRO_HD Value below(Value x) const { return x > limit ? Value{} + limit : x; }
};

/// Calls body(unit) with the gated unit of a gate.
template <class Math, class Body>
void with_glu(const GluGate& gate, Body body) {
  if (gate.kind == GluGate::Kind::gelu) return body(GegluOf<Math>());
  if (gate.kind == GluGate::Kind::clamped) {
    return body(ClampedGluOf<Math>{static_cast<float>(gate.limit), static_cast<float>(gate.alpha)});
  }
  body(SwigluOf<Math>());
}

/// Returns tanh(x) with relative error below 4e-7, at most 1; NaN for NaN. Uses Eigen's minimax rational function of
/// degrees 13 and 6 (Guennebaud & Jacob 2010): with exponentials, small results would cancel.
template <class Value>
MAESTRO_HD Value tanh_of(Value x) {
  constexpr float end = 7.90531110763549805F;  // from here on tanh is 1 in f32
  const Value raised = x < -end ? Value{} - end : x;
  const Value bounded = raised > end ? Value{} + end : raised;
  const Value square = bounded * bounded;
  Value p = square * -2.76076847742355e-16F + 2.00018790482477e-13F;
  p = p * square - 8.60467152213735e-11F;
  p = p * square + 5.12229709037114e-08F;
  p = p * square + 1.48572235717979e-05F;
  p = p * square + 6.37261928875436e-04F;
  p = p * square + 4.89352455891786e-03F;
  Value q = square * 1.19825839466702e-06F + 1.18534705686654e-04F;
  q = q * square + 2.26843463243900e-03F;
  q = q * square + 4.89352518554385e-03F;
  return quotient(bounded * p, q);
}

/// The soft cap of scores and logits (Gemma 2, 2024, section 2).
template <class Math>
struct SoftcapOf {
  using Value = typename Math::Value;

  MAESTRO_HD static Value value(Value x, Value cap) { return cap * tanh_of(quotient(x, cap)); }
  /// Returns the derivative at the result y.
  MAESTRO_HD static Value slope_of(Value y, Value cap) {
    const Value ratio = quotient(y, cap);
    return 1.0F - ratio * ratio;
  }
};
using Softcap = SoftcapOf<Scalar>;

/// The rotation of a pair (Su et al. 2021, eq. 34).
template <class Value>
struct RotaryPairOf {
  Value first;
  Value second;
  MAESTRO_HD RotaryPairOf rotated(Value cosine, Value sine) const {
    return {first * cosine - second * sine, second * cosine + first * sine};
  }
};
using RotaryPair = RotaryPairOf<float>;

/// A softmax with the log-sum-exp `lse` after its denominator gets the term exp(sink): the factor of all its weights,
/// and its new log-sum-exp.
struct SinkTerm {
  float factor;
  float lse;
};
MAESTRO_HD SinkTerm sink_term(float lse, float sink) {
  const float above = larger(lse, sink), distance = above - (lse < sink ? lse : sink);
  return {sigmoid(lse - sink), above + logarithm(1.0F + exponential(-distance))};
}

/// AdamW (Loshchilov & Hutter 2019, algorithm 2) for a parameter, with the step's shared coefficients precomputed.
struct AdamW {
  float keep = 1;          ///< 1 - lr * weight_decay
  float step_size = 0;     ///< lr / (1 - beta1^step)
  float inverse_root = 1;  ///< 1 / sqrt(1 - beta2^step)
  float beta1 = 0;
  float beta2 = 0;
  float one_less_beta1 = 1;
  float one_less_beta2 = 1;
  float epsilon = 0;
  float gradient_scale = 1;
  std::uint32_t seed = 0;  ///< seed of the step, for rounded_at_random()

  template <class Math = Scalar>
  MAESTRO_HD void update(typename Math::Value& value, typename Math::Value gradient, typename Math::Value& mean,
                         typename Math::Value& variance) const {
    const typename Math::Value g = gradient * gradient_scale;
    mean = beta1 * mean + one_less_beta1 * g;
    variance = beta2 * variance + one_less_beta2 * (g * g);
    value = value * keep - step_size * mean / (Math::square_root(variance) * inverse_root + epsilon);
  }

  /// Rounds the moments after update() to bf16 values, each up with a probability equal to the fraction that is cut
  /// off. With rounding to nearest, a moment would not move when its change is below half a unit in the last place:
  /// with beta2 = 0.999 the second moment would not change. The random bits are a hash of the step, the gradient and
  /// the first moment: the same on every layout and after a resume. Finaliser of MurmurHash3 (Appleby 2011).
  template <class Math = Scalar>
  MAESTRO_HD void rounded_at_random(typename Math::Value gradient, typename Math::Value& mean,
                                    typename Math::Value& variance) const {
    typename Math::Bits random = (Math::bits(gradient) ^ seed) * 0x9e3779b1U ^ Math::bits(mean);
    random = (random ^ (random >> 16)) * 0x85ebca6bU;
    random = (random ^ (random >> 13)) * 0xc2b2ae35U;
    random = random ^ (random >> 16);
    mean = Math::number((Math::bits(mean) + (random & 0xffffU)) & 0xffff0000U);
    variance = Math::number((Math::bits(variance) + (random >> 16)) & 0xffff0000U);
  }
};

/// Returns `id` shifted by `by` if the result is in [0, limit), else -1.
MAESTRO_HD std::int32_t shifted_id(std::int32_t id, std::int64_t by, std::int64_t limit) {
  const std::int64_t shifted = id + by;
  return shifted >= 0 && shifted < limit ? static_cast<std::int32_t>(shifted) : -1;
}

/// Normaliser of a row's distribution: softmax at temperature T is exp((x - max) / T - log_sum).
struct Normaliser {
  float max = 0;
  float log_sum = 0;      ///< log of the sum of exp((x - max) / T)
  float log_sum_one = 0;  ///< the same at T = 1

  template <class Value>
  MAESTRO_HD Value log_probability(Value x, float inverse_t) const {
    return (x - max) * inverse_t - log_sum;
  }
  MAESTRO_HD float probability_at_one(float x) const { return exponential(x - max - log_sum_one); }
};

/// Derivatives of the divergences with respect to the student's logit z / T, for the teacher's p = exp(log_p), the
/// student's q = exp(log_q), and the mixture m = beta p + (1 - beta) q; see distillation_options.hpp.
template <class Math>
struct DivergencesOf {
  using Value = typename Math::Value;
  static constexpr float smallest_normal = 1.17549435e-38F;

  /// Returns log m; finite if both underflow, since it is only ever multiplied with p or q.
  MAESTRO_HD static Value log_mixture(Value p, Value q, float beta) {
    return Math::logarithm(Math::larger(p * beta + q * (1.0F - beta), smallest_normal - Value{}));
  }
  MAESTRO_HD static Value forward_kl(Value log_p, Value log_q) {
    return Math::exponential(log_q) - Math::exponential(log_p);
  }
  /// Returns the derivative. `divergence` is KL(q || p).
  MAESTRO_HD static Value reverse_kl(Value log_p, Value log_q, float divergence) {
    return Math::exponential(log_q) * (log_q - log_p - divergence);
  }
  /// Returns the derivative. `divergence` is KL(q || m).
  MAESTRO_HD static Value js(Value log_p, Value log_q, float beta, float divergence) {
    const Value q = Math::exponential(log_q);
    return (1.0F - beta) * q * (log_q - log_mixture(Math::exponential(log_p), q, beta) - divergence);
  }
};
using Divergences = DivergencesOf<Scalar>;

}  // namespace maestro::element
