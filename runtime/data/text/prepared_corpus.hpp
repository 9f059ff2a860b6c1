// SPDX-License-Identifier: Apache-2.0
// Samples from a folder of prepared data (runtime/dataset/prepared_data.hpp).
//
// PK-1 (own context): with packing = "documents" all tokens of a sample are from the same document.
// PK-2 (bounded): the memory of tokens that were read is released; 12 bytes per sample remain.
// PK-3 (whole turns): with images, a document longer than `sequence` keeps the questions whose answers fit, with their
//       images. If the first does not fit, the document is left out and counted.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/data/corpus.hpp"
#include "runtime/data/image/prepared_image_reader.hpp"
#include "runtime/data/text/prepared_split.hpp"
#include "runtime/dataset/other_tokens.hpp"
#include "runtime/dataset/prepared_data.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

namespace maestro {

/// packing = "documents": a sample is a document, or a part of a document longer than `sequence`; the runtime packs
/// samples of any length into micro-batches without padding. packing = "stream": the documents of a split are
/// concatenated, and a sample is the next `sequence` tokens. Samples without a target are left out and counted.
class PreparedCorpus final : public Corpus, public ConversationSource {
 public:
  /// Uses sequence, packing, long_documents, processor and resample_order. Throws JobError for a folder without
  /// prepared data, with a damaged shard or without a training sample, for conversations with packing = "stream", for
  /// images with long = "split", and for another processor than the data's.
  /// With `reader`, the samples are as the model in this folder reads them: images by its processor, and its tokens for
  /// images, unless these are the data's. Throws JobError, too, for the conditions of OtherTokens, and for a sample
  /// with more tokens than the model has positions.
  /// If the data have both, `table` chooses whether pictures() and the functions after it state images or sounds.
  PreparedCorpus(std::filesystem::path folder, const DataConfig& config, std::filesystem::path reader = {},
                 Modality table = Modality::image);

  [[nodiscard]] std::uint64_t samples(Split split) const override { return side(split).samples(); }
  [[nodiscard]] std::int64_t length(Split split, SampleId sample) const override;
  [[nodiscard]] std::int64_t max_length() const override { return longest_; }
  [[nodiscard]] std::string origin(SampleId sample) const override;
  [[nodiscard]] std::int64_t targets(Split split, SampleId sample) const override;
  [[nodiscard]] std::int64_t vocabulary() const override {
    return other_tokens_ ? other_tokens_->vocabulary() : index_.vocabulary;
  }
  [[nodiscard]] bool rewrites_tokens() const override { return other_tokens_ != nullptr; }
  /// Returns whether special tokens have other ids for the reader, so that texts without images change, too.
  [[nodiscard]] bool moves_tokens() const { return other_tokens_ && other_tokens_->moved() > 0; }
  [[nodiscard]] std::string describe() const override;
  /// The content covers the checksums of the shards.
  [[nodiscard]] DataFingerprint fingerprint() const override;

  /// Longer prompts than a sample are left out.
  [[nodiscard]] bool prompts_only() const override {
    const auto learn = index_.settings.find("learn");
    return learn != index_.settings.end() && learn->second == name_of(LearnedAnswers::none);
  }
  [[nodiscard]] std::int64_t patch_columns() const override { return images_ ? images_->patch_columns() : 0; }
  [[nodiscard]] std::int64_t max_patches() const override { return most_rows_.patches; }
  [[nodiscard]] std::int64_t max_visual() const override {
    return more_visual_ ? std::max(most_rows_.visual, most_rows_.patches + 1) : most_rows_.visual;
  }
  [[nodiscard]] PictureGrids picture_grids() const override { return grids_; }
  [[nodiscard]] SamplePictures pictures(Split split, SampleId sample) const override;
  /// Throws std::runtime_error that names the image if it was damaged after `prepare` and is not in the cache any more.
  void read_pictures(Split split, SampleId sample, std::span<float> pixels,
                     std::span<std::int32_t> places) const override;
  [[nodiscard]] bool mixes_rows() const override { return images_ && images_->mixes_rows(); }
  void read_mix(Split split, SampleId sample, std::span<std::int32_t> sources, std::span<float> weights) const override;
  [[nodiscard]] bool has_marks() const override {
    return images_ && table_ == Modality::image && !images_->mark_rule().plain();
  }
  void read_marks(Split split, SampleId sample, std::span<std::int32_t> marks) const override;
  [[nodiscard]] Status prepare(Split split, SampleId sample) const override;

