// SPDX-License-Identifier: Apache-2.0
// Judges the losses and gradient norms of a section, step by step: the begin and end of a spike, a spike that lasts,
// values that are not finite, huge norms. Pure.
//
// GJ-1 (usual values): a loss is judged by the median and the median absolute deviation of the last `window` losses
//       outside of spikes, once there are a quarter of them.
// GJ-2 (both measures): a spike begins with a loss that exceeds the median by more than `rise` and by more than `z`
//       robust standard deviations. It ends with a loss above the median by at most half of the larger of the two.
// GJ-3 (lasting once): a spike lasts when it has not ended `patience` steps after its begin, or at once with a value
//       that is not finite. It is reported once; after it the window begins anew, with the new losses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/schedule/value_window.hpp"

namespace maestro {

struct SpikeRules {
  std::size_t window = 128;
  double z = 6;
  double rise = 0.1;
  std::uint64_t patience = 50;
  double norm = 10;       ///< times the median: a huge norm
  double least_huge = 0;  ///< a norm up to this value, such as the one that is clipped at, is not huge
};

struct SpikeFinding {
  enum class Kind : std::uint8_t {
    began,
    ended,
    lasts,
    not_finite,  ///< not finite: a loss or norm; the spike, if any, lasts
    huge_norm    ///< first of several huge norms in a row
  };
  Kind kind = Kind::began;
  std::uint64_t began = 0;  ///< first step of the spike, or the step of a huge norm
  std::uint64_t step = 0;
  double value = 0;    ///< the loss, or norm
  double usual = 0;    ///< median in the window
  double highest = 0;  ///< highest loss of the spike so far
};

/// Not thread-safe.
class SpikeJudge {
 public:
  explicit SpikeJudge(const SpikeRules& rules) : rules_(rules), losses_(rules.window), norms_(rules.window) {}
  /// Judges the loss and the gradient norm of the next step, as far as it has them.
  [[nodiscard]] std::vector<SpikeFinding> judge(std::uint64_t step, std::optional<double> loss,
                                                std::optional<double> norm);

 private:
  struct Spike {
    std::uint64_t began = 0;
    double usual = 0;
    double threshold = 0;  // above `usual`
    double highest = 0;
  };
  void judge_loss(std::uint64_t step, double loss, std::vector<SpikeFinding>& findings);
  void judge_norm(std::uint64_t step, double norm, std::vector<SpikeFinding>& findings);
  void broken(std::uint64_t step, double value, std::vector<SpikeFinding>& findings);
  void begin_anew();

  SpikeRules rules_;
  ValueWindow losses_;
  ValueWindow norms_;
  std::optional<Spike> spike_;
  bool broken_ = false;     // the last step had a value that is not finite
  bool huge_norm_ = false;  // state after the last step
};

}  // namespace maestro
