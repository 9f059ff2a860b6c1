// SPDX-License-Identifier: Apache-2.0
// Choice of the instruction set for maestro's kernels. Each kernel source is compiled once per set
// (maestro_isa_sources() in CMakeLists.txt) into a namespace of that name; a table chooses its set at construction.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace maestro::cpu {

enum class Isa : std::uint8_t {
  generic,  ///< any x86-64 CPU with SSE4.2
  avx2,     ///< AVX2 and FMA
  avx512    ///< AVX-512 F, BW, DQ and VL
};

[[nodiscard]] std::string_view name_of(Isa isa);
/// Returns true when this CPU and system can run kernels of `isa`.
[[nodiscard]] bool supported(Isa isa);
/// Returns every supported set, weakest first.
[[nodiscard]] std::vector<Isa> supported_isas();
/// Returns the widest supported set, or the set in the environment variable MAESTRO_CPU_ISA (generic, avx2, avx512).
/// Throws JobError if that name is unknown or the CPU lacks the set. Start-up only.
[[nodiscard]] Isa best_isa();

/// Computation of products of bf16 operands. Both kinds round operands to bf16 and accumulate in f32.
enum class Bf16Products : std::uint8_t {
  converted,  ///< operands widened to f32, f32 products
  native      ///< the CPU's bf16 dot products
};
/// Returns `native` if bf16 products are faster than f32: with AMX, or with fast_bf16_dots().
[[nodiscard]] Bf16Products best_bf16_products();
/// Returns whether the best products take a bf16 weight packed for any use; oneDNN's, with AMX, do not.
[[nodiscard]] bool best_products_pack_once();
/// Returns true if AVX512_BF16 is faster than f32 products: on AMD. Intel's runs at half the f32 rate (105 against 228
/// GFLOP/s a core on Sapphire Rapids).
[[nodiscard]] bool fast_bf16_dots();
/// Returns true when the CPU has bf16 dot products at all, fast or not.
[[nodiscard]] bool native_bf16_supported();

}  // namespace maestro::cpu
