// SPDX-License-Identifier: Apache-2.0
// The gated short convolution between two products (LFM2, Liquid AI 2025): y = out_gate conv(in_gate x), each of C
// channels filtered over its last rows.
#pragma once

#include "sections/transformer_block.hpp"

namespace maestro {

/// Returns the convolution of x (M_c, 3 C) act = [in_gate | out_gate | x], (M_c, C) act, with a layer's cache if there
/// is one. C counts the channels of the tensor rank; over context ranks, rows that a rank lacks are exchanged.
[[nodiscard]] Var short_convolution(Tape& tape, const Var& x, const Affine& filter, const BlockOptions& options,
                                    const SequenceLayout& layout);

}  // namespace maestro
