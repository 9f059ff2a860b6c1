// SPDX-License-Identifier: Apache-2.0
// Operators for the heads and losses of section authors. A part of operators.hpp, with its letters and dtypes. Floating
// tensors are f32 or bf16 in any mix, unless noted; arithmetic is f32, and a row's sums have a fixed order.
#pragma once

#include <array>
#include <cstdint>

#include "runtime/core/pending.hpp"
#include "runtime/core/tensor.hpp"
#include "runtime/ops/distillation_options.hpp"

namespace maestro {

/// y = factor x.
struct Scale {
  Tensor x{};  ///< (M, C)
  Tensor y{};  ///< (M, C); may be x
  double factor = 1;
};

/// out = a b, elementwise; b may have a single column, a factor for each row, or a single row, one for each column.
struct Multiply {
  Tensor a{};    ///< (M, C)
  Tensor b{};    ///< (M, C), (M, 1) or (1, C)
  Tensor out{};  ///< (M, C); may be a, or b of the same shape
};

enum class Curve : std::uint8_t { sigmoid, tanh };

/// y = curve(x).
struct Curved {
  Tensor x{};  ///< (M, C)
  Tensor y{};  ///< (M, C); may be x
  Curve curve = Curve::sigmoid;
};

/// Computes dx from the result y: dy y (1 - y) for a sigmoid, dy (1 - y^2) for tanh.
struct CurvedBackward {
  Tensor dy{};
  Tensor y{};
  Tensor dx{};  ///< may be dy
  Curve curve = Curve::sigmoid;
};

/// gate = sigmoid(sign(a) sqrt(max(|a|, 1e-6))) with a = factor scores: how far a row reads a memory
/// (Qwen4ExpTextPLELayer of transformers 5.24, after Engram, arXiv 2601.07372).
struct MemoryGate {
  Tensor scores{};  ///< (M, 1) f32
  Tensor gate{};    ///< (M, 1) f32
  double factor = 1;
};

/// dscores = factor dgate gate (1 - gate) / (2 sqrt(|a|)) where |a| > 1e-6, else 0.
struct MemoryGateBackward {
  Tensor dgate{};    ///< (M, 1) f32
  Tensor scores{};   ///< (M, 1) f32
  Tensor dscores{};  ///< (M, 1) f32; may be dgate
  double factor = 1;
};

/// The softmax of each row, or with `log` its logarithm.
struct Softmax {
  Tensor x{};  ///< (M, C)
  Tensor y{};  ///< (M, C) f32
  bool log = false;
};

/// Computes dx = y (dy - sum(dy y)), and with `log` dx = dy - exp(y) sum(dy), with sums over a row.
struct SoftmaxBackward {
  Tensor dy{};  ///< (M, C) f32
  Tensor y{};   ///< (M, C) f32
  Tensor dx{};  ///< (M, C)
  bool log = false;
};

/// Dot products of equal rows.
struct RowDot {
  Tensor a{};  ///< (M, C)
  Tensor b{};  ///< (M, C)
  Tensor y{};  ///< (M, 1) f32
};

/// Cosines of equal rows: a b / (|a| |b|), with lengths of at least `epsilon`, as in
/// torch.nn.functional.cosine_similarity.
struct Cosine {
  Tensor a{};        ///< (M, C)
  Tensor b{};        ///< (M, C)
  Tensor y{};        ///< (M, 1) f32
  Tensor lengths{};  ///< (M, 2) f32: |a| and |b|, at least epsilon
  double epsilon = 1e-8;
};

/// Computes da = dy (b / (|a| |b|) - y a / |a|^2), and db likewise. A length at its lower bound counts as constant.
struct CosineBackward {
  Tensor dy{};  ///< (M, 1) f32
  Tensor a{};
  Tensor b{};
  Tensor y{};
  Tensor lengths{};
  Tensor da{};  ///< (M, C), or undefined: not wanted
  Tensor db{};  ///< (M, C), or undefined: not wanted
  double epsilon = 1e-8;
};

/// Copies columns [from_column, from_column + columns) to columns [to_column, ...), or adds to them.
struct CopyColumns {
  Tensor from{};  ///< (M, A)
  Tensor to{};    ///< (M, B), other memory
  std::int64_t from_column = 0;
  std::int64_t to_column = 0;
  std::int64_t columns = 0;
  bool accumulate = false;
};

/// The sum of all values, in f64 and a fixed order, as `total` and `ce`; `tokens` is the number of values.
struct SumLoss {
  using Result = Pending<LossSums>;
  Tensor values{};  ///< (M, 1) f32
};

struct Custom;

/// An operator of a plug-in: a function for each backend. Lives as long as the program, since recorded passes refer to
/// it. A backend without a function refuses the operator with a JobError.
struct CustomOperator {
  const char* name = "";
  /// Computes the call, on host memory.
  void (*cpu)(const Custom& call) = nullptr;
  /// Queues the call's kernels on `stream`, a cudaStream_t, and returns; tensors are in memory of its device. The
  /// stream may be recorded as a graph, so that nothing but kernels and copies on the stream is allowed: no allocation,
  /// no wait.
  void (*cuda)(const Custom& call, void* stream) = nullptr;
  double flops_per_element = 1;  ///< for plans, by element of the first tensor
};

/// A call of a plug-in's operator. The operator defines the meaning of tensors and numbers; equal calls must compute
/// equal results.
struct Custom {
  const CustomOperator* op = nullptr;
  std::array<Tensor, 8> tensors{};  ///< undefined: unused
  std::array<double, 8> numbers{};
};

}  // namespace maestro
