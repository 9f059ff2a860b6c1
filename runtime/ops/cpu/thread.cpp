// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/thread.hpp"

#include <xmmintrin.h>

// Part of libgomp, which oneDNN is linked with. Declared here because clang's <omp.h> belongs to another runtime.
extern "C" void omp_set_num_threads(int count);

namespace maestro::cpu {

void prepare_thread() {
  constexpr unsigned flush_to_zero = 0x8000;
  constexpr unsigned denormals_are_zero = 0x0040;
  _mm_setcsr(_mm_getcsr() | flush_to_zero | denormals_are_zero);
  stay_on_this_thread();
}

void stay_on_this_thread() {
  omp_set_num_threads(1);
}

}  // namespace maestro::cpu
