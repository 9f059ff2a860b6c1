// SPDX-License-Identifier: Apache-2.0
// Texts of config.json that differ in a value.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace maestro {

/// Returns the text with the first `from` in it, which must be there, replaced.
inline std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string changed(text);
  const std::size_t at = changed.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? changed : changed.replace(at, from.size(), to);
}

}  // namespace maestro
