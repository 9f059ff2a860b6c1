// SPDX-License-Identifier: Apache-2.0
// Checks whether a decoder's weights were trained on the tokens that the corpus sends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/job/job_table.hpp"
#include "sections/decoder/decoder_shape.hpp"

namespace maestro {

/// Rows that an output layer of the corpus' tokenizer may have beyond its tokens: layers are padded to round numbers,
/// by a few hundred rows at most.
inline constexpr std::int64_t most_rows_beyond_tokens = 1024;

/// Returns the folder of a section's weights if it holds a tokenizer and the table does not have foreign_tokens = true.
[[nodiscard]] std::optional<std::string> tokenizer_folder(const JobTable& section);

/// Throws JobError if the folder at `weights` of a decoder's table holds a tokenizer with other tokens than the
/// corpus', or holds none and its output layer of `rows` exceeds the corpus' tokens by more than
/// most_rows_beyond_tokens rows, unless the table has foreign_tokens = true.
void check_tokens(const JobTable& section, std::int64_t rows, const DataShape& data);

}  // namespace maestro
