// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/backends.hpp"

#include "runtime/ops/cpu/cpu_operator_table.hpp"

namespace maestro::testing {

std::vector<Backend> backends() {
  using cpu::Bf16Products;
  using cpu::CpuOperatorTable;
  std::vector<Backend> found;
  for (const cpu::Isa isa : cpu::supported_isas()) {
    found.push_back({"cpu_" + std::string(name_of(isa)),
                     [isa] { return std::make_unique<CpuOperatorTable>(isa, Bf16Products::converted); }});
  }
  if (cpu::native_bf16_supported()) {
    found.push_back(
        {"cpu_native_bf16", [] { return std::make_unique<CpuOperatorTable>(cpu::Isa::avx512, Bf16Products::native); }});
  }
  return found;
}

}  // namespace maestro::testing
