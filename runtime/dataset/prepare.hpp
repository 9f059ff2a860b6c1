// SPDX-License-Identifier: Apache-2.0
// Prepares data: rows of files become tokens with targets, in a folder that prepared_data.hpp describes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/dataset/chat_encoder.hpp"
#include "runtime/dataset/prepared_data.hpp"
#include "runtime/images/image_settings.hpp"

namespace maestro {

/// The content that the rows must have.
enum class ExpectedRows : std::uint8_t { any, text, chat, parquet, webdataset };

struct PrepareOptions {
  std::vector<std::filesystem::path> inputs;  ///< files and folders
  std::string tokenizer;                      ///< a folder, a file, or "bytes"
  std::filesystem::path processor;            ///< folder of the model whose processor reads images; empty: texts only
  std::optional<ScaledTile> scaled;           ///< reads images without a processor, for conversation_template
  std::filesystem::path images;               ///< folder of images; empty: "images" next to the rows
  std::filesystem::path validation;           ///< file or folder of rows for validation; empty: validation_fraction
  PassOrder resample_order = PassOrder::pillow13;
  std::string text_column;    ///< name of the text column; empty: recognised
  std::string chat_template;  ///< "auto": the tokenizer's, or with `scaled` conversation_template; "chatml"; "none";
                              ///< else a file
  std::string end_of_turn;    ///< text of the token that ends an answer; empty: the tokenizer's end tokens
  std::string date;           ///< day that a template prints, as 2026-01-31; empty: today
  LearnedAnswers learned = LearnedAnswers::all;  ///< with none, no sample is for validation
  ExpectedRows expected = ExpectedRows::any;
  bool as_text = false;       ///< files are texts, regardless of names and first characters (file_kind.hpp)
  bool begin_of_text = true;  ///< texts, and with `scaled` conversations, begin with the begin-of-text tokens
  double validation_fraction = 0.01;
  std::size_t jobs = 1;       ///< threads
  std::uint64_t max_bad = 0;  ///< rows that are left out before the preparation fails
};

/// Progress of a preparation.
struct PrepareProgress {
  std::uint64_t bytes = 0;  ///< size of row contents
  std::uint64_t documents = 0;
  std::uint64_t tokens = 0;
};

struct PrepareCalls {
  std::function<void(const std::string&)> warn;          ///< a line for the user
  std::function<void(const PrepareProgress&)> progress;  ///< called now and then; throws to end the preparation
};

/// Prepares `options.inputs` in `folder`, which appears when it is complete. A text, and a prompt with its completion,
/// begins with the tokenizer's begin-of-text tokens and ends with its end-of-text token, if the tokenizer has them; in
/// conversations, the template writes such tokens. Without `validation`, only the content decides whether a record
/// belongs to the validation split, so that equal records are in the same split. Returns the index as written.
///
/// Throws JobError for inputs or a tokenizer that cannot be read; a folder that exists and is not empty; more bad rows
/// than allowed, with file and line of the first 20; texts and conversations in one preparation; nothing to train on.
/// The folder is removed then.
PreparedIndex prepare_data(const PrepareOptions& options, const std::filesystem::path& folder,
                           const PrepareCalls& calls);

}  // namespace maestro
