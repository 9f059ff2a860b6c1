// SPDX-License-Identifier: Apache-2.0
// The peak FLOP/s of a core: independent f32 fused multiply-adds in registers, with the widest available vectors.
// Prints a JSON line.
#include <chrono>
#include <cstdio>

namespace {

#if defined(__AVX512F__)
constexpr int lanes = 16;
#elif defined(__AVX2__)
constexpr int lanes = 8;
#else
constexpr int lanes = 4;
#endif
typedef float Vector __attribute__((vector_size(lanes * sizeof(float))));
constexpr int chains = 16;  // enough to cover the latency of two units

double measure(long rounds) {
  Vector sums[chains] = {};
  Vector factor = {};
  for (int lane = 0; lane < lanes; ++lane) factor[lane] = 0.999f;
  const auto begin = std::chrono::steady_clock::now();
  for (long round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (int chain = 0; chain < chains; ++chain) {
      sums[chain] = sums[chain] * factor + factor;
      asm volatile("" : "+v"(sums[chain]));  // stays in its register, and is not folded away
    }
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  float keep = 0;
#pragma GCC unroll 16
  for (int chain = 0; chain < chains; ++chain) keep += sums[chain][0];  // constant indices: no spills above
  asm volatile("" : : "r"(keep));
  return 2.0 * lanes * chains * static_cast<double>(rounds) / seconds * 1e-9;
}

}  // namespace

int main() {
  double best = 0;
  for (int repeat = 0; repeat < 10; ++repeat) {
    const double rate = measure(4'000'000);
    if (rate > best) best = rate;
  }
  std::printf("{\"benchmark\": \"fma_peak\", \"gflops_fp32_per_core\": %.1f, \"lanes\": %d}\n", best, lanes);
  return 0;
}
