// SPDX-License-Identifier: Apache-2.0
// An f32 vector of the instruction set that the including kernel is compiled for, and elementary functions on it.
//
// Only for kernel sources (maestro_isa_sources): each is compiled once per instruction set with MAESTRO_ISA_NAMESPACE
// set, and everything here lives in that namespace. A function template of the standard library, or any inline function
// outside the namespace, would be emitted with this set's instructions and could be linked into code meant for weaker
// CPUs; tests/ops/check_isa_symbols.cmake checks the objects' symbols for that.
//
// Storage types: float, and std::uint16_t for bf16 (the upper half of a binary32; stores round to nearest even).
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "runtime/ops/element_math.hpp"

#ifndef MAESTRO_ISA_NAMESPACE
#error "include this from sources given to maestro_isa_sources only"
#endif

#define MAESTRO_INLINE inline __attribute__((always_inline))

namespace maestro::cpu::MAESTRO_ISA_NAMESPACE {

#if defined(__AVX512F__)
inline constexpr int vector_width = 16;
#elif defined(__AVX2__)
inline constexpr int vector_width = 8;
#else
inline constexpr int vector_width = 4;
#endif

using Vec = float __attribute__((vector_size(4 * vector_width)));
using IVec = std::int32_t __attribute__((vector_size(4 * vector_width)));
using UVec = std::uint32_t __attribute__((vector_size(4 * vector_width)));
using HalfVec = std::uint16_t __attribute__((vector_size(2 * vector_width)));

// ---- loads and stores, without alignment ----
MAESTRO_INLINE Vec load(const float* from) {
  Vec value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}
MAESTRO_INLINE void store(float* to, Vec value) {
  __builtin_memcpy(to, &value, sizeof value);
}
MAESTRO_INLINE Vec broadcast(float value) {
  return value - Vec{};
}
MAESTRO_INLINE Vec bits_to_float(IVec bits) {
  return reinterpret_cast<Vec>(bits);
}
MAESTRO_INLINE IVec float_to_bits(Vec value) {
  return reinterpret_cast<IVec>(value);
}
MAESTRO_INLINE Vec select(IVec mask, Vec yes, Vec no) {
  return mask ? yes : no;
}

MAESTRO_INLINE float from_bf16(std::uint16_t bits) {
  const std::uint32_t word = static_cast<std::uint32_t>(bits) << 16;
  float value;
  __builtin_memcpy(&value, &word, sizeof value);
  return value;
}
MAESTRO_INLINE std::uint16_t to_bf16(float value) {
  std::uint32_t word;
  __builtin_memcpy(&word, &value, sizeof word);
  if ((word & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((word >> 16) | 0x40U);
  return static_cast<std::uint16_t>((word + 0x7fffU + ((word >> 16) & 1U)) >> 16);
}
MAESTRO_INLINE Vec load_bf16(const std::uint16_t* from) {
  HalfVec bits;
  __builtin_memcpy(&bits, from, sizeof bits);
#if defined(__AVX512F__)  // gcc 12 widens in two halves otherwise
  const UVec wide = reinterpret_cast<UVec>(_mm512_maskz_cvtepu16_epi32(0xffff, reinterpret_cast<__m256i>(bits)));
#else
  const UVec wide = __builtin_convertvector(bits, UVec);
#endif
  return reinterpret_cast<Vec>(wide << 16);
}
MAESTRO_INLINE void store_bf16(std::uint16_t* to, Vec value) {
  const UVec word = reinterpret_cast<UVec>(value);
  const UVec rounded = (word + 0x7fffU + ((word >> 16) & 1U)) >> 16;
  const UVec quiet_nan = (word >> 16) | 0x40U;
  const UVec kept = value == value ? rounded : quiet_nan;
#if defined(__AVX512F__)
  const __m256i bits = _mm512_maskz_cvtepi32_epi16(0xffff, reinterpret_cast<__m512i>(kept));
#else
  const HalfVec bits = __builtin_convertvector(kept, HalfVec);
#endif
  __builtin_memcpy(to, &bits, sizeof bits);
}
MAESTRO_INLINE Vec load(const std::uint16_t* from) {
  return load_bf16(from);
}
MAESTRO_INLINE void store(std::uint16_t* to, Vec value) {
  store_bf16(to, value);
}

/// Returns the first `count` elements (0 < count < vector_width), the others zero.
template <class T>
MAESTRO_INLINE Vec load_part(const T* from, std::int64_t count) {
  T padded[vector_width] = {};
  for (std::int64_t i = 0; i < count; ++i) padded[i] = from[i];
  return load(padded);
}
template <class T>
MAESTRO_INLINE void store_part(T* to, Vec value, std::int64_t count) {
  T padded[vector_width];
  store(padded, value);
  for (std::int64_t i = 0; i < count; ++i) to[i] = padded[i];
}

/// Calls body(i, full vector) for all full vectors in [0, count), then body(i, part) for the rest, if any. `body` takes
/// (index, Access); Access loads and stores either a full vector or the rest.
struct Whole {
  template <class T>
  MAESTRO_INLINE Vec load(const T* from) const {
    return MAESTRO_ISA_NAMESPACE::load(from);
  }
  template <class T>
  MAESTRO_INLINE void store(T* to, Vec value) const {
    MAESTRO_ISA_NAMESPACE::store(to, value);
  }
  /// Returns `value` with the lanes past the end set to zero.
  MAESTRO_INLINE Vec masked(Vec value) const { return value; }
};
struct Part {
  std::int64_t count;
  template <class T>
  MAESTRO_INLINE Vec load(const T* from) const {
    return load_part(from, count);
  }
  template <class T>
  MAESTRO_INLINE void store(T* to, Vec value) const {
    store_part(to, value, count);
  }
  MAESTRO_INLINE Vec masked(Vec value) const;
};
template <class Body>
MAESTRO_INLINE void for_vectors(std::int64_t count, Body body) {
  std::int64_t i = 0;
  for (; i + vector_width <= count; i += vector_width) body(i, Whole{});
  if (i < count) body(i, Part{count - i});
}

// ---- lanes ----
MAESTRO_INLINE IVec lane_numbers() {
#if defined(__AVX512F__)
  return IVec{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#elif defined(__AVX2__)
  return IVec{0, 1, 2, 3, 4, 5, 6, 7};
#else
  return IVec{0, 1, 2, 3};
#endif
}

MAESTRO_INLINE Vec Part::masked(Vec value) const {
  return select(lane_numbers() < static_cast<std::int32_t>(count), value, Vec{});
}

MAESTRO_INLINE Vec maximum(Vec a, Vec b) {
#if defined(__AVX512F__)
  return _mm512_maskz_max_ps(0xffff, a, b);  // gcc 12 warns of the unmasked form's undefined source
#elif defined(__AVX2__)
  return _mm256_max_ps(a, b);
#else
  return _mm_max_ps(a, b);
#endif
}

/// Returns the smaller operand, or the second operand if either is NaN.
MAESTRO_INLINE Vec minimum(Vec a, Vec b) {
#if defined(__AVX512F__)
  return _mm512_maskz_min_ps(0xffff, a, b);  // unlike the plain form, no false warning of gcc 12 (PR 105593)
#elif defined(__AVX2__)
  return _mm256_min_ps(a, b);
#else
  return _mm_min_ps(a, b);
#endif
}

MAESTRO_INLINE Vec square_root(Vec value) {
#if defined(__AVX512F__)
  return _mm512_maskz_sqrt_ps(0xffff, value);
#elif defined(__AVX2__)
  return _mm256_sqrt_ps(value);
#else
  return _mm_sqrt_ps(value);
#endif
}
MAESTRO_INLINE float square_root(float value) {
  return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(value)));
}

/// Reduce over lanes, to the sum and to the maximum, always paired in the same order.
MAESTRO_INLINE float reduce_sum(Vec value) {
  float lanes[vector_width];
  store(lanes, value);
  for (int half = vector_width / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}
MAESTRO_INLINE float reduce_max(Vec value) {
  float lanes[vector_width];
  store(lanes, value);
  for (int half = vector_width / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] = lanes[i] > lanes[i + half] ? lanes[i] : lanes[i + half];
  }
  return lanes[0];
}

MAESTRO_INLINE Vec interleave_low(Vec a, Vec b) {
#if defined(__AVX512F__)
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
#elif defined(__AVX2__)
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
#else
  return __builtin_shufflevector(a, b, 0, 4, 1, 5);
#endif
}
MAESTRO_INLINE Vec interleave_high(Vec a, Vec b) {
#if defined(__AVX512F__)
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
#elif defined(__AVX2__)
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
#else
  return __builtin_shufflevector(a, b, 2, 6, 3, 7);
#endif
}
/// Transposes a square of vector_width rows: each round interleaves the lower half of the rows with the upper half,
/// which rotates the bits of (row, column) by 1, so log2(vector_width) rounds swap row and column.
MAESTRO_INLINE void transpose(Vec* rows) {
  for (int round = 1; round < vector_width; round *= 2) {
    Vec mixed[vector_width];
    for (int i = 0; i < vector_width / 2; ++i) {
      mixed[2 * i] = interleave_low(rows[i], rows[i + vector_width / 2]);
      mixed[2 * i + 1] = interleave_high(rows[i], rows[i + vector_width / 2]);
    }
    for (int i = 0; i < vector_width; ++i) rows[i] = mixed[i];
  }
}

// ---- elementary functions ----
/// Returns e^x with a relative error below 2e-7 if the result is normal; 0 below -87.33 (results would be subnormal),
/// infinity above 88.72, NaN for NaN. Cody-Waite reduction and the minimax polynomial of Cephes `expf` (Moshier 1992).
MAESTRO_INLINE Vec exp(Vec unbounded) {
  const Vec x = minimum(broadcast(89.0F), unbounded);  // in this order a NaN passes
  constexpr float round_to_int = 12582912.0F;  // 1.5 * 2^23: adding it leaves the rounded integer in the low bits
  const Vec shifted = x * 1.44269504088896341F + round_to_int;
  const Vec n = shifted - round_to_int;
  const Vec r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
  Vec p = r * 1.9875691500e-4F + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + (r + 1.0F);
#if defined(__AVX512F__)
  return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(-87.33F), _CMP_NLT_UQ), p, n);
#else
  // 2^n in two factors: 2^128 is not a finite float.
  const IVec exponent = float_to_bits(shifted) - 0x4b400000;
  const IVec first = exponent >> 1;
  const Vec low = bits_to_float((first + 127) << 23);
  const Vec high = bits_to_float((exponent - first + 127) << 23);
  return select(x < -87.33F, Vec{}, p * low * high);
#endif
}
MAESTRO_INLINE float exp_scalar(float x) {
  return exp(broadcast(x))[0];
}
/// Returns 1 / (1 + e^-x), with a relative error below 4e-7 if the result is normal.
MAESTRO_INLINE Vec sigmoid(Vec x) {
  const Vec d = 1.0F + exp(-x);
#if defined(__AVX512F__)
  // A reciprocal of 14 bits and a Newton step take half the time of a division. An infinite d would yield 0 *
  // infinity.
  const Vec bounded = minimum(broadcast(3e38F), d);
  const Vec y = _mm512_maskz_rcp14_ps(0xffff, bounded);
  return y * (2.0F - bounded * y);
#else
  return 1.0F / d;
#endif
}

