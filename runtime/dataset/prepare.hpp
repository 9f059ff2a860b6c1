// SPDX-License-Identifier: Apache-2.0
// The preparation of data: rows of files become tokens with targets, in a folder as prepared_data.hpp has it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "runtime/dataset/chat_encoder.hpp"
#include "runtime/dataset/prepared_data.hpp"

namespace maestro {

/// The content that the rows must have.
enum class ExpectedRows : std::uint8_t { any, text, chat, parquet, webdataset };

struct PrepareOptions {
  std::vector<std::filesystem::path> inputs;  ///< files and folders
  std::string tokenizer;                      ///< a folder, a file, or "bytes"
  std::string text_column;                    ///< empty: recognised
  std::string chat_template;                  ///< "auto": the tokenizer's; "chatml"; "none"; else a file
  std::string end_of_turn;                    ///< the token that ends an answer, as text; empty: those of the tokenizer
  std::string date;                           ///< the day that a template prints, as 2026-01-31; empty: today
  LearnedAnswers learned = LearnedAnswers::all;
  ExpectedRows expected = ExpectedRows::any;
  bool as_text = false;       ///< files are texts, whatever their names and first characters (file_kind.hpp)
  bool begin_of_text = true;  ///< texts begin with the begin-of-text tokens of the tokenizer
  double validation_fraction = 0.01;
  std::size_t jobs = 1;       ///< threads
  std::uint64_t max_bad = 0;  ///< rows that are left out before the preparation fails
};

/// What is there while the preparation runs.
struct PrepareProgress {
  std::uint64_t bytes = 0;  ///< of row contents
  std::uint64_t documents = 0;
  std::uint64_t tokens = 0;
};

struct PrepareCalls {
  std::function<void(const std::string&)> warn;          ///< a line for the user
  std::function<void(const PrepareProgress&)> progress;  ///< now and then; throws to end the preparation
};

/// Prepares `options.inputs` in `folder`, which appears when all is there. A text, and a prompt with its completion,
/// begins with the begin-of-text tokens of the tokenizer and ends with the token that ends a text, if the tokenizer
/// has these; conversations have those that the template writes. A record belongs to the validation split by its
/// content alone, so that equal records are in the same split. Returns the index as written.
///
/// Throws JobError: inputs or a tokenizer that cannot be read; a folder that exists and is not empty; more bad rows
/// than allowed, with the first 20 of them by file and line; texts and conversations in one preparation; nothing to
/// train on. Nothing stays behind then.
PreparedIndex prepare_data(const PrepareOptions& options, const std::filesystem::path& folder,
                           const PrepareCalls& calls);

}  // namespace maestro
