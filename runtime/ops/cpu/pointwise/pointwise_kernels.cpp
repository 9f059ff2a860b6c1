// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/pointwise/pointwise_kernels.hpp"

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

template <class Gated>
void glu(In x, Out y, std::int64_t rows, std::int64_t features) {
  typed(x, [&](const auto* in) {
    typed(y, [&](auto* out) {
      for (std::int64_t row = 0; row < rows; ++row) {
        const auto* gate = in + row * 2 * features;
        const auto* up = gate + features;
        auto* to = out + row * features;
        for_vectors(features, [=](std::int64_t i, auto part) {
          part.store(to + i, Gated::value(part.load(gate + i), part.load(up + i)));
        });
      }
    });
  });
}

template <class Gated>
void glu_backward(In dy, In x, Out dx, std::int64_t rows, std::int64_t features) {
  typed(dy, [&](const auto* gradients) {
    typed(x, [&](const auto* in) {
      typed(dx, [&](auto* out) {
        for (std::int64_t row = 0; row < rows; ++row) {
          const auto* gradient = gradients + row * features;
          const auto* gate = in + row * 2 * features;
          auto* dgate = out + row * 2 * features;
          for_vectors(features, [=](std::int64_t i, auto part) {
            const Gated found =
                Gated::gradient(part.load(gradient + i), part.load(gate + i), part.load(gate + features + i));
            part.store(dgate + i, found.dgate);
            part.store(dgate + features + i, found.dup);
          });
        }
      });
    });
  });
}

}  // namespace

const PointwiseKernels pointwise_kernels = {
    cast,          add,         add_scaled,           softcap,    softcap_backward,   gelu,
    gelu_backward, glu<Swiglu>, glu_backward<Swiglu>, glu<Geglu>, glu_backward<Geglu>};

}  // namespace maestro::cpu::MAESTRO_ISA_NAMESPACE
