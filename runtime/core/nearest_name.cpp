// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/nearest_name.hpp"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "runtime/core/printable.hpp"

namespace maestro {
namespace {

// A pasted paragraph is not a misspelt key; the bound keeps the quadratic distance cheap for any input.
constexpr std::size_t longest_name = 128;

std::string folded(std::string_view name) {
  std::string out(name);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '-') c = '_';
  }
  return out;
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, substituted});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    std::swap(before_last, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::optional<std::string> nearest_name(std::string_view name, std::span<const std::string> candidates) {
  if (name.empty() || name.size() > longest_name) return std::nullopt;
  const std::string wanted = folded(name);
  const std::string* best = nullptr;
  std::pair<std::size_t, std::size_t> best_distance{};
  for (const auto& candidate : candidates) {
    if (candidate.size() > longest_name) continue;
    const std::pair distance{edit_distance(wanted, folded(candidate)), edit_distance(name, candidate)};
    if (distance.first > (std::max(name.size(), candidate.size()) + 2) / 3) continue;
    if (best != nullptr && distance >= best_distance) continue;
    best = &candidate;
    best_distance = distance;
  }
  if (best == nullptr) return std::nullopt;
  return *best;
}

std::string nearest_text(std::string_view name, std::span<const std::string> known) {
  constexpr std::size_t most = 12;
  if (const auto near = nearest_name(name, known)) return "; did you mean '" + printable(*near) + "'?";
  std::string listed;
  for (const std::string& each : known.first(std::min(known.size(), most))) {
    listed += (listed.empty() ? "; there are: " : ", ") + printable(each);
  }
  return listed + (known.size() > most ? ", ..." : "");
}

}  // namespace maestro
