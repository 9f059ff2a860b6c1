// SPDX-License-Identifier: Apache-2.0
// The card of a run: its page as Markdown, without the drawings. Pure; any thread.
#pragma once

#include <string>

#include "runtime/page/run_page.hpp"

namespace maestro {

/// Returns the card, UTF-8. PW-1 and PW-3 hold for it too.
[[nodiscard]] std::string card_of(const RunPage& page);

}  // namespace maestro
