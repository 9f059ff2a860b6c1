// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/pointwise/pointwise_kernels.hpp"

#include <utility>

#include "runtime/ops/cpu/storage.hpp"

namespace maestro::cpu::MAESTRO_ISA_NAMESPACE {
namespace {

void cast(In from, Out to, std::int64_t count) {
  if (from.bf16 == to.bf16) {
    __builtin_memcpy(to.data, from.data, static_cast<std::size_t>(count) * (from.bf16 ? 2 : 4));
    return;
  }
  typed(from, [&](const auto* a) {
    typed(to, [&](auto* out) {
      for_vectors(count, [=](std::int64_t i, auto part) { part.store(out + i, part.load(a + i)); });
    });
  });
}

void add(In a, In b, Out out, std::int64_t count) {
  typed(a, [&](const auto* left) {
    typed(b, [&](const auto* right) {
      typed(out, [&](auto* sum) {
        for_vectors(
            count, [=](std::int64_t i, auto part) { part.store(sum + i, part.load(left + i) + part.load(right + i)); });
      });
    });
  });
}

void add_scaled(const float* x, float scale, float* sum, std::int64_t count) {
  for_vectors(count, [=](std::int64_t i, auto part) {
    part.store(sum + i, part.load(sum + i) + part.load(x + i) * broadcast(scale));
  });
}

void softcap(Out x, std::int64_t count, float cap) {
  typed(x, [&](auto* values) {
    for_vectors(count, [=](std::int64_t i, auto part) {
      part.store(values + i, Softcap::value(part.load(values + i), broadcast(cap)));
    });
  });
}

void softcap_backward(const float* y, float cap, float* d, std::int64_t count) {
  for_vectors(count, [=](std::int64_t i, auto part) {
    part.store(d + i, part.load(d + i) * Softcap::slope_of(part.load(y + i), broadcast(cap)));
  });
}

void gelu(GeluKind kind, In x, Out y, std::int64_t count) {
  element::with_gelu<VectorMath>(kind, [&](auto form) {
    typed(x, [&](const auto* from) {
      typed(y, [&](auto* to) {
        for_vectors(count, [=](std::int64_t i, auto part) { part.store(to + i, form.value(part.load(from + i))); });
      });
    });
  });
}

/// Computes dx, which has x's storage type.
void gelu_backward(GeluKind kind, In dy, In x, Out dx, std::int64_t count) {
  element::with_gelu<VectorMath>(kind, [&](auto form) {
    typed(dy, [&](const auto* gradient) {
      typed(x, [&](const auto* input) {
        typed(dx, [&](auto* to) {
          for_vectors(count, [=](std::int64_t i, auto part) {
            part.store(to + i, part.load(gradient + i) * form.slope(part.load(input + i)));
          });
        });
      });
    });
  });
}

/// Gates and ups of consecutive columns.
struct GatePairs {
  Vec gate;
  Vec up;
};

template <std::int32_t... lane>
struct Lanes {
  static constexpr std::int32_t width = vector_width;
  MAESTRO_INLINE static GatePairs parted(Vec first, Vec second) {
    return {__builtin_shufflevector(first, second, (2 * lane)...),
            __builtin_shufflevector(first, second, (2 * lane + 1)...)};
  }
  MAESTRO_INLINE static Vec merged(Vec gate, Vec up, bool upper) {
    if (upper) return __builtin_shufflevector(gate, up, (lane / 2 + width / 2 + lane % 2 * width)...);
    return __builtin_shufflevector(gate, up, (lane / 2 + lane % 2 * width)...);
  }
};
template <std::int32_t... lane>
Lanes<lane...> lanes_of(std::integer_sequence<std::int32_t, lane...>);
using AllLanes = decltype(lanes_of(std::make_integer_sequence<std::int32_t, vector_width>()));

/// Reads the pairs of columns [i, i + vector) of a row of 2 `features`, which is [gate | up] or alternates.
template <bool alternate, class T>
MAESTRO_INLINE GatePairs load_pairs(const T* row, std::int64_t i, std::int64_t features, Whole part) {
  if constexpr (!alternate) return {part.load(row + i), part.load(row + features + i)};
  return AllLanes::parted(load(row + 2 * i), load(row + 2 * i + vector_width));
}
template <bool alternate, class T>
MAESTRO_INLINE GatePairs load_pairs(const T* row, std::int64_t i, std::int64_t features, Part part) {
  if constexpr (!alternate) return {part.load(row + i), part.load(row + features + i)};
  T padded[2 * vector_width] = {};
  for (std::int64_t k = 0; k < 2 * part.count; ++k) padded[k] = row[2 * i + k];
  return AllLanes::parted(load(padded), load(padded + vector_width));
}
template <bool alternate, class T>
MAESTRO_INLINE void store_pairs(T* row, std::int64_t i, std::int64_t features, Whole part, const GatePairs& pairs) {
  if constexpr (!alternate) {
    part.store(row + i, pairs.gate);
    part.store(row + features + i, pairs.up);
  } else {
    store(row + 2 * i, AllLanes::merged(pairs.gate, pairs.up, false));
    store(row + 2 * i + vector_width, AllLanes::merged(pairs.gate, pairs.up, true));
  }
}
template <bool alternate, class T>
MAESTRO_INLINE void store_pairs(T* row, std::int64_t i, std::int64_t features, Part part, const GatePairs& pairs) {
  if constexpr (!alternate) {
    part.store(row + i, pairs.gate);
    part.store(row + features + i, pairs.up);
  } else {
    T padded[2 * vector_width];
    store_pairs<true>(padded, 0, features, Whole(), pairs);
    for (std::int64_t k = 0; k < 2 * part.count; ++k) row[2 * i + k] = padded[k];
  }
}

void glu(const GluGate& gate, In x, Out y, std::int64_t rows, std::int64_t features) {
  element::with_glu<VectorMath>(gate, [&](auto unit) {
    constexpr bool alternate = decltype(unit)::alternate;
    typed(x, [&](const auto* in) {
      typed(y, [&](auto* out) {
        for (std::int64_t row = 0; row < rows; ++row) {
          const auto* from = in + row * 2 * features;
          auto* to = out + row * features;
          for_vectors(features, [=](std::int64_t i, auto part) {
            const GatePairs pairs = load_pairs<alternate>(from, i, features, part);
            part.store(to + i, unit.value(pairs.gate, pairs.up));
          });
        }
      });
    });
  });
}

void glu_backward(const GluGate& gate, In dy, In x, Out dx, std::int64_t rows, std::int64_t features) {
  element::with_glu<VectorMath>(gate, [&](auto unit) {
    constexpr bool alternate = decltype(unit)::alternate;
    typed(dy, [&](const auto* gradients) {
      typed(x, [&](const auto* in) {
        typed(dx, [&](auto* out) {
          for (std::int64_t row = 0; row < rows; ++row) {
            const auto* gradient = gradients + row * features;
            const auto* from = in + row * 2 * features;
            auto* to = out + row * 2 * features;
            for_vectors(features, [=](std::int64_t i, auto part) {
              const GatePairs pairs = load_pairs<alternate>(from, i, features, part);
              const auto found = unit.gradient(part.load(gradient + i), pairs.gate, pairs.up);
              store_pairs<alternate>(to, i, features, part, {found.dgate, found.dup});
            });
          }
        });
      });
    });
  });
}

}  // namespace

const PointwiseKernels pointwise_kernels = {cast, add,           add_scaled, softcap,     softcap_backward,
                                            gelu, gelu_backward, glu,        glu_backward};

}  // namespace maestro::cpu::MAESTRO_ISA_NAMESPACE
