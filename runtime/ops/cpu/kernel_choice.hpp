// SPDX-License-Identifier: Apache-2.0
// Selection of a table's kernels from the kernels compiled for each instruction set.
#pragma once

#include "runtime/ops/cpu/isa.hpp"

/// Declares, for `struct Kernels` of function pointers, the constant `name` that the kernel source defines in each
/// instruction set's namespace, and the function name(Isa) that selects among them. Use inside namespace maestro::cpu.
#define MAESTRO_KERNELS(Kernels, name)                    \
  namespace generic {                                     \
  extern const Kernels name;                              \
  }                                                       \
  namespace avx2 {                                        \
  extern const Kernels name;                              \
  }                                                       \
  namespace avx512 {                                      \
  extern const Kernels name;                              \
  }                                                       \
  [[nodiscard]] inline const Kernels& name(Isa isa) {     \
    if (isa == Isa::avx512) return avx512::name;          \
    return isa == Isa::avx2 ? avx2::name : generic::name; \
  }

namespace maestro::cpu {

/// Elements of either storage type, as kernels receive them: f32, or bf16 as its 16 bits.
struct In {
  const void* data;
  bool bf16;
};
struct Out {
  void* data;
  bool bf16;
};

}  // namespace maestro::cpu
