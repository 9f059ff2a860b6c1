// User input made fit for a one-line message.
#pragma once

#include <string>
#include <string_view>

namespace maestro {

/// Control characters escaped (a line break as \n) and everything beyond 120 bytes replaced by "...".
[[nodiscard]] std::string printable(std::string_view text);
/// Shortest decimal that reads back as the same value.
[[nodiscard]] std::string number_text(double value);

}  // namespace maestro
