// SPDX-License-Identifier: Apache-2.0
// The name of a lane: a replica of a section.
#pragma once

#include <compare>

#include "runtime/core/ids.hpp"

namespace maestro {

struct LaneKey {
  SectionId section;
  ReplicaIndex replica;
  friend auto operator<=>(const LaneKey&, const LaneKey&) = default;
};

}  // namespace maestro