  /// Returns whether the data have images and sounds.
  [[nodiscard]] bool has_both() const { return index_.images && index_.images->sound_token; }
  /// Returns whether samples may have images, so that view() and decode() may be called.
  [[nodiscard]] bool has_images() const { return images_.has_value(); }
  /// The question is the text of the prompt without special tokens.
  [[nodiscard]] ConversationView view(Split split, SampleId sample) const override;
  [[nodiscard]] std::string decode(std::span<const std::int32_t> prompt,
                                   std::span<const std::int32_t> written) const override;
  [[nodiscard]] std::vector<std::int32_t> ends() const override;

  [[nodiscard]] const PreparedIndex& index() const { return index_; }
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }
  /// Returns whether samples may begin inside a document: samples of a stream, or parts of a long document.
  [[nodiscard]] bool begins_inside() const { return stream_ || split_ > 0; }
  /// Returns the bad rows of a job's own preparation: max_bad_samples counts them and damaged images together.
  [[nodiscard]] std::uint64_t left_out() const override;
  [[nodiscard]] std::string own_tokenizer() const override;

 private:
  /// Returns the model's token for rows of the table.
  [[nodiscard]] std::int32_t model_token() const {
    return table_ == Modality::sound ? *index_.images->sound_token : index_.images->image_token;
  }
  [[nodiscard]] const PreparedSplit& side(Split split) const { return split == Split::train ? train_ : validation_; }
  void open_images();
  /// Reads the images as the model in reader_ does.
  void open_reader();
  /// Counts the reader's tokens of all samples, unless they are the data's.
  void count_other_tokens();
  [[nodiscard]] Result<OtherTokens::Document> rewritten(Split split, SampleId sample) const;
  void add_documents(PreparedSplit& side, const PreparedShardFile& shard, std::uint64_t first);
  void add_document(PreparedSplit& side, const PreparedShardFile& shard, std::uint64_t document, std::uint64_t first);
  void add_conversation(PreparedSplit& side, const PreparedShardFile& shard, std::uint64_t document,
                        std::uint64_t first);
  /// Returns the images of a sample.
  [[nodiscard]] std::vector<NumberedImage> images_of(Split split, SampleId sample) const;
  [[nodiscard]] Error about(Split split, SampleId sample, const Error& error) const;
  void read_exact(Split split, SampleId sample, std::span<std::int32_t> tokens,
                  std::span<std::int32_t> targets) const override;
  [[nodiscard]] std::string data_tokenizer() const;
  void give_back(std::size_t bytes) const;

  std::filesystem::path folder_;
  DataConfig config_;
  std::filesystem::path reader_;  // empty: the images are as they were prepared
  Modality table_;
  PreparedIndex index_;
  bool stream_ = false;
  LongDocuments long_documents_ = LongDocuments::cut;
  PreparedSplit train_;
  PreparedSplit validation_;
  std::int64_t longest_ = 0;
  std::uint64_t cut_ = 0;
  std::uint64_t cut_answers_ = 0;  // cuts inside an answer: the tokens on both sides are learned
  std::uint64_t split_ = 0;        // samples that do not start their document
  std::uint64_t left_out_ = 0;
  std::optional<PreparedImageReader> images_;                // absent: texts only
  std::shared_ptr<const Tokenizer> tokenizer_;               // with images, for views
  std::unique_ptr<OtherTokens> other_tokens_;                // null: the tokens are as they were prepared
  std::array<std::vector<std::uint32_t>, 2> other_lengths_;  // lengths with the reader's tokens, by split
  PictureGrids grids_;
  SamplePictures most_rows_;                   // most of each, not of the same sample
  bool more_visual_ = false;                   // a sample has more visual rows than patches
  std::uint64_t with_images_ = 0;              // samples
  std::uint64_t unfit_ = 0;                    // conversations whose first answer does not fit
  std::string first_unfit_;                    // the first of these
  mutable std::atomic<std::size_t> read_ = 0;  // bytes read since memory was last released
};

}  // namespace maestro
