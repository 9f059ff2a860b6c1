// SPDX-License-Identifier: Apache-2.0
// A folder of prepared data: documents as tokens, in safetensors shards that are mapped when they are read.
//   data.json                        PreparedIndex: what was prepared, from what, with which tokenizer and template
//   train-00000.safetensors, ...     tokens (T) U16 or I32, offsets (D + 1) I64, source (D) I32, and of conversations
//   validation-00000.safetensors ... learned (T) U8 and first_learned (D) I32
//   tokenizer/                       the tokenizer's files, unless it is "bytes"
// With images also:
//   processor/                       the files of the model whose processor planned the images
//   images-00000.bin ...             the files of images that rows embedded, one after the other
// and each shard has the tensors of image_table.hpp; if the model reads images and sounds, for each of the two. The
// rows of an image have the tokenizer's image token. Without a processor, data.json has the sizes of ScaledTile.
// Document d of a shard has the tokens [offsets[d], offsets[d + 1]). source[d] is a number in PreparedIndex::sources.
// Token i is a target if learned[i] is 1; first_learned[d] is the document's first target.
//
// PD-1 (whole): data.json appears last. A folder without it is unfinished and is refused.
// PD-2 (same data): the checksums of the shards depend only on rows, settings, tokenizer and template, and the sizes of
//       images, not on the files that hold the rows and images or on the number of threads. `source` is not part of a
//       checksum.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/dataset/image_table.hpp"
#include "runtime/files/safetensors.hpp"
#include "runtime/images/image_settings.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

namespace maestro {

inline constexpr const char* prepared_index_file = "data.json";
inline constexpr const char* prepared_tokenizer_folder = "tokenizer";
inline constexpr const char* prepared_processor_folder = "processor";
inline constexpr const char* begin_of_text_setting = "begin of text";  ///< PreparedIndex::begin_of_text()

struct PreparedSource {
  std::string path;  ///< path as given
  std::uint64_t bytes = 0;
  std::string format;  ///< "JSON Lines, messages"
  std::uint64_t documents = 0;
};

struct PreparedShard {
  std::string file;  ///< name in the folder
  std::uint64_t documents = 0;
  std::uint64_t tokens = 0;
  std::uint64_t learned = 0;  ///< targets
  std::string checksum;       ///< XXH3-128 of the tokens, targets, offsets and sizes of images
};

/// Files that hold images.
struct ImageContainer {
  enum class Kind : std::uint8_t { folder, archive, shard };
  Kind kind = Kind::folder;
  std::string path;  ///< absolute; of a shard its name in the folder of the data
};

/// The images of prepared data.
struct PreparedImages {
  std::string processor;              ///< folder as given; empty with `scaled`
  std::string processor_fingerprint;  ///< ImageModel::fingerprint()
  PassOrder resample_order = PassOrder::pillow13;
  std::int32_t image_token = 0;  ///< token at the positions that receive rows of images
  std::vector<ImageContainer> containers = {};
  std::optional<ScaledTile> scaled = {};  ///< geometry without a processor; `image_token` is outside the vocabulary
  std::optional<std::int32_t> sound_token = {};  ///< token of sounds, if the processor reads images and sounds
  /// Returns what determines the rows of images, for messages: the processor, or the sizes of `scaled`.
  [[nodiscard]] std::string description() const;
};

/// Returns the tokenizer of prepared data by its name for make_tokenizer(), with the tokens that images need.
[[nodiscard]] std::unique_ptr<Tokenizer> make_prepared_tokenizer(const std::string& name,
                                                                 const std::optional<PreparedImages>& images);

/// The content of data.json.
struct PreparedIndex {
  std::string tokenizer;              ///< "bytes", or the name as given
  std::string tokenizer_fingerprint;  ///< Tokenizer::fingerprint()
  std::int64_t vocabulary = 0;
  bool conversations = false;                   ///< shards have targets
  std::map<std::string, std::string> settings;  ///< settings of the preparation, by option
  std::vector<PreparedSource> sources;
  std::map<std::string, std::uint64_t> counts;  ///< "rows", "bad rows", "turn by turn", ...
  std::optional<PreparedImages> images;         ///< absent: texts only
  std::vector<PreparedShard> train;
  std::vector<PreparedShard> validation;

