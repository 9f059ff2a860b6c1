// SPDX-License-Identifier: Apache-2.0
// The routers of mixtures of experts, token by token. Bodies for for_rows_kernel. For kernel sources.
#pragma once

#include "runtime/ops/cuda/element_access.cuh"
#include "runtime/ops/routing_math.hpp"

namespace maestro::cuda {

/// An item is an expert.
struct RouterScores {
  const float* logits;  // (M, E)
  const float* bias;    // (E) or null
  float* scores;        // (M, E)
  int experts;

  __device__ void operator()(std::int64_t token, int expert) const {
    const std::int64_t at = token * experts + expert;
    scores[at] = element::RouterRow::score(logits[at], bias == nullptr ? 0.0F : bias[expert]);
  }
};

struct RoutedTokens {
  element::RouterRow settings;
  const float* logits;    // (M, E)
  const float* scores;    // (M, E)
  std::int32_t* experts;  // (M, k)
  float* weights;         // (M, k)

  __device__ void operator()(std::int64_t token, int) const {
    element::RouterRow row = settings;
    row.logits = logits + token * row.experts;
    row.scores = scores + token * row.experts;
    std::int32_t* best = experts + token * row.chosen;
    row.choose(best);
    row.weigh(best, weights + token * row.chosen);
  }
};

struct RouterGradients {
  element::RouterRow settings;
  const float* logits;          // (M, E)
  const std::int32_t* experts;  // (M, k)
  const float* weights;         // (M, k)
  const float* dweights;        // (M, k)
  float* dlogits;               // (M, E)

  __device__ void operator()(std::int64_t token, int) const {
    element::RouterRow row = settings;
    row.logits = logits + token * row.experts;
    const std::int64_t first = token * row.chosen;
    row.gradient(experts + first, weights + first, dweights + first, dlogits + token * row.experts);
  }
};

/// Counts the routes of a sample, a row, to an expert, an item.
struct SampleCounts {
  const std::int32_t* chosen;  // (M, k)
  const std::int32_t* starts;  // (S + 1)
  float* counts;               // (S, E)
  int slots;
  int experts;

  __device__ void operator()(std::int64_t sample, int expert) const {
    std::int32_t count = 0;
    const std::int64_t end = std::int64_t{starts[sample + 1]} * slots;
    for (std::int64_t route = std::int64_t{starts[sample]} * slots; route < end; ++route) {
      count += chosen[route] == expert ? 1 : 0;
    }
    counts[sample * experts + expert] = static_cast<float>(count);
  }
};

/// Updates an expert, a row.
struct SteppedByCounts {
  float* values;  // (E)
  float* counts;  // (E)
  double mean;
  double rate;

  __device__ void operator()(std::int64_t expert, int) const {
    values[expert] = element::stepped_by_count(values[expert], counts[expert], mean, rate);
    counts[expert] = 0;
  }
};

/// Counts the routes of an expert, a row, to offsets[expert + 1].
struct CountedRoutes {
  const std::int32_t* experts;  // (R)
  std::int64_t routes;
  std::int32_t* offsets;  // (E + 1)

  __device__ void operator()(std::int64_t expert, int) const {
    std::int32_t count = 0;
    for (std::int64_t route = 0; route < routes; ++route) count += experts[route] == expert ? 1 : 0;
    offsets[expert + 1] = count;
  }
};

/// Turns counts into offsets; the only row.
struct SummedCounts {
  std::int32_t* offsets;  // (E + 1)
  int experts;

  __device__ void operator()(std::int64_t, int) const {
    offsets[0] = 0;
    for (int expert = 0; expert < experts; ++expert) offsets[expert + 1] += offsets[expert];
  }
};

/// Places the routes of an expert, a row, in their order.
struct PlacedRoutes {
  const std::int32_t* experts;  // (R)
  std::int64_t count;
  int slots;
  const std::int32_t* offsets;  // (E + 1)
  std::int32_t* tokens;         // (R)
  std::int32_t* routes;         // (R)
  std::int32_t* places;         // (R)

  __device__ void operator()(std::int64_t expert, int) const {
    std::int32_t place = offsets[expert];
    for (std::int64_t route = 0; route < count; ++route) {
      if (experts[route] != expert) continue;
      tokens[place] = static_cast<std::int32_t>(route / slots);
      routes[place] = static_cast<std::int32_t>(route);
      places[route] = place;
      ++place;
    }
  }
};

/// An item is a column.
template <class T>
struct CombinedRows {
  const T* rows;               // (R, C)
  const std::int32_t* places;  // (M, k)
  T* y;                        // (M, C)
  int columns;
  int slots;

  __device__ void operator()(std::int64_t token, int column) const {
    float sum = 0;
    for (int slot = 0; slot < slots; ++slot) {
      sum += to_float(rows[std::int64_t{places[token * slots + slot]} * columns + column]);
    }
    y[token * columns + column] = from_float<T>(sum);
  }
};

}  // namespace maestro::cuda
