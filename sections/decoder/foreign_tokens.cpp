// SPDX-License-Identifier: Apache-2.0
#include "sections/decoder/foreign_tokens.hpp"

#include <string>

#include "runtime/state/hf_tokenizer.hpp"
#include "sections/weights_folder.hpp"

namespace maestro {

namespace {

/// The setting by which the corpus sends bytes as tokens; empty: it does not, or sends nothing that means something.
std::string bytes_setting(const DataShape& data) {
  if (data.tokenizer == "bytes") return "data.tokenizer = \"bytes\"";
  return data.tokenizer == "llava" ? "data.kind = \"llava\" sends bytes" : "";
}

}  // namespace

void check_tokens(const JobTable& section, std::int64_t rows, const DataShape& data) {
  const bool meant = section.flag(
      "foreign_tokens", false,
      {"true: `weights` receive the corpus' bytes although they have a tokenizer of their own, or over 1,024 rows more "
       "than the corpus has tokens; otherwise both are errors"});
  const std::string folder = read_weights_folder(section);
  const std::string bytes = bytes_setting(data);
  if (meant || folder.empty() || bytes.empty()) return;
  const std::string way_out = "; use weights that were trained on bytes, or set foreign_tokens = true in [" +
                              section.name() + "] if you mean it";
  if (const auto tokenizer = find_tokenizer(folder)) {
    section.fail("weights", tokenizer->string() + " is the tokenizer of these weights, but " + bytes + way_out);
  }
  if (rows - data.vocabulary <= most_rows_beyond_tokens) return;
  section.fail("weights", folder + " has " + std::to_string(rows) + " rows of tokens, but " + bytes +
                              ", of which there are " + std::to_string(data.vocabulary) + way_out);
}

}  // namespace maestro
