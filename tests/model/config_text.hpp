// SPDX-License-Identifier: Apache-2.0
// Variants of config.json that differ in one value.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace maestro {

/// Returns the text with the first `from` replaced; `from` must occur.
inline std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string changed(text);
  const std::size_t at = changed.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? changed : changed.replace(at, from.size(), to);
}

}  // namespace maestro
