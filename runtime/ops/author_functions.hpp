// SPDX-License-Identifier: Apache-2.0
// Differentiable operators for heads and losses: a reward head, a contrastive loss, a router. A part of functions.hpp,
// whose rules hold here: shapes that do not fit throw ShapeError, and gradients that are not needed are skipped. Values
// are f32 or bf16 in any mix, unless noted; arithmetic is f32.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/ops/tape.hpp"

namespace maestro {

class Parameter;

/// Returns a b, elementwise, (M, C) of a's dtype. b is (M, C); or (M, 1), a factor for each row; or (1, C), for each
/// column.
Var mul(Tape& tape, const Var& a, const Var& b);
/// Returns x (M, C) times `factors` (C), one for each column, of x's dtype.
Var mul(Tape& tape, const Var& x, Parameter& factors);
/// Returns factor x, of x's dtype.
Var scale(Tape& tape, const Var& x, double factor);
/// Returns a - b, (M, C) f32.
Var subtract(Tape& tape, const Var& a, const Var& b);
/// Return the function of each element, of x's dtype.
Var sigmoid(Tape& tape, const Var& x);
Var tanh(Tape& tape, const Var& x);
/// Return the softmax of each row of x (M, C), or its logarithm: (M, C) f32.
Var softmax(Tape& tape, const Var& x);
Var log_softmax(Tape& tape, const Var& x);
/// Returns the dot products of equal rows, a (M, C) with b (M, C): (M, 1) f32.
Var dot(Tape& tape, const Var& a, const Var& b);
/// Returns sigmoid(sign(a) sqrt(max(|a|, 1e-6))) with a = factor scores: (M, 1) f32 from scores (M, 1) f32
/// (MemoryGate).
Var memory_gate(Tape& tape, const Var& scores, double factor);
/// Returns the cosines of equal rows, a (M, C) with b (M, C): (M, 1) f32, as torch.nn.functional.cosine_similarity;
/// lengths count as at least `epsilon`.
Var cosine(Tape& tape, const Var& a, const Var& b, double epsilon = 1e-8);
/// Returns mean((a - b)^2) by row, a (M, C) with b (M, C): (M, 1) f32.
Var mse(Tape& tape, const Var& a, const Var& b);
/// Return each sample's sum, or mean, over its rows in x (M, C): (S, C) f32. A sample without rows has zeros.
Var sum_by_sample(Tape& tape, const Var& x, const SequenceLayout& layout);
Var mean_by_sample(Tape& tape, const Var& x, const SequenceLayout& layout);
/// Returns the columns of all parts (M, C1), (M, C2), ... side by side: (M, C1 + C2 + ...), of the parts' one dtype.
Var concat(Tape& tape, const std::vector<Var>& parts);
/// Returns columns [first, first + count) of x: (M, count) of x's dtype.
Var slice(Tape& tape, const Var& x, std::int64_t first, std::int64_t count);
/// Returns the same values, in the same order, with another shape.
Var reshaped(Tape& tape, const Var& x, Shape shape);
/// Ends in a loss: returns the sum of values (M, 1) f32 as `total` and M as `tokens`, and starts the backward pass with
/// the gradient `scale` of each value. Report it by Outputs::loss().
Pending<LossSums> sum_loss(Tape& tape, const Var& values, double scale);

}  // namespace maestro
