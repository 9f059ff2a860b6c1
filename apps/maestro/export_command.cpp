// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/export_command.hpp"

#include <algorithm>
#include <cstdio>
#include <optional>

#include "apps/maestro/end_lines.hpp"
#include "apps/maestro/number_options.hpp"
#include "runtime/core/nearest_name.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/core/result.hpp"
#include "runtime/state/model_export.hpp"
#include "sections/model_folder.hpp"

namespace maestro {

namespace {

constexpr double bytes_of_gb = 1e9;

std::optional<WeightDtype> read_dtype(const std::string& name) {
  if (name.empty()) return std::nullopt;
  const std::vector<std::string> names(weight_dtype_names.begin(), weight_dtype_names.end());
  const auto found = std::ranges::find(names, name);
  if (found != names.end()) return static_cast<WeightDtype>(found - names.begin());
  const auto nearest = nearest_name(name, names);
  throw JobError("export --dtype: \"" + printable(name) + "\" is unknown; " +
                 (nearest ? "did you mean " + *nearest + "?" : "it is f32, bf16 or f16"));
}

}  // namespace

ExportCommand::ExportCommand(CLI::App& app)
    : command_(app.add_subcommand("export", "write a checkpoint's model as a folder for other programs")) {
  command_->add_option("checkpoint", from_, "a checkpoint or a run's folder, with /SECTION where it has several")
      ->required();
  command_->add_option("--to", to_, "the folder to make")->required();
  command_->add_option("--dtype", dtype_,
                       "f32, bf16 or f16 (default: of the weights that the section began from; of adapters f32)");
  command_->add_flag("--merge", merge_, "of a section with lora: the whole model, instead of the adapters");
  command_->add_option("--shard-gb", shard_gb_, "largest file of weights, in 10^9 bytes")
      ->check(decimal_number(1e-6, 1e6))
      ->capture_default_str();
}

int ExportCommand::run(Console& console) const {
  ExportOptions options;
  options.dtype = read_dtype(dtype_);
  options.shard_bytes = static_cast<std::uint64_t>(shard_gb_ * bytes_of_gb);
  if (merge_) options.merge = merge_adapters;
  const CheckpointSection source = resolve_section(from_).value_or_throw();
  const ExportedModel model = export_section(source.checkpoint, source.section, to_, options).value_or_throw();
  char size[32];
  std::snprintf(size, sizeof size, "%.3g MB", static_cast<double>(model.bytes) / 1e6);
  console.note(source.section + " of " + source.checkpoint.string() + ": " +
               std::string(model.adapters ? "adapters, " : "") + std::string(name_of(model.dtype)) + ", " + size +
               " in " + std::to_string(model.files) + (model.files == 1 ? " file" : " files"));
  print_models({{source.section, to_.string()}}, console);
  return 0;
}

}  // namespace maestro
