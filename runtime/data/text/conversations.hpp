// SPDX-License-Identifier: Apache-2.0
// Conversations about images in the JSON format of LLaVA (Liu et al. 2023, "Visual Instruction Tuning"): a list of
//   {"id": "1", "image": "a.png", "conversations": [{"from": "human", "value": "<image>\nWhat is it?"},
//                                                   {"from": "gpt", "value": "A cat."}]}
// "image" (or "images") is a name, a list of names, or absent; "user" and "assistant" are also understood. The same
// entries may be the lines of a file, or .json members of tar archives (WebDataset), with their images as members of
// the same name. A .txt member instead of a .json member is a caption: the answer to a question that has only images.
//
// Lists that LLaVA trains on contain rows that are not such a conversation. The faults in RowRepair are repaired, and
// the conversation lists its repairs; a row with any other fault is an error.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <istream>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/dataset/tar_rows.hpp"

namespace maestro {

/// Placeholder in a question for the sample's next image.
inline constexpr std::string_view image_placeholder = "<image>";

/// A repair of a row. Placeholders are counted before the repair: a question that is cut takes its images with it.
enum class RowRepair {
  answer_dropped,  ///< the row began with an answer
  question_cut,    ///< the row ended with a question
  system_kept,     ///< the row has a system text before its first question
  images_first,    ///< no question had a placeholder for the row's images: they come before the first question
  equal_id,        ///< an earlier row has the same id; repaired by the corpus, which selects validation rows by id
};
inline constexpr std::array<std::string_view, 5> row_repair_names{
    "answer before the first question dropped", "last question without an answer cut", "system text kept in front",
    "images without <image> put first", "id of an earlier row, split by content"};

struct Conversation {
  std::string id;
  std::vector<std::string> images;      ///< names in the file
  std::vector<std::string> turns;       ///< question, answer, question, answer, ...
  std::string system = {};              ///< text before the first question; empty: none
  std::vector<RowRepair> repairs = {};  ///< repairs in the order of RowRepair
  std::filesystem::path archive = {};   ///< archive with the images; empty: the images are files
  std::vector<TarImage> members = {};   ///< images in the archive
};

/// Receives the next entry's id (`#` and its number, from 1, if it has none) and its conversation or error.
using ConversationSink = std::function<void(const std::string& id, Result<Conversation> conversation)>;

/// Passes every entry to `sink` in order. An entry is held only during its call, so the text may be larger than memory.
/// A valid conversation alternates questions and answers, has as many placeholders as images, all in questions, and no
/// empty answer. The error of an entry that is not valid and cannot be repaired names the fault and its place in the
/// entry. `name` is the file name for messages. Throws JobError if the text is not JSON or not a list.
void parse_conversations(std::istream& text, const std::string& name, const ConversationSink& sink);

/// Passes the entries of a JSON file, a JSON Lines file, a tar archive, or a folder of archives to `sink`. Returns the
/// number of .json members that are unused because their row has a caption. Throws JobError if the path does not exist,
/// naming the part that exists, and for an archive that is damaged or compressed.
std::uint64_t read_conversations(const std::string& path, const ConversationSink& sink);

}  // namespace maestro
