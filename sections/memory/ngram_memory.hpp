// SPDX-License-Identifier: Apache-2.0
// A table of hashed n-grams: looks up rows for the n-grams that end with each token (Over-Encoding, arXiv 2501.16975;
// Engram, arXiv 2601.07372; ids and names as in qwen4_exp of transformers 5.24). A decoder reads them at one layer
// (memory_layer.hpp).
//
// Input   tokens  (M) i32
// Output  memory  (M, (orders - 1) heads dim) act, differentiable: the heads' rows side by side, order by order
//
// The table, ngram_embedding.weight (rows, dim), is trained by row-wise AdaGrad (row_table.hpp); the section's keys for
// the learning rate, `epsilon` and `clip_norm` apply, without weight decay. It lies in host memory, and is cut over
// tensor ranks (table_cut.hpp). Initial rows are normal, each drawn only from (seed, section, row).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/job/job_table.hpp"
#include "sections/decoder/decoder_shape.hpp"
#include "sections/memory/ngram_ids.hpp"
#include "sections/memory/table_cut.hpp"
#include "sections/section.hpp"

namespace maestro {

/// Name of the section type in job files.
inline constexpr const char* ngram_memory_type = "ngram_memory";

/// Reads the table's sizes; a folder of `weights` provides absent keys. Throws JobError, also for a table of 2^31 rows
/// or more.
[[nodiscard]] NGramShape read_ngram_shape(const JobTable& table, const DataShape& data = {});
/// Returns a config.json of the sizes, and reads it. Errors name `file` and the key.
[[nodiscard]] std::string ngram_config_text(const NGramShape& shape);
[[nodiscard]] Result<NGramShape> parse_ngram_config(std::string_view text, std::string_view file);

class NGramMemory final : public Section {
 public:
  struct Options {
    NGramShape shape;
    double moment_scale = 1;  ///< RowAdaGrad::moment_scale
    bool average = false;     ///< UpdateRule::average
    TableSharding sharding = TableSharding::row;
    bool sharding_given = false;
    double init_std = 0.02;
    DataShape data;
    /// Throws JobError for keys out of range, keys of AdamW, and token ids beyond `vocabulary`.
    static Options read(const JobTable& table, const DataShape& data);
  };
  /// Throws JobError for a GPU, and for ranks that cannot divide the table.
  NGramMemory(const SectionContext& context, const Options& options);

  [[nodiscard]] Ports ports() const override;
  Parameters& parameters() override { return parameters_; }
  void forward(Tape& tape, const Inputs& inputs, Outputs& outputs) override;
  /// Counts an operation for each value that is looked up.
  [[nodiscard]] Cost cost(const SampleShape& sample) const override;
  [[nodiscard]] std::vector<StateEntry> state() override { return {{.name = table_->name(), .parameter = table_}}; }
  [[nodiscard]] std::string config_json() const override { return ngram_config_text(ids_.shape()); }
  [[nodiscard]] std::string description() const override;
  [[nodiscard]] bool spreads_over_ranks() const override { return true; }
  [[nodiscard]] std::vector<std::string> notes() const override { return notes_; }

  [[nodiscard]] const NGramIds& ids() const { return ids_; }
  /// Returns the rows of tokens, (M, columns) act, by their numbers (M, heads) in the table; of a rank's tokens, if the
  /// table is cut.
  [[nodiscard]] Var look_up(Tape& tape, std::span<const std::int32_t> rows);

 private:
  SectionContext context_;
  NGramIds ids_;
  TableCut cut_;
  std::vector<std::string> notes_;
  Parameters parameters_;
  Parameter* table_;
};

}  // namespace maestro
