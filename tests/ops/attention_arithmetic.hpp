// SPDX-License-Identifier: Apache-2.0
// The kernels and storage types that attention is tested with.
#pragma once

#include <string>
#include <vector>

#include "runtime/core/tensor.hpp"
#include "runtime/ops/cpu/isa.hpp"

namespace maestro::testing {

struct AttentionArithmetic {
  cpu::Isa isa = cpu::Isa::generic;
  cpu::Bf16Products bf16 = cpu::Bf16Products::converted;
  DType act = DType::f32;

  [[nodiscard]] std::string name() const {
    if (bf16 == cpu::Bf16Products::native) return "native_bf16";
    return std::string(name_of(isa)) + "_" + std::string(name_of(act));
  }
};

inline std::vector<AttentionArithmetic> attention_arithmetics() {
  std::vector<AttentionArithmetic> all;
  for (const cpu::Isa isa : cpu::supported_isas()) {
    for (const DType act : {DType::f32, DType::bf16}) all.push_back({isa, cpu::Bf16Products::converted, act});
  }
  if (cpu::native_bf16_supported()) all.push_back({cpu::Isa::avx512, cpu::Bf16Products::native, DType::bf16});
  return all;
}

}  // namespace maestro::testing
