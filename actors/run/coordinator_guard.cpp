// SPDX-License-Identifier: Apache-2.0
// The coordinator's guard: spikes of losses, huge norms and values that are not finite.
#include "actors/run/coordinator.hpp"

namespace maestro {

void Coordinator::guard(const std::vector<StepRow>& rows) {
  if (!options_.guard) return;
  for (const GuardFinding& finding : options_.guard->judge(rows)) {
    note_event("spike", fields_of(finding));
    if (finding.found.kind == SpikeFinding::Kind::ended) {
      options_.console->note(text_of(finding));
    } else {
      options_.console->warning(text_of(finding));
    }
  }
}

}  // namespace maestro
