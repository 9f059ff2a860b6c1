// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/isa.hpp"

#include <cpuid.h>

#include <cstdlib>
#include <string>

#include "runtime/core/result.hpp"

namespace maestro::cpu {

namespace {

/// Tests leaf 7, sub-leaf 0, EDX bit 22 (AMX-BF16), which gcc 12's __builtin_cpu_supports lacks.
bool has_amx_bf16() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & (1u << 22)) != 0;
}

/// Tests leaf 7, sub-leaf 1, EAX bit 5.
bool has_avx512_bf16() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return supported(Isa::avx512) && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & (1u << 5)) != 0;
}

}  // namespace

std::string_view name_of(Isa isa) {
  switch (isa) {
    case Isa::generic:
      return "generic";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
  }
  return "?";
}

bool supported(Isa isa) {
  __builtin_cpu_init();
  switch (isa) {
    case Isa::generic:
      return __builtin_cpu_supports("sse4.2");
    case Isa::avx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case Isa::avx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && supported(Isa::avx2);
  }
  return false;
}

std::vector<Isa> supported_isas() {
  std::vector<Isa> found;
  for (const Isa isa : {Isa::generic, Isa::avx2, Isa::avx512}) {
    if (supported(isa)) found.push_back(isa);
  }
  return found;
}

Isa best_isa() {
  const std::vector<Isa> usable = supported_isas();
  if (usable.empty()) {
    throw JobError("this CPU lacks SSE4.2, which the CPU backend needs", ErrorCode::unavailable);
  }
  const char* wanted = std::getenv("MAESTRO_CPU_ISA");
  if (wanted == nullptr || *wanted == '\0') return usable.back();
  for (const Isa isa : {Isa::generic, Isa::avx2, Isa::avx512}) {
    if (name_of(isa) != wanted) continue;
    if (supported(isa)) return isa;
    throw JobError(
        "MAESTRO_CPU_ISA=" + std::string(wanted) + ": this CPU supports at most " + std::string(name_of(usable.back())),
        ErrorCode::unavailable);
  }
  throw JobError("MAESTRO_CPU_ISA=" + std::string(wanted) + " is unknown; use generic, avx2 or avx512");
}

bool native_bf16_supported() {
  return has_avx512_bf16();
}

Bf16Products best_bf16_products() {
  const bool fast = fast_bf16_dots() || (native_bf16_supported() && has_amx_bf16());
  return fast ? Bf16Products::native : Bf16Products::converted;
}

bool best_products_pack_once() {
  return best_bf16_products() == Bf16Products::converted || fast_bf16_dots();
}

bool fast_bf16_dots() {
  __builtin_cpu_init();
  return native_bf16_supported() && __builtin_cpu_is("amd");
}

}  // namespace maestro::cpu
