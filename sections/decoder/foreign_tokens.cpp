// SPDX-License-Identifier: Apache-2.0
#include "sections/decoder/foreign_tokens.hpp"

#include <filesystem>
#include <string>

#include "runtime/job/job_reader.hpp"
#include "runtime/model/hf_tokenizer.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include "sections/weights_folder.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

/// Returns the corpus setting that selects its tokens; empty: the ids mean nothing, or an app's corpus makes them.
std::string tokens_setting(const DataShape& data) {
  if (data.tokenizer.empty() || data.tokenizer.starts_with("synthetic")) return "";
  return "data.tokenizer = \"" + data.tokenizer + "\"";
}

/// Returns the reason why the weights' tokenizer has other tokens than the corpus sends; empty: it does not.
std::string difference(const fs::path& own, const DataShape& data) {
  if (data.tokenizer == "bytes")
    return is_byte_tokenizer(own) ? "" : own.string() + " is the tokenizer of these weights";
  const fs::path file = find_tokenizer(data.tokenizer).value_or(data.tokenizer);
  const Status same = check_same_tokens(own, file, data.vocabulary);
  return same.ok() ? "" : same.error().message;
}

}  // namespace

std::optional<std::string> tokenizer_folder(const JobTable& section) {
  const std::string folder = read_model(section, "weights", "");
  const auto file = folder.empty() ? std::nullopt : find_tokenizer(folder);
  if (!file || section.flag("foreign_tokens", false)) return std::nullopt;
  return is_byte_tokenizer(*file) ? "bytes" : folder;
}

void check_tokens(const JobTable& section, std::int64_t rows, const DataShape& data) {
  const bool meant = section.flag(
      "foreign_tokens", false,
      {"true: `weights` receive the corpus' tokens although they have a tokenizer of their own with others, or over "
       "1,024 rows more than the corpus has tokens; otherwise both are errors"});
  const fs::path folder = read_weights_folder(section);
  const std::string setting = tokens_setting(data);
  if (meant || folder.empty() || setting.empty()) return;
  const std::string way_out = ", or set foreign_tokens = true in [" + section.name() + "] if you mean it";
  if (const auto own = find_tokenizer(folder)) {
    const std::string problem = difference(*own, data);
    if (problem.empty()) return;
    section.fail("weights", problem + ", but " + setting + "; leave data.tokenizer out to use it" + way_out);
  }
  if (rows - data.vocabulary <= most_rows_beyond_tokens) return;
  section.fail("weights", folder.string() + " has " + std::to_string(rows) + " rows of tokens, but " + setting +
                              " has " + std::to_string(data.vocabulary) + "; use weights of these tokens" + way_out);
}

}  // namespace maestro
