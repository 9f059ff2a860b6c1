// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/repeating_table.hpp"

namespace maestro::cuda {

void RepeatingTable::repeat(std::uint64_t place, const std::function<void()>& calls) const {
  if (inside_ || !places_.worth_a_look(place)) return calls();
  const struct Ended {
    const RepeatingTable& table;
    ~Ended() { table.end(); }
  } ended{*this};
  inside_ = collecting_ = true;
  calls();
  GraphAction done = GraphAction::plain;
  if (std::exchange(collecting_, false) && !calls_.empty()) done = graphs_.run(calls_.key(), calls_);
  places_.ran(place, done);
}

/// Ends a pass, whether it returned or threw.
void RepeatingTable::end() const {
  inside_ = collecting_ = false;
  calls_.clear();
}

}  // namespace maestro::cuda
