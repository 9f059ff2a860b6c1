// SPDX-License-Identifier: Apache-2.0
// The router of a mixture of experts for a single token, for every backend. Sums run in the order of the experts.
#pragma once

#include <cstdint>

#include "runtime/ops/element_math.hpp"
#include "runtime/ops/expert_operators.hpp"

namespace maestro::element {

inline constexpr int most_router_groups = 32;

/// A token's scores and the router's settings.
struct RouterRow {
  const float* logits = nullptr;  // (E)
  const float* scores = nullptr;  // (E), which the choice compares: logits, or score()
  int experts = 0;
  int chosen = 0;
  RouterKind kind = RouterKind::softmax;
  float scale = 1;
  bool divided = false;
  float divisor_addend = 0;
  int groups = 1;
  int top_groups = 1;

  /// Returns the score of an expert for kind sigmoid.
  MAESTRO_HD static float score(float logit, float bias) { return sigmoid(logit) + bias; }

  /// Writes the best experts, best first (chosen).
  MAESTRO_HD void choose(std::int32_t* best) const {
    const std::uint32_t open = top_mask();
    const int size = experts / groups;
    float last_score = 0;
    for (int slot = 0; slot < chosen; ++slot) {
      const int last = slot == 0 ? -1 : best[slot - 1];
      int found = -1;
      float found_score = 0;
      for (int i = 0; i < experts; ++i) {
        const float own = scores[i];
        // Experts come in the order (score descending, index), so the next is the best of those after the last.
        const bool after = last < 0 || own < last_score || (own == last_score && i > last);
        if (!after || (found >= 0 && !(own > found_score)) || (open >> (i / size) & 1U) == 0) continue;
        found = i;
        found_score = own;
      }
      // Scores that are not numbers compare with nothing: the first expert that is not taken yet.
      for (int i = 0; found < 0 && i < experts; ++i) {
        bool taken = false;
        for (int j = 0; j < slot; ++j) taken = taken || best[j] == i;
        if (!taken) found = i;
      }
      best[slot] = found;
      last_score = found_score;
    }
  }

  /// Writes the weights of the experts `best` (chosen).
  MAESTRO_HD void weigh(const std::int32_t* best, float* weights) const {
    if (kind == RouterKind::sigmoid) {
      float sum = 0;
      for (int slot = 0; slot < chosen; ++slot) {
        weights[slot] = sigmoid(logits[best[slot]]);
        sum += weights[slot];
      }
      const float factor = divided ? scale / (sum + divisor_addend) : scale;
      for (int slot = 0; slot < chosen; ++slot) weights[slot] *= factor;
      return;
    }
    const bool all = kind == RouterKind::softmax;
    float most = logits[best[0]];
    for (int i = 0; all && i < experts; ++i) most = logits[i] > most ? logits[i] : most;
    float sum = 0;
    for (int i = 0; i < (all ? experts : chosen); ++i) sum += exponential(logits[all ? i : best[i]] - most);
    for (int slot = 0; slot < chosen; ++slot) weights[slot] = scale * exponential(logits[best[slot]] - most) / sum;
  }

  /// Writes the scores' gradients (E), from the weights' gradients (chosen). Formulas: the derivatives of weigh().
  MAESTRO_HD void gradient(const std::int32_t* best, const float* weights, const float* dweights,
                           float* dlogits) const {
    for (int i = 0; i < experts; ++i) dlogits[i] = 0;
    if (kind == RouterKind::sigmoid) return sigmoid_gradient(best, dweights, dlogits);
    float dot = 0;  // of the probabilities and their gradients
    for (int slot = 0; slot < chosen; ++slot) dot += dweights[slot] * weights[slot];
    if (kind == RouterKind::chosen) {
      for (int slot = 0; slot < chosen; ++slot) {
        dlogits[best[slot]] = weights[slot] * (dweights[slot] - dot / scale);
      }
      return;
    }
    float most = logits[0];
    for (int i = 1; i < experts; ++i) most = logits[i] > most ? logits[i] : most;
    float sum = 0;
    for (int i = 0; i < experts; ++i) sum += exponential(logits[i] - most);
    for (int i = 0; i < experts; ++i) dlogits[i] = -exponential(logits[i] - most) / sum * dot;
    for (int slot = 0; slot < chosen; ++slot) dlogits[best[slot]] += weights[slot] * dweights[slot];
  }

 private:
  MAESTRO_HD float group_score(int group) const {
    const int size = experts / groups;
    const float* of = scores + group * size;
    float best = of[0];
    float second = size > 1 && of[1] <= best ? of[1] : best;
    for (int i = 1; i < size; ++i) {
      if (of[i] > best) {
        second = best;
        best = of[i];
      } else if (i > 1 && of[i] > second) {
        second = of[i];
      }
    }
    return kind == RouterKind::sigmoid && size > 1 ? best + second : best;
  }

  /// Returns a bit for each group whose experts may be chosen.
  MAESTRO_HD std::uint32_t top_mask() const {
    if (groups == top_groups) return 0xffffffffU;
    std::uint32_t mask = 0;
    for (int group = 0; group < groups; ++group) {
      const float own = group_score(group);
      int better = 0;
      for (int other = 0; other < groups; ++other) {
        const float rival = group_score(other);
        if (rival > own || (rival == own && other < group)) ++better;
      }
      if (better < top_groups) mask |= 1U << group;
    }
    return mask;
  }

  MAESTRO_HD void sigmoid_gradient(const std::int32_t* best, const float* dweights, float* dlogits) const {
    float sum = divisor_addend;
    float dot = 0;
    for (int slot = 0; slot < chosen; ++slot) {
      const float s = sigmoid(logits[best[slot]]);
      sum += s;
      dot += dweights[slot] * s;
    }
    for (int slot = 0; slot < chosen; ++slot) {
      const float s = sigmoid(logits[best[slot]]);
      const float slope = divided ? (dweights[slot] - dot / sum) / sum : dweights[slot];
      dlogits[best[slot]] = scale * slope * s * (1 - s);
    }
  }
};

/// Returns an expert's value after StepCounts.
MAESTRO_HD float stepped_by_count(float value, float count, double mean, double rate) {
  if (rate == 0) return static_cast<float>(count / mean);
  const double side = count < mean ? rate : count > mean ? -rate : 0;
  return static_cast<float>(value + side);
}

/// Returns the settings for rows of `experts` scores; the row's pointers are not set.
inline RouterRow router_row(const RouteOptions& options, std::int64_t experts, std::int64_t chosen) {
  RouterRow row;
  row.experts = static_cast<int>(experts);
  row.chosen = static_cast<int>(chosen);
  row.kind = options.kind;
  row.scale = static_cast<float>(options.scale);
  row.divided = options.divided;
  row.divisor_addend = static_cast<float>(options.divisor_addend);
  row.groups = static_cast<int>(options.groups);
  row.top_groups = static_cast<int>(options.top_groups);
  return row;
}

}  // namespace maestro::element