/// Returns the natural logarithm of positive normal numbers with relative error below 2e-7: mantissa reduced to
/// [sqrt(1/2), sqrt(2)), minimax polynomial of Cephes `logf` (Moshier 1992).
MAESTRO_INLINE Vec log_positive(Vec x) {
  const IVec bits = float_to_bits(x);
  const IVec reduced = bits - 0x3f3504f3;  // sqrt(1/2)
  const Vec exponent = __builtin_convertvector(reduced >> 23, Vec);
  const Vec m = bits_to_float((reduced & 0x007fffff) + 0x3f3504f3) - 1.0F;
  Vec p = m * 7.0376836292e-2F - 1.1514610310e-1F;
  p = p * m + 1.1676998740e-1F;
  p = p * m - 1.2420140846e-1F;
  p = p * m + 1.4249322787e-1F;
  p = p * m - 1.6668057665e-1F;
  p = p * m + 2.0000714765e-1F;
  p = p * m - 2.4999993993e-1F;
  p = p * m + 3.3333331174e-1F;
  const Vec square = m * m;
  p = p * m * square - exponent * 2.12194440e-4F - square * 0.5F;
  return m + p + exponent * 0.693359375F;
}

/// Primitives for the formulas of element_math.hpp, on vectors.
struct VectorMath {
  using Value = Vec;
  using Bits = UVec;
  MAESTRO_INLINE static UVec bits(Vec x) { return reinterpret_cast<UVec>(x); }
  MAESTRO_INLINE static Vec number(UVec bits) { return reinterpret_cast<Vec>(bits); }
  MAESTRO_INLINE static Vec exponential(Vec x) { return exp(x); }
  MAESTRO_INLINE static Vec logarithm(Vec x) { return log_positive(x); }
  MAESTRO_INLINE static Vec sigmoid(Vec x) { return MAESTRO_ISA_NAMESPACE::sigmoid(x); }
  MAESTRO_INLINE static Vec square_root(Vec x) { return MAESTRO_ISA_NAMESPACE::square_root(x); }
  MAESTRO_INLINE static Vec larger(Vec a, Vec b) { return maximum(a, b); }
};
using Softcap = element::SoftcapOf<VectorMath>;
using RotaryPair = element::RotaryPairOf<Vec>;
using Divergences = element::DivergencesOf<VectorMath>;

}  // namespace maestro::cpu::MAESTRO_ISA_NAMESPACE
