// SPDX-License-Identifier: Apache-2.0
// Private to this folder: TOML as text. (The formatter of toml++ 3.3 writes a key such as `it's` without quotes, and
// 0.1 with seventeen digits.)
#pragma once

#include <toml++/toml.h>

#include <string>
#include <string_view>

namespace maestro {

/// Returns whether TOML accepts the key without quotes.
[[nodiscard]] bool is_bare_key(std::string_view key);
/// Returns a document of these values: strings in double quotes, numbers with the fewest digits that read back the
/// same, and lists over 100 bytes with one element per line. Long strings are broken into lines of at most a few KiB.
[[nodiscard]] std::string toml_text(const toml::table& root);

}  // namespace maestro
