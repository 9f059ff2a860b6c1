// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/length_points.hpp"

namespace maestro {

namespace {
constexpr std::int64_t k = 1024;
}

const std::vector<std::pair<std::string, LengthPoints>>& published_lengths() {
  static const std::vector<std::pair<std::string, LengthPoints>> all{
      {"github",
       {{64, 1},
        {512, .62},
        {2 * k, .22},
        {4 * k, .11},
        {8 * k, .055},
        {16 * k, .027},
        {32 * k, .0118},
        {64 * k, .0046},
        {128 * k, .0015},
        {256 * k, .00048},
        {512 * k, .00015},
        {2048 * k, .000018}}},
      {"byted",
       {{64, 1},
        {512, .80},
        {k, .66},
        {2 * k, .46},
        {4 * k, .20},
        {8 * k, .132},
        {32 * k, .040},
        {128 * k, .0080},
        {256 * k, .0038},
        {512 * k, .0019},
        {1024 * k, .0010},
        {2048 * k, .0005}}},
      {"commoncrawl",
       {{64, 1},
        {512, .70},
        {k, .50},
        {2 * k, .33},
        {4 * k, .20},
        {8 * k, .10},
        {16 * k, .045},
        {32 * k, .022},
        {64 * k, .0115},
        {128 * k, .0055},
        {256 * k, .0018},
        {384 * k, .0006}}},
      {"wikipedia",
       {{64, 1},
        {256, .70},
        {512, .48},
        {k, .30},
        {2 * k, .17},
        {4 * k, .085},
        {8 * k, .038},
        {16 * k, .012},
        {32 * k, .0032},
        {64 * k, .0008},
        {192 * k, .00008}}},
  };
  return all;
}

}  // namespace maestro
