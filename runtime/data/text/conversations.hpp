// SPDX-License-Identifier: Apache-2.0
// Conversations about pictures in the JSON format of LLaVA (Liu et al. 2023, "Visual Instruction Tuning"): a list of
//   {"id": "1", "image": "a.png", "conversations": [{"from": "human", "value": "<image>\nWhat is it?"},
//                                                   {"from": "gpt", "value": "A cat."}]}
// "image" (or "images") is a name, a list of names, or absent; "user" and "assistant" are also understood. The same
// entries may be the lines of a file, or members .json of tar archives (WebDataset), whose pictures lie beside them
// under the same name. There a member .txt in place of .json is a caption, the answer to the pictures alone.
//
// Lists that LLaVA trains on hold rows that are not such a conversation. Those of the kinds in RowRepair are repaired,
// and the conversation names each repair; every other row is an error.
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

/// Placeholder in a question for the next of the sample's pictures.
inline constexpr std::string_view image_placeholder = "<image>";

/// A repair of a row. Its placeholders count before the repair: a question that is cut takes its images with it.
enum class RowRepair {
  answer_dropped,  ///< the row began with an answer
  question_cut,    ///< the row ended with a question
  system_kept,     ///< the row has a system text before its first question
  images_first,    ///< no question named the row's images: they stand before the first one
  equal_id,        ///< an earlier row has its id; done by the corpus, which splits off validation by ids
};
inline constexpr std::array<std::string_view, 5> row_repair_names{
    "answer before the first question dropped", "last question without an answer cut", "system text kept in front",
    "images without <image> put first", "id of an earlier row, split by content"};

struct Conversation {
  std::string id;
  std::vector<std::string> images;      ///< as named in the file
  std::vector<std::string> turns;       ///< question, answer, question, answer, ...
  std::string system = {};              ///< text before the first question; empty: none
  std::vector<RowRepair> repairs = {};  ///< in the order of RowRepair
  std::filesystem::path archive = {};   ///< that holds the pictures; empty: they are files
  std::vector<TarImage> members = {};   ///< of an archive: the pictures
};

/// Receives the next entry's id (`#` and its number, from 1, if it has none) and the conversation, or the error in it.
using ConversationSink = std::function<void(const std::string& id, Result<Conversation> conversation)>;

/// Passes every entry to `sink` in order; an entry is held only during its call, so the text may be larger than memory.
/// A conversation has as many placeholders as pictures, all in questions, and questions and answers in turn, none of
/// the answers empty; the error of an entry that is not one, nor can be repaired, names the fault and its place in the
/// entry. `name` is the file's, for messages. Throws JobError when the text is not JSON or not a list.
void parse_conversations(std::istream& text, const std::string& name, const ConversationSink& sink);

/// Reads the same from a file of JSON, JSON Lines or a tar archive, or from the archives of a folder. Returns the
/// number of members .json without effect, which stand beside a caption. Throws JobError if there is none, naming the
/// part of its path that exists, and for an archive that is damaged or compressed.
std::uint64_t read_conversations(const std::string& path, const ConversationSink& sink);

}  // namespace maestro
