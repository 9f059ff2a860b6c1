// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of decoders.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/parquet/value_decoder.hpp"

namespace maestro::parquet {

/// Returns the text of the JobError that a call throws, or "accepted".
template <class Call>
std::string refusal(Call&& call) {
  try {
    std::forward<Call>(call)();
    return "accepted";
  } catch (const JobError& error) {
    return error.what();
  }
}

inline std::vector<std::string> next_values(ValueDecoder& decoder, int count) {
  std::vector<std::string> made;
  for (int at = 0; at < count; ++at) made.emplace_back(decoder.next());
  return made;
}

}  // namespace maestro::parquet
