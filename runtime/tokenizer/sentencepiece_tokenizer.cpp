// SPDX-License-Identifier: Apache-2.0
// A tokenizer.model, run by the SentencePiece library. The pieces that begin and end a text are added if the
// tokenizer_config.json next to it demands them, as in transformers (add_bos_token: default true).
#include <sentencepiece_processor.h>

#include "runtime/core/input_file.hpp"
#include "runtime/core/utf8.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include "runtime/tokenizer/tokenizer_config.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(std::string name) : name_(std::move(name)) {}
  using Tokenizer::encode;

  [[nodiscard]] Status load(std::string_view model) {
    const auto status = processor_.LoadFromSerializedProto(model);
    if (!status.ok()) {
      return Error{ErrorCode::invalid_argument, name_ + " is not a SentencePiece model: " + status.ToString()};
    }
    // Only Unigram models have several segmentations of a text.
    std::vector<std::vector<int>> best;
    if (!processor_.NBestEncode("a", 1, &best).ok()) return {};
    return Error{ErrorCode::invalid_argument,
                 name_ + " is a Unigram model of SentencePiece, which cuts texts with equal scores otherwise in each " +
                     "version of the library; use a BPE model"};
  }
  void surround(TextEnds ends) {
    if (ends.begin && processor_.bos_id() >= 0) begin_ = {processor_.bos_id()};
    end_ = ends.end && processor_.eos_id() >= 0;
  }
  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] std::int64_t vocabulary() const override { return processor_.GetPieceSize(); }
  void encode(std::string_view text, const Sink& sink) const override {
    const std::vector<int> ids = processor_.EncodeAsIds(text);
    sink(std::span(ids));
  }
  [[nodiscard]] std::span<const std::int32_t> begin_of_text() const override { return begin_; }
  [[nodiscard]] std::vector<std::int32_t> encode_special(std::string_view text) const override {
    std::vector<std::int32_t> tokens = encode(text);
    tokens.insert(tokens.begin(), begin_.begin(), begin_.end());
    if (end_) tokens.push_back(processor_.eos_id());
    return tokens;
  }
  [[nodiscard]] std::string decode(std::span<const std::int32_t> tokens, bool skip_special) const override {
    std::string text;
    std::vector<int> known;  // run of tokens of the vocabulary
    const auto end_run = [&] {
      if (!known.empty()) text += processor_.DecodeIds(known);
      known.clear();
    };
    for (const std::int32_t token : tokens) {
      const bool valid = token >= 0 && token < vocabulary();
      if (valid && !processor_.IsControl(token)) {
        known.push_back(token);
        continue;
      }
      if (valid && skip_special) continue;
      end_run();
      text += piece(token);
    }
    end_run();
    return repaired_utf8(text);
  }
  [[nodiscard]] std::string piece(std::int32_t token) const override {
    return token >= 0 && token < vocabulary() ? processor_.IdToPiece(token) : "\xEF\xBF\xBD";
  }

 private:
  std::string name_;
  sentencepiece::SentencePieceProcessor processor_;
  std::vector<std::int32_t> begin_;
  bool end_ = false;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> read_sentencepiece(const fs::path& file) {
  const Result<std::string> model = read_text(file);
  if (!model) return model.error();
  auto made = std::make_unique<SentencePieceTokenizer>(file.string());
  if (const Status loaded = made->load(*model); !loaded.ok()) return loaded.error();
  const Result<TextEnds> ends = read_text_ends(file.parent_path(), {.begin = true, .end = false});
  if (!ends) return ends.error();
  made->surround(*ends);
  return std::unique_ptr<Tokenizer>(std::move(made));
}

}  // namespace maestro
