// SPDX-License-Identifier: Apache-2.0
// Section types that a job file may name. A value: apps start from builtin_sections() and add theirs.
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
  std::string name;                                ///< name of the section
  JobTable table;                                  ///< section's settings
  JobTable root;                                   ///< complete job file, for settings of a neighbouring section
  DataShape data;                                  ///< expected data, if the data source states it
  std::shared_ptr<const Corpus> corpus = nullptr;  ///< data, shared with its source; null in tools
  std::string weights_of = {};                     ///< section whose weights a generator takes; empty: student
  std::string generator = {};                      ///< job's generator; empty: none
};

/// Thread-safe once filled.
class SectionRegistry {
 public:
  /// Reads the settings now and throws JobError if they are wrong; the factory builds any number of replicas from them.
  using Builder = std::function<SectionFactory(const SectionTable&)>;

  /// Throws JobError if `type` is already registered, with both origins. `description` is a line for a person, `origin`
  /// the file of a plug-in.
  void add(std::string type, std::string description, Builder builder, std::string origin = {});
  /// Throws JobError for an unknown type, with the nearest and all registered types.
  [[nodiscard]] SectionFactory build(const std::string& type, const SectionTable& section) const;

  /// Throws JobError as build() for an unknown type.
  void check(const std::string& type, const std::string& section) const;

  struct Listing {
    std::string type;
    std::string description;
    std::string origin = {};  ///< plug-in's file; empty: a type of maestro or the app
  };
  /// Returns all types, sorted by type.
  [[nodiscard]] std::vector<Listing> list() const;

 private:
  struct Entry {
    std::string description;
    Builder builder;
    std::string origin;
  };
  std::map<std::string, Entry> entries_;
};

inline constexpr const char* generator_type = "generator";

/// Returns the registry of decoder_trunk, language_model_head, decoder_lm, distilled_decoder, recorded_teacher,
/// generator, ngram_memory, vision_encoder, projector and vision_language_decoder. Some builders read other tables for
/// widths and precisions: distilled_decoder the tables that its key `teacher` names (default "teacher"), projector the
/// tables `vision` and `decoder`, vision_language_decoder the table `projector`, and decoders with `memory_layer` the
/// table that their key `memory` names.
[[nodiscard]] SectionRegistry builtin_sections();

}  // namespace maestro
