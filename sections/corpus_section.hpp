// SPDX-License-Identifier: Apache-2.0
// The source of a text job as a section: its forward pass reads the tokens of a micro-batch. A section replica hosts
// it, so its output uses the same slots and credits.
#pragma once

#include <memory>

#include "runtime/data/corpus.hpp"
#include "runtime/data/sample_store.hpp"
#include "sections/section.hpp"

namespace maestro {

/// Outputs: tokens (M) i32 and targets (M) i32, which are -1 if the loss ignores the position. A corpus with images has
/// two more outputs with a row for each patch: pixels (P, patch_columns) f32 and places (P, 3) i32, which are the
/// image's number in the sample, and the patch's row and column in the image. A corpus with marks has marks (M, 4) i32
/// (Corpus::read_marks()). If another model reads the samples in another way (Corpus::other()), its images, and its
/// tokens and targets if it has its own, are further outputs, with `other_` before their names. The sounds of a corpus
/// with images and sounds (Corpus::sounds()) are outputs with `sound_` before their names: sound_pixels and
/// sound_places. With made samples, sampled (M, 1) f32 is the log-probability with which a generator drew the target; 0
/// for other targets.
class CorpusSection final : public Section {
 public:
  /// Corpus and store are shared with the data source actor, which reports lengths. `made` has the samples that
  /// generators made; null: the job has none.
  explicit CorpusSection(std::shared_ptr<const Corpus> corpus, std::shared_ptr<const SampleStore> made = nullptr)
      : corpus_(std::move(corpus)), made_(std::move(made)) {}
  [[nodiscard]] Ports ports() const override;
  /// Returns how a section of DataConfig::readers reads the corpus.
  [[nodiscard]] static Reading reading_of(const Corpus& corpus, const std::string& reader);
  /// Returns the corpus that a section with this reading reads.
  [[nodiscard]] static const Corpus& corpus_in(Reading reading, const Corpus& corpus);
  /// Returns the output for a section that connects to `port` and has this reading.
  [[nodiscard]] static std::string port_for(const std::string& port, Reading reading);
  Parameters& parameters() override { return parameters_; }
  void forward(Tape& tape, const Inputs& inputs, Outputs& outputs) override;
  [[nodiscard]] Cost cost(const SampleShape&) const override { return {}; }
  [[nodiscard]] std::vector<StateEntry> state() override { return {}; }
  [[nodiscard]] std::string config_json() const override { return "{}"; }

 private:
  /// A corpus, and the reading of the sections that read it.
  struct Read {
    const Corpus* corpus;
    Reading reading = Reading::own;
    [[nodiscard]] bool has_text() const { return reading == Reading::own || reading == Reading::tokens; }
  };
  [[nodiscard]] Read other() const;
  [[nodiscard]] Read sounds() const;
  static void add_ports(const Read& read, std::vector<Port>& outputs);
  void read_all(const Read& read, Tape& tape, const Inputs& inputs, Outputs& outputs) const;
  void read_text(const Read& read, Tape& tape, const Inputs& inputs, Outputs& outputs) const;
  void read_sampled(Tape& tape, const Inputs& inputs, Outputs& outputs) const;
  static void read_pictures(const Read& read, Tape& tape, const Inputs& inputs, Outputs& outputs);
  static void read_marks(const Read& read, Tape& tape, const Inputs& inputs, Outputs& outputs);
  static void read_mix(const Read& read, Tape& tape, const Inputs& inputs, Outputs& outputs);

  std::shared_ptr<const Corpus> corpus_;
  std::shared_ptr<const SampleStore> made_;
  Parameters parameters_;
};

}  // namespace maestro
