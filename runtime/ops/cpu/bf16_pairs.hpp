// SPDX-License-Identifier: Apache-2.0
// Pairs of bf16 for AVX512_BF16's dot products: a word has two neighbours along the depth of a product, the first in
// its low half. Words are kept as f32 vectors but only copied. Only for kernels of the instruction set avx512_bf16.
#pragma once

#include "runtime/ops/cpu/vector_math.hpp"

namespace maestro::cpu::MAESTRO_ISA_NAMESPACE {

#if defined(__AVX512BF16__)
using HalfRow = __m256i;  ///< 16 bf16

/// Returns sum + the product of a pair and 16 pairs.
MAESTRO_INLINE Vec add_pair_products(Vec sum, const float* pair, Vec pairs) {
  std::int32_t bits;
  __builtin_memcpy(&bits, pair, sizeof bits);
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(_mm512_set1_epi32(bits)), reinterpret_cast<__m512bh>(pairs));
}

/// Returns the first `count` elements, at most 16, then zeros; none are read if `count` is not positive.
MAESTRO_INLINE HalfRow first_elements(const std::uint16_t* from, std::int64_t count) {
  const std::int64_t some = count < 0 ? 0 : count;
  return _mm256_maskz_loadu_epi16(static_cast<__mmask16>(some < 16 ? (1U << some) - 1 : 0xffffU), from);
}

/// Writes the first `count` sums, at most 16, added to the values that are there if `accumulate`.
MAESTRO_INLINE void write_sums(float* to, Vec sums, std::int64_t count, bool accumulate) {
  const auto mask = static_cast<__mmask16>(count >= 16 ? 0xffffU : (1U << count) - 1);
  const Vec before = accumulate ? _mm512_maskz_loadu_ps(mask, to) : Vec{};
  _mm512_mask_storeu_ps(to, mask, before + sums);
}

/// Writes the first `count` values, at most 16, rounded to bf16.
MAESTRO_INLINE void write_rounded(std::uint16_t* to, Vec values, std::int64_t count) {
  const auto mask = static_cast<__mmask16>(count >= 16 ? 0xffffU : (1U << count) - 1);
  _mm256_mask_storeu_epi16(to, mask, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(values)));
}

/// Returns the pairs of two rows.
MAESTRO_INLINE Vec pairs_of(HalfRow even, HalfRow odd) {
  const __m512i low = _mm512_maskz_cvtepu16_epi32(0xffff, even);
  const __m512i high = _mm512_maskz_slli_epi32(0xffff, _mm512_maskz_cvtepu16_epi32(0xffff, odd), 16);
  return reinterpret_cast<Vec>(_mm512_or_si512(low, high));
}
/// Returns the pairs of two rows, rounded to bf16.
MAESTRO_INLINE Vec pairs_of(Vec even, Vec odd) {
  const __m512i order =
      _mm512_add_epi32(_mm512_set1_epi32(16 << 16), reinterpret_cast<__m512i>(lane_numbers() * 0x10001));
  return reinterpret_cast<Vec>(
      _mm512_maskz_permutexvar_epi16(0xffffffffU, order, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(odd, even))));
}
#endif

}  // namespace maestro::cpu::MAESTRO_ISA_NAMESPACE
