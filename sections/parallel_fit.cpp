// SPDX-License-Identifier: Apache-2.0
#include "sections/parallel_fit.hpp"

#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <tuple>

#include "runtime/core/result.hpp"

namespace maestro {

namespace {

/// The obstacle to a layout: the degree at fault and the reason; without a key if the layout fits.
struct Misfit {
  const char* key = nullptr;
  std::string why;
};

std::string cannot_be_cut(std::int64_t count, const char* what, const Layout& layout, std::int64_t parts) {
  std::string into = std::to_string(parts);
  if (parts != layout.tensor && layout.tensor > 1) into = "tensor * context = " + into;
  return std::to_string(count) + " " + what + " cannot be cut in " + into;
}

Misfit misfit(const CutSizes& sizes, const Layout& layout) {
  for (const auto& [count, what] : {std::pair{sizes.heads, "heads"}, std::pair{sizes.kv_heads, "kv_heads"},
                                    std::pair{sizes.delta_key_heads, "delta_key_heads"}, std::pair{sizes.ffn, "ffn"}}) {
    if (count % layout.tensor != 0) return {"tensor", cannot_be_cut(count, what, layout, layout.tensor)};
  }
  if (sizes.delta_key_heads % layout.ranks() != 0) {
    return {"context", cannot_be_cut(sizes.delta_key_heads, "delta_key_heads", layout, layout.ranks())};
  }
  if (sizes.vocabulary > 0 && sizes.vocabulary < layout.tensor) {
    return {"tensor", std::string(sizes.vocabulary_name) + " of " + std::to_string(sizes.vocabulary) +
                          " cannot be cut in " + std::to_string(layout.tensor)};
  }
  return {};
}

/// Returns the nearest fitting layout by distance, then by ranks.
Layout nearest(const CutSizes& sizes, const Layout& wanted) {
  Layout best;
  const auto rank = [&](const Layout& layout) {
    const std::int64_t distance = std::abs(layout.tensor - wanted.tensor) + std::abs(layout.context - wanted.context);
    return std::tuple(distance, layout.ranks(), layout.context);
  };
  // A single rank always fits, so nothing beyond twice the wanted degrees is nearer.
  for (std::int64_t tensor = 1; tensor <= 2 * wanted.tensor; ++tensor) {
    for (std::int64_t context = 1; context <= 2 * wanted.context; ++context) {
      const Layout layout{tensor, context};
      if (fits(sizes, layout) && rank(layout) < rank(best)) best = layout;
    }
  }
  return best;
}

}  // namespace

bool fits(const CutSizes& sizes, const Layout& layout) {
  return misfit(sizes, layout).key == nullptr;
}

void check_parallel_fit(const std::string& section, const CutSizes& sizes, const Layout& layout) {
  const Misfit found = misfit(sizes, layout);
  if (found.key == nullptr) return;
  const bool tensor = found.key == std::string("tensor");
  const Layout other = nearest(sizes, layout);
  std::string advice = "tensor = " + std::to_string(other.tensor);
  if (layout.context > 1 || other.context > 1) advice += ", context = " + std::to_string(other.context);
  throw JobError(section + "." + found.key + " = " + std::to_string(tensor ? layout.tensor : layout.context) + ": " +
                 found.why + "; nearest that fits: " + advice);
}

void check_expert_fit(const std::string& section, std::int64_t experts, const Layout& layout) {
  if (layout.expert == 1) return;
  const std::string key = section + ".expert = " + std::to_string(layout.expert) + ": ";
  if (experts == 0) throw JobError(key + "the section has no experts; leave expert out");
  const std::int64_t ranks = layout.ranks(), most = std::gcd(experts, ranks);
  if (most % layout.expert == 0) return;
  const auto distance = [&](std::int64_t expert) { return std::abs(expert - layout.expert); };
  std::int64_t nearest = 1;
  for (std::int64_t expert = 1; expert <= most; ++expert) {
    if (most % expert == 0 && distance(expert) <= distance(nearest)) nearest = expert;
  }
  const std::string why = ranks % layout.expert == 0
                              ? std::to_string(experts) + " experts cannot be cut in "
                              : "tensor * context = " + std::to_string(ranks) + " ranks cannot be cut in ";
  throw JobError(key + why + std::to_string(layout.expert) +
                 "; nearest that fits: expert = " + std::to_string(nearest));
}

void check_stage(const std::string& section, const Stage& stage, std::int64_t layers) {
  if (stage.count == 1) return;
  const std::string count = std::to_string(stage.count);
  if (stage.count > layers) {
    throw JobError(section + ".pipeline = " + count + ": " + std::to_string(layers) + " layers cannot be cut in " +
                   count + "; nearest that fits: pipeline = " + std::to_string(layers));
  }
  if (stage.first_layer >= 0 && stage.layers > 0 && stage.first_layer + stage.layers <= layers) return;
  throw std::invalid_argument(section + ": stage " + std::to_string(stage.index) + " of " + count + " has " +
                              std::to_string(stage.layers) + " layers from " + std::to_string(stage.first_layer) +
                              " of " + std::to_string(layers));
}

void check_uncut(const std::string& section, const Stage& stage, std::string_view why) {
  if (stage.count == 1) return;
  throw JobError(section + ".pipeline = " + std::to_string(stage.count) + ": " + std::string(why) +
                 "; leave pipeline at 1");
}

}  // namespace maestro
