// SPDX-License-Identifier: Apache-2.0
// Location of a rank's rows in a table that is cut over the vocabulary.
#pragma once

#include <cstdint>

namespace maestro {

class Communicator;

/// A rank's part: rank r of `group` holds the tokens row_part(vocabulary, size, r) (runtime/graph/layout.hpp), which
/// are rows of a table (V, C) and columns of logits (M, V). Without a group the table is not cut and the other members
/// are ignored.
struct VocabularyPart {
  Communicator* group = nullptr;
  std::int64_t vocabulary = 0;  ///< V of the uncut table
  std::int64_t first = 0;       ///< the rank's first token; it has as many as its table has rows
};

}  // namespace maestro
