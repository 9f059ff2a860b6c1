// SPDX-License-Identifier: Apache-2.0
// Where a rank's rows of a table lie that is cut over the vocabulary.
#pragma once

#include <cstdint>

namespace maestro {

class Communicator;

/// Rank r of `group` holds the tokens row_part(vocabulary, size, r) (runtime/graph/layout.hpp): of a table (V, C) those
/// rows, of logits (M, V) those columns. Without a group the table is whole and the other members are ignored.
struct VocabularyPart {
  Communicator* group = nullptr;
  std::int64_t vocabulary = 0;  ///< V of the whole table
  std::int64_t first = 0;       ///< the rank's first token; it has as many as its table has rows
};

}  // namespace maestro