  /// Returns whether documents are texts, or prompts with completions, but not conversations by a chat template.
  [[nodiscard]] bool holds_texts() const;
  /// Returns the tokens before each text as the tokenizer's file spells them, such as "<bos>"; empty text: none.
  /// No value: an older version prepared the data and put nothing there.
  [[nodiscard]] std::optional<std::string> begin_of_text() const;
};

/// The offsets and values of an ImageTable.
using TableContent = std::pair<std::span<const std::int64_t>, std::span<const std::int64_t>>;
/// Returns PreparedShard::checksum; `learned` is empty without targets, `images` without images, `sounds` unless they
/// have a table of their own.
[[nodiscard]] std::string shard_checksum(std::span<const std::int32_t> tokens, std::span<const std::uint8_t> learned,
                                         std::span<const std::int64_t> offsets, const TableContent& images,
                                         const TableContent& sounds = {});

/// Returns the bytes of an image's file. Errors name it: missing, damaged, of another size than when it was prepared.
[[nodiscard]] Result<std::string> read_prepared_image(const std::filesystem::path& folder, const PreparedImages& images,
                                                      const ImagePlace& place, std::int64_t bytes);
/// Returns the name of an image, for messages: "images/a.png", "rows.tar: a.png".
[[nodiscard]] std::string image_name(const PreparedImages& images, const ImagePlace& place);

[[nodiscard]] Status write_prepared_index(const std::filesystem::path& folder, const PreparedIndex& index);
/// Reads data.json. Errors: no such file (PD-1), another version, a value of another kind, a missing shard.
[[nodiscard]] Result<PreparedIndex> read_prepared_index(const std::filesystem::path& folder);

/// Compares a shard's content with its checksum. The error (corrupt) names the file.
[[nodiscard]] Status verify_prepared_shard(const std::filesystem::path& folder, const PreparedShard& index,
                                           bool conversations);

/// A mapped shard. Immutable: thread-safe.
class PreparedShardFile {
 public:
  /// Opens a shard. Errors (corrupt): tensors that are missing, or do not fit each other or `index`.
  [[nodiscard]] static Result<PreparedShardFile> open(const std::filesystem::path& folder, const PreparedShard& index,
                                                      bool conversations);

  [[nodiscard]] std::uint64_t documents() const { return offsets_.size() - 1; }
  [[nodiscard]] std::int64_t tokens() const { return offsets_.back(); }
  /// Returns the first token of a document; begin(documents()) is the number of tokens.
  [[nodiscard]] std::int64_t begin(std::uint64_t document) const { return offsets_[document]; }
  /// Returns the offset of the first target in a document; 0 for a text.
  [[nodiscard]] std::int64_t first_learned(std::uint64_t document) const {
    return first_learned_.empty() ? 0 : first_learned_[document];
  }
  [[nodiscard]] std::int32_t source(std::uint64_t document) const { return source_[document]; }
  /// Returns the table of images or, empty without sound_token, the table of sounds.
  [[nodiscard]] const ImageTable& images(Modality modality = Modality::image) const {
    return modality == Modality::image ? images_ : sounds_;
  }
  /// Returns the document of a token.
  [[nodiscard]] std::uint64_t document_of(std::int64_t token) const;
  /// Copies tokens, starting at `begin`.
  void read(std::int64_t begin, std::span<std::int32_t> tokens) const;
  /// Returns a flag per token, starting at `begin`: 1 for a target; empty: all tokens are targets.
  [[nodiscard]] std::span<const std::uint8_t> learned(std::int64_t begin, std::int64_t count) const;
  /// Returns the memory of read pages to the system; they are read again on access.
  void release() const;

 private:
  explicit PreparedShardFile(SafetensorsFile file) : file_(std::move(file)) {}
  [[nodiscard]] Status check(const PreparedShard& index, std::size_t tokens, bool conversations) const;

  SafetensorsFile file_;
  std::span<const std::uint16_t> narrow_;  // tokens, either narrow or wide
  std::span<const std::int32_t> wide_;
  std::span<const std::int64_t> offsets_;
  std::span<const std::int32_t> source_;
  std::span<const std::int32_t> first_learned_;
  std::span<const std::uint8_t> learned_;
  ImageTable images_, sounds_;
};

}  // namespace maestro
