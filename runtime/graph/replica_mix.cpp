// SPDX-License-Identifier: Apache-2.0
#include "runtime/graph/replica_mix.hpp"

#include <algorithm>
#include <numeric>

namespace maestro {

std::string text_of_mix(const std::vector<std::int64_t>& contexts) {
  std::string text;
  for (auto first = contexts.begin(); first != contexts.end();) {
    const auto end = std::find_if(first, contexts.end(), [&](std::int64_t context) { return context != *first; });
    const auto count = end - first;
    text += (text.empty() ? "{" : ", {") + (count > 1 ? "count = " + std::to_string(count) + ", " : std::string()) +
            "context = " + std::to_string(*first) + "}";
    first = end;
  }
  return "[" + text + "]";
}

std::vector<std::int64_t> nearest_mix(std::vector<std::int64_t> contexts, std::int64_t part, std::int64_t devices) {
  const auto needed = [&] { return part * std::accumulate(contexts.begin(), contexts.end(), std::int64_t{0}); };
  while (contexts.size() > 1 && needed() > devices) {
    std::int64_t& widest = *std::ranges::max_element(contexts);
    if (widest == 1) {
      contexts.pop_back();
      continue;
    }
    std::int64_t narrower = widest / 2;
    while (widest % narrower != 0) --narrower;
    widest = narrower;
  }
  return contexts;
}

}  // namespace maestro
