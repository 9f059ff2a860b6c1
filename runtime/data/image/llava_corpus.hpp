// SPDX-License-Identifier: Apache-2.0
// Samples from conversations about images (see conversations.hpp). The images are in a folder or in the archives of the
// conversations.
//
// LL-1 (checked at opening): opening checks every sample: its text is valid, its images exist and have a readable
//       header, and the images and the start of an answer fit data.sequence. A sample that fails is skipped and
//       counted.
// LL-2 (split by id): the split of a conversation depends on its id and the settings only; if an earlier row of the
//       file has the same id, it depends on the row's content instead. With at least two conversations each side has
//       one: a side that would be empty gets the conversation that is nearest to the border.
// LL-3 (as opened): a sample has as many `image_token`s as its images had patches at opening, even if the files have
//       changed.
#pragma once

#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/data/corpus.hpp"
#include "runtime/data/image/conversation_view.hpp"
#include "runtime/data/image/image_cache.hpp"
#include "runtime/data/image/patches.hpp"
#include "runtime/data/text/chat_template.hpp"
#include "runtime/data/text/conversations.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

namespace maestro {

class LlavaCorpus final : public Corpus, public ConversationSource {
 public:
  static constexpr std::size_t default_cache_bytes = std::size_t{256} << 20;

  /// Uses path, images, validation_path, validation_fraction, tokenizer, begin_of_text, sequence, patch, image_size,
  /// max_image_size and max_bad_samples. Reads all text and every image's header. Throws JobError for a missing or
  /// broken file, a split without samples, and more bad samples than allowed, with a line for each of the first 20.
  explicit LlavaCorpus(const DataConfig& config, std::size_t cache_bytes = default_cache_bytes);

  [[nodiscard]] std::uint64_t samples(Split split) const override { return side(split).entries.size(); }
  [[nodiscard]] std::int64_t length(Split split, SampleId sample) const override;
  [[nodiscard]] std::int64_t max_length() const override { return config_.sequence; }
  [[nodiscard]] std::int64_t targets(Split split, SampleId sample) const override;
  /// Positive even if no sample has an image: the job has a port for images.
  [[nodiscard]] std::int64_t patch_columns() const override { return 3 * config_.patch * config_.patch; }
  [[nodiscard]] std::int64_t max_patches() const override { return max_patches_; }
  [[nodiscard]] PictureGrids picture_grids() const override { return grids_; }
  [[nodiscard]] SamplePictures pictures(Split split, SampleId sample) const override;
  /// Throws std::runtime_error that names file and sample if an image was damaged after `prepare` and is not in the
  /// cache any more.
  void read_pictures(Split split, SampleId sample, std::span<float> pixels,
                     std::span<std::int32_t> places) const override;
  [[nodiscard]] Status prepare(Split split, SampleId sample) const override;
  [[nodiscard]] std::int64_t vocabulary() const override { return chat_vocabulary(*tokenizer_); }
  [[nodiscard]] std::string describe() const override;
  /// Returns a fingerprint whose content covers the conversations, and name, size in bytes and grid of each image, but
  /// not pixels: these are read on demand.
  [[nodiscard]] DataFingerprint fingerprint() const override;

  [[nodiscard]] ConversationView view(Split split, SampleId sample) const override;
  [[nodiscard]] std::string decode(std::span<const std::int32_t> prompt,
                                   std::span<const std::int32_t> written) const override;
  [[nodiscard]] std::vector<std::int32_t> ends() const override { return {end_of_turn(*tokenizer_)}; }
  [[nodiscard]] std::uint64_t left_out() const override { return left_out_; }

  [[nodiscard]] std::string origin(SampleId sample) const override;

 private:
  struct Picture {
    StoredImage stored;
    PatchGrid grid;
    std::uintmax_t bytes = 0;  // size of the file at opening
  };
  struct Entry {
    Conversation conversation;  // without image names and archive
    std::vector<std::uint32_t> pictures;
    std::int32_t length = 0;
    std::int32_t targets = 0;
    std::int32_t patches = 0;
  };
  struct Side {
    std::string file;
    std::vector<Entry> entries;
  };
  struct Repaired {
    std::uint64_t rows = 0;
    std::string first;  // id of the first row
  };
  struct Opening;

  [[nodiscard]] const Side& side(Split split) const { return split == Split::train ? train_ : validation_; }
  [[nodiscard]] const Entry& entry(Split split, SampleId sample) const;
  [[nodiscard]] std::vector<std::int64_t> patches_of(const Entry& entry) const;
  [[nodiscard]] Result<ImageCache::Tiles> load_image(const Picture& picture) const;
  [[nodiscard]] Error about(Split split, const Entry& entry, const Error& error) const;
  void load(Side& whole, bool split_off, Opening& opening);
  void give_each_side_a_sample(const Opening& opening);
  [[nodiscard]] Result<ChatTokens> tokens_of(const Entry& entry) const;
  [[nodiscard]] std::string repairs() const;
  [[nodiscard]] Result<Entry> checked(Conversation conversation, const std::filesystem::path& folder, Opening& opening);
  [[nodiscard]] Result<std::uint32_t> picture_at(const std::filesystem::path& folder, const std::string& name,
                                                 Opening& opening);
  [[nodiscard]] Result<std::uint32_t> picture_in(const std::filesystem::path& archive, const TarImage& member);
  void read_exact(Split split, SampleId sample, std::span<std::int32_t> tokens,
                  std::span<std::int32_t> targets) const override;

  DataConfig config_;
  PatchSettings patch_settings_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<Picture> pictures_;  // each file once
  Side train_;
  Side validation_;
  std::int64_t max_patches_ = 0;
  PictureGrids grids_;  // grids of all samples that were kept
  std::uint64_t with_pictures_ = 0;
  std::uint64_t left_out_ = 0;
  std::uint64_t cut_ = 0;                                   // samples cut after the last answer that fits
  std::uint64_t unended_ = 0;                               // samples cut inside their only answer
  std::uint64_t unread_ = 0;                                // .json members that are unused next to a caption
  std::array<Repaired, row_repair_names.size()> repaired_;  // by RowRepair
  mutable ImageCache cache_;                                // thread-safe, and does not affect the corpus's value
};

}  // namespace maestro
