// Runs the user's section once on a small tensor; exits 0 when the numbers are right.
#include <algorithm>
#include <iostream>
#include <numeric>

#include "section.hpp"

int main() {
  maestro::Arena arena;
  const maestro::Tensor x = arena.allocate({2, 3}, maestro::DType::f32);
  const auto values = x.span<float>();
  std::iota(values.begin(), values.end(), 1.0f);

  const auto y = outside::ScaleSection(2.0f).forward(arena, x);
  if (!y) {
    std::cerr << y.error().message << '\n';
    return 1;
  }
  const auto scaled = y->span<float>();
  const bool right = std::equal(values.begin(), values.end(), scaled.begin(), scaled.end(),
                                [](float before, float after) { return after == 2.0f * before; });
  std::cout << "outside: " << (right ? "right" : "wrong") << '\n';
  return right ? 0 : 1;
}
