// SPDX-License-Identifier: Apache-2.0
// The safetensors files of a Hugging Face folder, looked up by the names of the full language model.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/mxfp4.hpp"
#include "runtime/core/result.hpp"
#include "runtime/files/safetensors.hpp"
#include "runtime/job/job_table.hpp"
#include "runtime/model/hf_config.hpp"
#include "runtime/model/text_part.hpp"

namespace maestro {

/// Returns the folder that a section's table names as `weights`, or the hub cache's folder if it names a model on the
/// hub; empty without the key, and for weights = "random". Throws JobError, with the accepted values, if the folder
/// does not exist.
[[nodiscard]] std::string read_weights_folder(const JobTable& section);

/// The weights in a model's folder. In a vision-language model's folder only the tensors of one part have names
/// (part_name()), and an unknown tensor is refused. Tensors are views into this object's mapped files. Thread-safe.
class WeightsFolder {
 public:
  /// Opens model.safetensors, or else the files that model.safetensors.index.json names, or else every
  /// model-*.safetensors (shards). A model.safetensors next to files of another set is refused, since one of the two is
  /// stale. The index selects the file of a tensor that several files hold, and every tensor that it names exists.
  /// Names without the base model's prefix ("h.0.ln_1.weight" for "transformer.h.0.ln_1.weight") get it. If config.json
  /// ties the output layer to the token embedding, the table may have either name, or both if the two are equal. A
  /// tensor that holds all experts of a layer has their names (ExpertNames), a part of it each. Matrices in MXFP4, by
  /// groups, have one name for blocks NAME_blocks (G, N, K / 32, 16) and scales NAME_scales (G, N, K / 32). Errors name
  /// the folder, or the file at fault.
  [[nodiscard]] static Result<WeightsFolder> open(const std::filesystem::path& folder,
                                                  ModelPart part = ModelPart::language_model);

  /// Returns the full names, sorted.
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] bool contains(std::string_view name) const { return places_.contains(name); }
  /// Returns a tensor. Errors: not_found, with the nearest name; a dtype this program does not compute with; blocks.
  [[nodiscard]] Result<ConstTensor> tensor(std::string_view name) const;
  /// Returns the dtype that takes the most bytes; F32 if the folder has none of the three.
  [[nodiscard]] WeightDtype dtype() const;
  /// Does the same as SafetensorsFile::described() and release(), by a name in names().
  [[nodiscard]] Result<ConstTensor> described(std::string_view name) const;
  void release(std::string_view name) const;
  /// Returns the G N rows if the matrices are in MXFP4, which described() states as transposed, bf16 (G, K, N); else
  /// nothing. Errors as tensor().
  [[nodiscard]] Result<std::optional<Mxfp4Rows>> blocks(std::string_view name) const;
  /// Other values for a stored tensor, f32.
  struct Change {
    std::size_t file = 0;
    std::string stored_name;
    ConstTensor values;
  };
  /// Returns the changes that give the tensors with these full names other values. A token table that is stored twice
  /// changes twice. Errors: not_found, with the nearest name.
  [[nodiscard]] Result<std::vector<Change>> changes(const std::vector<NamedTensor>& tensors) const;
  /// Copies the files of weights to `to` with changes, also those for other parts; changed tensors keep their dtypes.
  /// Errors as SafetensorsFile::copy_changed.
  [[nodiscard]] Status copy_changed(const std::filesystem::path& to, const std::vector<Change>& changes) const;
  [[nodiscard]] std::size_t files() const { return files_.size(); }
  [[nodiscard]] std::uint64_t bytes() const;  ///< bytes of all tensors, other parts' included
  /// Returns the file, or the folder if there are several; for error messages.
  [[nodiscard]] std::string label() const;

 private:
  struct Place {
    std::size_t file = 0;
    std::string stored_name;
    int leading_ones = 0;        // of the stored shape
    std::int64_t first_row = 0;  // of the stored tensor's rows, all dimensions but the last folded
    std::int64_t rows = 0;       // 0: the whole tensor
    std::string scales = {};     // name of the scales, if the tensor has blocks; stored_name is theirs
    std::size_t scales_file = 0;
  };
  WeightsFolder() = default;
  /// Returns the tensor without its leading dimensions of 1.
  [[nodiscard]] Result<ConstTensor> own_shape(const Place& place, Result<ConstTensor> stored) const;
  [[nodiscard]] Status add(const std::filesystem::path& path, const WeightMap& index);
  [[nodiscard]] Status join_tied();
  /// Gives the parts of fused expert tensors their names.
  [[nodiscard]] Status split_experts();
  /// Gives blocks and scales one name.
  [[nodiscard]] Status join_blocks();
  [[nodiscard]] Error unknown(std::string_view name) const;

  /// Returns a stored tensor's part and full name.
  [[nodiscard]] Result<PartName> full_name(const std::string& stored, const std::filesystem::path& file) const;

  std::filesystem::path folder_;
  ModelPart part_ = ModelPart::language_model;
  std::string whole_;  // model_type of the vision-language model whose part this is; else empty
  std::vector<SafetensorsFile> files_;
  std::map<std::string, Place, std::less<>> places_;
};

}  // namespace maestro
