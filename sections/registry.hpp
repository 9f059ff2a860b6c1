// SPDX-License-Identifier: Apache-2.0
// The kinds of section that a job file may name. A value: apps start from builtin_sections() and add their own.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/data/corpus.hpp"
#include "runtime/job/job_table.hpp"
#include "sections/decoder/decoder_shape.hpp"
#include "sections/section.hpp"

namespace maestro {

/// The description of a section in a job file.
struct SectionTable {
  std::string name;                                ///< of the section
  JobTable table;                                  ///< its own settings
  JobTable root;                                   ///< of the whole job, for settings of a section it works with
  DataShape data;                                  ///< the expected data, where the data source states it
  std::shared_ptr<const Corpus> corpus = nullptr;  ///< the data itself, shared with its source; null in tools
};

/// Thread-safe once filled.
class SectionRegistry {
 public:
  /// Reads the settings now and throws JobError for wrong settings; the factory builds any number of replicas from
  /// them.
  using Builder = std::function<SectionFactory(const SectionTable&)>;

  /// Throws JobError when `type` is already there, with both origins. `description` is a line for a person, `origin`
  /// the file of a plug-in.
  void add(std::string type, std::string description, Builder builder, std::string origin = {});
  /// Throws JobError for an unknown type, with the nearest and all registered types.
  [[nodiscard]] SectionFactory build(const std::string& type, const SectionTable& section) const;

  struct Listing {
    std::string type;
    std::string description;
    std::string origin = {};  ///< the file of a plug-in; empty: the type is maestro's or the app's
  };
  /// Sorted by type.
  [[nodiscard]] std::vector<Listing> list() const;

 private:
  struct Entry {
    std::string description;
    Builder builder;
    std::string origin;
  };
  std::map<std::string, Entry> entries_;
};

/// decoder_trunk, language_model_head, decoder_lm, distilled_decoder, recorded_teacher, vision_encoder, projector and
/// vision_language_decoder. Some read tables of their neighbours: distilled_decoder those that key `teacher` names
/// ("teacher" unless given), projector those of `vision` and `decoder`, vision_language_decoder that of `projector`,
/// for widths and precisions.
[[nodiscard]] SectionRegistry builtin_sections();

}  // namespace maestro
